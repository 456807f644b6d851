#include "server/batch/file_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/files/writing.h"
#include "core/base/log.h"
#include "server/api/common/json.h"
#include "server/api/common/operation.h"

namespace quire {

namespace {

constexpr std::int64_t kMaxDescription = 64 * 1024;
// Estimated disk use of a file's description and folder entry.
constexpr std::int64_t kFileCost = 4096;

Error no_room(const std::string& whose) {
  return Error{ErrorKind::kNoMemory, "The storage of " + whose + " is full: delete files, or wait until some expire",
               "storage_full", ""};
}

std::string description_of(const StoredFile& file) {
  return dump_json(Json{{"id", file.id},
                        {"owner", file.owner},
                        {"filename", file.filename},
                        {"purpose", file.purpose},
                        {"bytes", file.bytes},
                        {"created_at", file.created_at},
                        {"expires_at", file.expires_at}});
}

std::optional<StoredFile> read_description(const std::filesystem::path& path) {
  auto file = DiskFile::read_from(path);
  if (!file) return std::nullopt;
  const auto text = file->read(0, static_cast<std::size_t>(kMaxDescription));
  if (!text) return std::nullopt;
  const auto json = parse_json_object(*text);
  if (!json) return std::nullopt;
  try {
    StoredFile stored{json->at("id"),    json->at("owner"),      json->at("filename"),  json->at("purpose"),
                      json->at("bytes"), json->at("created_at"), json->at("expires_at")};
    if (stored.id + ".json" != path.filename() || stored.bytes < 0) return std::nullopt;
    return stored;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace

bool is_stored_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

Result<void> StorageUse::take(const std::string& owner, std::int64_t bytes) {
  if (total_ + bytes > options_.max_bytes) return tl::make_unexpected(no_room("this server"));
  const auto used = by_owner_.find(owner);
  if ((used == by_owner_.end() ? 0 : used->second) + bytes > options_.max_bytes_per_key) {
    return tl::make_unexpected(no_room(owner.empty() ? "this server" : "this API key"));
  }
  add(owner, bytes);
  return {};
}

void StorageUse::add(const std::string& owner, std::int64_t bytes) {
  total_ += bytes;
  if ((by_owner_[owner] += bytes) == 0) by_owner_.erase(owner);
}

FileUpload::~FileUpload() {
  if (is_kept_) return;
  ::unlink(path_.c_str());
  use_.give_back(owner_, kFileCost + (is_paid_ ? 0 : num_bytes_));
}

Result<void> FileUpload::write(std::string_view bytes) {
  const auto count = static_cast<std::int64_t>(bytes.size());
  if (!is_paid_) {
    if (auto taken = use_.take(owner_, count); !taken) return taken;
  }
  num_bytes_ += count;
  return file_.write(bytes);
}

FileStore::FileStore(const BatchOptions& options, StorageUse& use)
    : options_(options), folder_(std::filesystem::path(options.directory) / "files"), use_(use) {}

bool FileStore::load_one(const std::filesystem::path& description) {
  auto stored = read_description(description);
  std::error_code error;
  if (!stored ||
      std::filesystem::file_size(data_path(stored->id), error) != static_cast<std::uintmax_t>(stored->bytes) || error) {
    return false;
  }
  use_.add(stored->owner, stored->bytes + kFileCost);
  ++num_by_owner_[stored->owner];
  std::string id = stored->id;
  files_.emplace(std::move(id), *std::move(stored));
  return true;
}

Result<void> FileStore::load() {
  std::error_code error;
  make_private_folder(folder_, error);
  if (error) return tl::make_unexpected(storage_error(folder_, error.value()));
  std::vector<std::filesystem::path> others;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() != ".json") {
      others.push_back(path);
    } else if (!load_one(path)) {
      log::warn("batches: {} is damaged or has no content of its size: it is left out", path.string());
    }
  }
  if (error) return tl::make_unexpected(storage_error(folder_, error.value()));
  // Removes unfinished uploads and content without a description. Damaged files stay, for a person to look at.
  for (const std::filesystem::path& path : others) {
    const bool is_described = std::filesystem::exists(description_path(path.filename().string()), error);
    if (!is_described) std::filesystem::remove(path, error);
  }
  return {};
}

Result<std::shared_ptr<FileUpload>> FileStore::begin(const std::string& owner, const std::string& id) {
  const auto num_files = num_by_owner_.find(owner);
  if (id.empty() && num_files != num_by_owner_.end() && num_files->second >= options_.max_files_per_key) {
    return invalid(fmt::format("There are {} files already: delete some first", num_files->second), "file",
                   "too_many_files");
  }
  remove(id);
  if (auto taken = use_.take(owner, kFileCost); !taken) return tl::make_unexpected(taken.error());
  const std::filesystem::path path = folder_ / ((id.empty() ? make_id("file-") : id) + ".part");
  auto file = DiskFile::create(path);
  if (!file) {
    use_.give_back(owner, kFileCost);
    return tl::make_unexpected(file.error());
  }
  return std::make_shared<FileUpload>(use_, path, *std::move(file), owner, !id.empty());
}

Result<StoredFile> FileStore::finish(FileUpload& upload, StoredFile file) {
  file.id = upload.path_.stem().string();
  file.owner = upload.owner_;
  file.bytes = upload.num_bytes_;
  // Made before the files have their names.
  std::map<std::string, StoredFile> one;
  one.emplace(file.id, file);
  std::int64_t& num_of_owner = num_by_owner_[file.owner];
  const std::string description = description_of(file);
  if (auto synced = upload.file_.sync(); !synced) return tl::make_unexpected(synced.error());
  const std::filesystem::path data = data_path(file.id);
  if (std::rename(upload.path_.c_str(), data.c_str()) != 0) return tl::make_unexpected(storage_error(data, errno));
  if (auto described = replace_file(description_path(file.id), description); !described) {
    ::unlink(data.c_str());
    return tl::make_unexpected(described.error());
  }
  upload.is_kept_ = true;
  if (upload.is_paid_) use_.add(file.owner, file.bytes);
  num_of_owner += 1 - static_cast<std::int64_t>(files_.erase(file.id));
  files_.merge(one);
  return file;
}

const StoredFile* FileStore::find(const std::string& id, const std::string& owner) const {
  const auto found = files_.find(id);
  return found == files_.end() || found->second.owner != owner ? nullptr : &found->second;
}

std::vector<const StoredFile*> FileStore::of_owner(const std::string& owner) const {
  std::vector<const StoredFile*> found;
  for (const auto& [id, file] : files_) {
    if (file.owner == owner) found.push_back(&file);
  }
  std::sort(found.begin(), found.end(), [](const StoredFile* a, const StoredFile* b) {
    return std::tie(a->created_at, a->id) < std::tie(b->created_at, b->id);
  });
  return found;
}

Result<DiskFile> FileStore::open(const StoredFile& file) const {
  return DiskFile::read_from(data_path(file.id));
}

void FileStore::remove(const std::string& id) {
  const auto found = files_.find(id);
  if (found == files_.end()) return;
  ::unlink(description_path(id).c_str());
  ::unlink(data_path(id).c_str());
  use_.give_back(found->second.owner, found->second.bytes + kFileCost);
  if (--num_by_owner_[found->second.owner] == 0) num_by_owner_.erase(found->second.owner);
  files_.erase(found);
}

std::vector<std::string> FileStore::expired(std::int64_t now) const {
  std::vector<std::string> ids;
  for (const auto& [id, file] : files_) {
    if (file.expires_at <= now) ids.push_back(id);
  }
  return ids;
}

}  // namespace quire
