#include "server/hub/hub_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include "server/hub/file_choice.h"

namespace quire::hub {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kModels = "models--";
constexpr std::string_view kPartial = ".incomplete";

tl::unexpected<Error> cannot(const char* what, const fs::path& path, const std::string& why) {
  return failure(ErrorKind::kInternal, fmt::format("cannot {} {}: {}", what, path.string(), why), "cache_failed");
}

std::string error_text() {
  return std::strerror(errno);
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(256, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' '))
    text.pop_back();
  return text;
}

// All files below a folder, by relative path, without broken links.
std::vector<std::string> files_below(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code failed;
  for (fs::recursive_directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code broken;
    if (at->is_regular_file(broken)) files.push_back(at->path().lexically_relative(folder).string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code failed;
  for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
    entries.push_back(at->path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::int64_t size_of(const fs::path& path) {
  std::error_code failed;
  const auto size = fs::file_size(path, failed);
  return failed ? 0 : static_cast<std::int64_t>(size);
}

// A name beside `path` that no other process uses.
fs::path temporary_beside(const fs::path& path) {
  return fs::path(path).concat(fmt::format(".tmp-{}", ::getpid()));
}

}  // namespace

Result<bool> CacheLock::try_take(const fs::path& path, Mode mode) {
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  if (failed) return cannot("create", path.parent_path(), failed.message());
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return cannot("open", path, error_text());
  struct stat held {};
  struct stat named {};
  const bool taken = ::flock(file, (mode == Mode::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0;
  // If another process deleted the file meanwhile, this lock has no name.
  const bool is_named = taken && ::fstat(file, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
                        held.st_ino == named.st_ino && held.st_dev == named.st_dev;
  if (!is_named) {
    ::close(file);
    return false;
  }
  release();
  file_ = file;
  return true;
}

void CacheLock::release() {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
}

fs::path HubCache::repository_folder(const std::string& repository) const {
  std::string name(kModels);
  for (const char c : repository)
    name += c == '/' ? "--" : std::string(1, c);
  return folder_ / name;
}

fs::path HubCache::blob(const std::string& repository, const std::string& checksum) const {
  return repository_folder(repository) / "blobs" / checksum;
}

fs::path HubCache::blob_lock(const std::string& repository, const std::string& checksum) const {
  return folder_ / ".locks" / repository_folder(repository).filename() / (checksum + ".lock");
}

fs::path HubCache::repository_lock(const std::string& repository) const {
  return folder_ / ".locks" / (repository_folder(repository).filename().string() + ".lock");
}

fs::path HubCache::snapshot(const std::string& repository, const std::string& commit) const {
  return repository_folder(repository) / "snapshots" / commit;
}

bool HubCache::has_blob(const std::string& repository, const RemoteFile& file) const {
  const fs::path path = blob(repository, file.checksum);
  std::error_code failed;
  return fs::is_regular_file(path, failed) && size_of(path) == file.size;
}

Result<void> HubCache::link(const std::string& repository, const std::string& commit, const RemoteFile& file) const {
  const fs::path at = snapshot(repository, commit) / file.path;
  const fs::path target = blob(repository, file.checksum).lexically_relative(at.parent_path());
  std::error_code failed;
  fs::create_directories(at.parent_path(), failed);
  if (failed) return cannot("create", at.parent_path(), failed.message());
  if (fs::is_symlink(at, failed) && fs::read_symlink(at, failed) == target) return {};
  const fs::path temporary = temporary_beside(at);
  fs::remove(temporary, failed);
  fs::create_symlink(target, temporary, failed);
  if (!failed) fs::rename(temporary, at, failed);
  if (failed) return cannot("link", at, failed.message());
  return {};
}

Result<void> HubCache::set_revision(const ModelReference& model, const std::string& commit) const {
  if (model.revision == commit) return {};
  const fs::path path = repository_folder(model.repository) / "refs" / model.revision;
  if (read_text(path) == commit) return {};
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  const fs::path temporary = temporary_beside(path);
  std::ofstream file(temporary, std::ios::binary);
  file << commit;
  file.close();
  if (!file) return cannot("write", temporary, error_text());
  fs::rename(temporary, path, failed);
  if (failed) return cannot("write", path, failed.message());
  return {};
}

std::optional<std::string> HubCache::commit_of(const ModelReference& model) const {
  std::string commit = read_text(repository_folder(model.repository) / "refs" / model.revision);
  if (is_commit(model.revision)) commit = model.revision;
  if (!is_commit(commit)) return std::nullopt;
  return commit;
}

std::vector<std::string> HubCache::files_of(const std::string& repository, const std::string& commit) const {
  return files_below(snapshot(repository, commit));
}

tl::unexpected<Error> HubCache::not_cached(const ModelReference& model, const std::string& why) const {
  return tl::make_unexpected(Error{ErrorKind::kNotFound,
                                   fmt::format("'{}' is not in the cache {}{}", model.text(), folder_.string(), why),
                                   "model_not_cached", "model", std::nullopt});
}

Result<CachedModel> HubCache::find(const ModelReference& model) const {
  const auto commit = commit_of(model);
  if (!commit) return not_cached(model, "");
  const auto chosen = choose_files(files_of(model.repository, *commit), model.wanted);
  if (!chosen) return not_cached(model, ": " + chosen.error().message);
  CachedModel found{model, *commit, snapshot(model.repository, *commit), 0};
  for (const std::string& path : chosen->paths)
    found.num_bytes += size_of(snapshot(model.repository, *commit) / path);
  if (!chosen->model.empty()) found.path /= chosen->model;
  return found;
}

void HubCache::add_models(const std::string& repository, CacheContent& content) const {
  const fs::path refs = repository_folder(repository) / "refs";
  for (const std::string& revision : files_below(refs)) {
    const auto commit = commit_of({repository, revision, ""});
    if (!commit) continue;
    for (const std::string& choice : choices_of(files_of(repository, *commit))) {
      const ModelReference reference{repository, revision, choice};
      const auto found = find(reference);
      content.models.push_back(found ? *found : CachedModel{reference, *commit, {}, 0});
    }
  }
  std::int64_t partial = 0;
  for (const fs::path& path : entries_of(repository_folder(repository) / "blobs")) {
    if (path.extension() == kPartial) partial += size_of(path);
  }
  if (partial > 0) content.partial.push_back({repository, partial});
}

CacheContent HubCache::content() const {
  CacheContent content;
  for (const fs::path& path : entries_of(folder_)) {
    std::string name = path.filename().string();
    if (!name.starts_with(kModels)) continue;
    name.erase(0, kModels.size());
    const std::size_t separator = name.find("--");
    if (separator != std::string::npos) name.replace(separator, 2, "/");
    if (parse_reference(name)) add_models(name, content);
  }
  return content;
}

std::int64_t HubCache::drop_unused_blobs(const std::string& repository) const {
  std::set<fs::path> used;
  const fs::path snapshots = repository_folder(repository) / "snapshots";
  std::error_code failed;
  for (const std::string& path : files_below(snapshots))
    used.insert(fs::canonical(snapshots / path, failed));
  std::int64_t freed = 0;
  for (const fs::path& path : entries_of(repository_folder(repository) / "blobs")) {
    if (path.extension() == kPartial || used.count(fs::canonical(path, failed)) > 0) continue;
    freed += size_of(path);
    fs::remove(path, failed);
  }
  return freed;
}

Result<std::int64_t> HubCache::remove(const ModelReference& model) const {
  std::error_code failed;
  if (!fs::is_directory(repository_folder(model.repository), failed)) return not_cached(model, "");
  CacheLock lock;
  const auto taken = lock.try_take(repository_lock(model.repository), CacheLock::Mode::kExclusive);
  if (!taken) return tl::make_unexpected(taken.error());
  if (*taken) return remove_locked(model);
  return failure(ErrorKind::kConflict, fmt::format("'{}' is being downloaded: end that first", model.repository),
                 "model_busy");
}

Result<std::int64_t> HubCache::remove_locked(const ModelReference& model) const {
  const fs::path folder = repository_folder(model.repository);
  std::error_code failed;
  if (model.wanted.empty()) {
    std::int64_t freed = 0;
    for (const fs::path& path : entries_of(folder / "blobs"))
      freed += size_of(path);
    fs::remove_all(folder, failed);
    if (failed) return cannot("delete", folder, failed.message());
    return freed;
  }
  const auto commit = commit_of(model);
  if (!commit) return not_cached(model, "");
  const auto chosen = choose_files(files_of(model.repository, *commit), model.wanted);
  if (!chosen) return not_cached(model, ": " + chosen.error().message);
  for (const std::string& path : chosen->paths) {
    fs::remove(snapshot(model.repository, *commit) / path, failed);
    if (failed) return cannot("delete", snapshot(model.repository, *commit) / path, failed.message());
  }
  const std::int64_t freed = drop_unused_blobs(model.repository);
  if (entries_of(folder / "blobs").empty()) fs::remove_all(folder, failed);
  return freed;
}

}  // namespace quire::hub
