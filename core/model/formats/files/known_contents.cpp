#include "core/model/formats/files/known_contents.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "core/model/formats/files/temporary_file.h"

namespace quire {

namespace {

constexpr const char* kHashesFile = "content-hashes";
constexpr std::size_t kMostEntries = 1024;
constexpr std::uintmax_t kMostBytes = 1 << 20;

std::uint64_t check_of(const std::string& text) {
  return XXH3_64bits(text.data(), text.size());
}

// "system device inode size modified changed born high low"; the file appends a check.
std::string text_of(const FileStamp& stamp, const ContentHash& hash) {
  return fmt::format("{} {} {} {} {} {} {} {:016x} {:016x}", stamp.system, stamp.device, stamp.inode, stamp.size,
                     stamp.modified, stamp.changed, stamp.born, hash.high, hash.low);
}

std::optional<std::pair<FileStamp, ContentHash>> entry_of(const std::string& line) {
  const std::size_t check_at = line.rfind(' ');
  if (check_at == std::string::npos) return std::nullopt;
  const std::string text = line.substr(0, check_at);
  if (line.substr(check_at + 1) != fmt::format("{:016x}", check_of(text))) return std::nullopt;
  FileStamp stamp{.is_reliable = true};
  ContentHash hash;
  std::istringstream words(text);
  words >> stamp.system >> stamp.device >> stamp.inode >> stamp.size >> stamp.modified >> stamp.changed >> stamp.born >>
      std::hex >> hash.high >> hash.low;
  return words ? std::optional(std::pair(stamp, hash)) : std::nullopt;
}

}  // namespace

KnownContents::KnownContents(const std::filesystem::path& folder) {
  if (folder.empty()) return;
  path_ = folder / kHashesFile;
  entries_ = read(path_);
}

std::vector<KnownContents::Entry> KnownContents::read(const std::filesystem::path& path) {
  std::vector<Entry> entries;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) || std::filesystem::file_size(path, error) > kMostBytes)
    return entries;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (auto entry = entry_of(line)) entries.push_back(*entry);
  }
  return entries;
}

std::optional<ContentHash> KnownContents::find(const FileStamp& stamp) const {
  const auto place = last_use(stamp);
  return place ? std::optional(entries_[*place].second) : std::nullopt;
}

std::optional<std::size_t> KnownContents::last_use(const FileStamp& stamp) const {
  const auto found = std::ranges::find(entries_, stamp, &Entry::first);
  if (found == entries_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - entries_.begin());
}

void KnownContents::remember(const FileStamp& stamp, const ContentHash& hash) {
  if (path_.empty() || !stamp.is_reliable) return;
  remove_abandoned(path_.parent_path(), kHashesFile);
  entries_ = read(path_);  // includes files that other processes added
  std::erase_if(entries_, [&](const Entry& entry) { return entry.first == stamp; });
  entries_.emplace_back(stamp, hash);
  if (entries_.size() > kMostEntries) entries_.erase(entries_.begin(), entries_.end() - kMostEntries);
  std::string text;
  for (const auto& [each, content] : entries_) {
    const std::string line = text_of(each, content);
    text += fmt::format("{} {:016x}\n", line, check_of(line));
  }
  TemporaryFile file(path_);
  file.write(std::as_bytes(std::span(text)));
  file.commit(false);
}

}  // namespace quire
