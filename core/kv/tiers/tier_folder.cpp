#include "core/kv/tiers/tier_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string_view>
#include <utility>

#include "core/base/files/writing.h"
#include "core/base/log.h"
#include "core/base/result.h"

namespace quire {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSuffix = ".kv";
constexpr const char* kLockFile = "lock";

// The open lock file of a folder; -1 and errno where that fails, EWOULDBLOCK where another process holds it.
int lock_of(const fs::path& folder) {
  const int file = open((folder / kLockFile).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  const int why = errno;
  if (file >= 0) close(file);
  errno = why;
  return -1;
}

struct FolderCloser {
  void operator()(DIR* folder) const { closedir(folder); }
};

// Calls visit(path) for each file or folder in a folder. Throws bad_alloc if memory is refused; the standard library's
// iterators would end the process.
template <class Visit>
void for_each_in(const fs::path& folder, Visit&& visit) QUIRE_REQUIRES(kKvIoThread) {
  const std::unique_ptr<DIR, FolderCloser> opened(opendir(folder.c_str()));
  if (opened == nullptr) return;
  while (const dirent* const entry = readdir(opened.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") visit(folder / name);
  }
}

std::uint64_t random_number() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace

TierFolder::TierFolder(const TierFolderOptions& options, std::function<void()> ready)
    : options_(options),
      folder_(options.directory / ("kv-" + hex_digits(options.fingerprint))),
      ready_(std::move(ready)),
      number_(random_number()) {
  std::error_code error;
  make_private_folder(options_.directory, error);
  if (!error) make_private_folder(folder_, error);
  if (error) {
    throw StartupError(
        fmt::format("kv_cache.disk_tier_path: {} cannot be made: {}", folder_.string(), error.message()));
  }
  thread_ = std::thread([this] {
    kKvIoThread.assume();
    run();
  });
}

TierFolder::~TierFolder() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool TierFolder::can_take(std::int64_t payload_bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (std::chrono::steady_clock::now() < paused_until_) return false;
    if (has_lock_) return num_queued_bytes_ + payload_bytes <= options_.max_queued_bytes;
    if (std::exchange(wants_lock_, true)) return false;
  }
  changed_.notify_all();
  return false;
}

void TierFolder::write(TierEvents write) noexcept {
  {
    const std::lock_guard lock(mutex_);
    num_queued_bytes_ += std::ssize(*write.front().record.payload);
    writes_.splice(writes_.end(), write);
  }
  changed_.notify_all();
}

void TierFolder::remove(const ChainKey& key) noexcept {
  try {
    std::list<ChainKey> removal(1, key);
    const std::lock_guard lock(mutex_);
    if (!has_lock_) return;
    removals_.splice(removals_.end(), removal);
  } catch (const std::exception&) {
    return;
  }
  changed_.notify_all();
}

void TierFolder::read(TierEvents read) noexcept {
  {
    const std::lock_guard lock(mutex_);
    reads_.splice(reads_.end(), read);
  }
  changed_.notify_all();
}

void TierFolder::take_events(TierEvents& out, std::size_t most) noexcept {
  const std::lock_guard lock(mutex_);
  move_first(events_, most, out);
}

bool TierFolder::can_write() const {
  const std::lock_guard lock(mutex_);
  return has_lock_;
}

bool TierFolder::wait_idle(std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  const auto is_idle = [this] {
    return !is_busy_ && !wants_lock_ && reads_.empty() && writes_.empty() && removals_.empty();
  };
  if (until != std::chrono::steady_clock::time_point::max()) return changed_.wait_until(lock, until, is_idle);
  changed_.wait(lock, is_idle);
  return true;
}

void TierFolder::drop_writes() {
  const std::lock_guard lock(mutex_);
  for (TierEvent& write : writes_) {
    num_queued_bytes_ -= std::ssize(*write.record.payload);
    write.record.payload.reset();
    write.kind = TierEvent::Kind::kLost;
  }
  events_.splice(events_.end(), writes_);
}

void TierFolder::run() {
  pthread_setname_np(pthread_self(), "kv-io");
  take_lock();
  load();
  std::unique_lock lock(mutex_);
  while (true) {
    is_busy_ = false;
    changed_.notify_all();
    changed_.wait(
        lock, [this] { return stopping_ || wants_lock_ || !reads_.empty() || !writes_.empty() || !removals_.empty(); });
    is_busy_ = true;
    if (!reads_.empty()) {
      TierEvents read;
      read.splice(read.end(), reads_, reads_.begin());
      lock.unlock();
      read_one(read.front());
      post(std::move(read));
    } else if (!removals_.empty()) {  // removals make room for later writes
      const ChainKey key = removals_.front();
      removals_.pop_front();
      lock.unlock();
      remove_one(key);
    } else if (!writes_.empty()) {
      TierEvents write;
      write.splice(write.end(), writes_, writes_.begin());
      lock.unlock();
      write_one(write.front());
      post(std::move(write));
    } else if (stopping_) {
      break;
    } else {
      lock.unlock();
      if (take_lock()) load();  // finds the other process's records
    }
    lock.lock();
  }
  if (lock_file_ >= 0) close(lock_file_);
}

bool TierFolder::take_lock() noexcept {
  int why = ENOMEM;
  try {
    std::error_code ignored;
    make_private_folder(folder_, ignored);
    lock_file_ = lock_of(folder_);
    why = errno;
  } catch (const std::exception&) {  // the next write asks again
  }
  {
    const std::lock_guard lock(mutex_);
    wants_lock_ = false;
    has_lock_ = lock_file_ >= 0;
  }
  try {
    note_lock(why);
  } catch (const std::exception&) {  // not logged
  }
  return lock_file_ >= 0;
}

void TierFolder::note_lock(int why) {
  const bool owns = lock_file_ >= 0;
  if (!owns && !std::exchange(said_locked_, true)) {
    log::warn("KV blocks in {} are only read: {}; they are written once the folder can be locked", folder_.string(),
              why == EWOULDBLOCK ? "another process writes there" : std::generic_category().message(why));
  } else if (owns && std::exchange(said_locked_, false)) {
    log::info("KV blocks are written to {} from now on", folder_.string());
  }
}

// After a failure: the folder itself may be gone.
void TierFolder::drop_lock() {
  if (lock_file_ >= 0) close(lock_file_);
  lock_file_ = -1;
}

// Deletes folders of other models, the oldest first, if all together exceed the limit.
void TierFolder::trim_other_folders() const {
  std::error_code error;
  std::multimap<fs::file_time_type, std::pair<fs::path, std::int64_t>> folders;
  std::int64_t total = 0;
  for_each_in(options_.directory, [&](const fs::path& folder) QUIRE_REQUIRES(kKvIoThread) {
    // Only folders of this tier's own naming are touched.
    if (!fs::is_directory(folder, error) || !folder.filename().string().starts_with("kv-")) return;
    std::int64_t bytes = 0;
    for_each_in(folder, [&](const fs::path& file) { bytes += static_cast<std::int64_t>(fs::file_size(file, error)); });
    total += bytes;
    if (folder != folder_) folders.emplace(fs::last_write_time(folder, error), std::pair(folder, bytes));
  });
  for (const auto& [time, folder] : folders) {
    if (total <= options_.max_bytes) return;
    const int lock_file = lock_of(folder.first);
    if (lock_file < 0) continue;  // another process serves that model
    for_each_in(folder.first, [&](const fs::path& file) { fs::remove(file, error); });
    fs::remove(folder.first, error);
    close(lock_file);
    total -= folder.second;
  }
}

// A failure, of memory too, leaves files unlisted: they stay until the folder is loaded again.
void TierFolder::load() noexcept {
  try {
    find_records();
    if (loaded_.empty()) loaded_.push_back({.kind = TierEvent::Kind::kLoaded});
  } catch (const std::exception& error) {
    log::warn("not all KV blocks in {} were found: {}", folder_.native(), error.what());
  }
  if (!loaded_.empty()) post(std::exchange(loaded_, {}));
}

// Finds the records of earlier processes. They lie in no order; parents are reported before children.
void TierFolder::find_records() {
  const bool owns = lock_file_ >= 0;
  if (owns) trim_other_folders();
  TierEvents found;
  std::error_code error;
  for_each_in(folder_, [&](const fs::path& file) QUIRE_REQUIRES(kKvIoThread) {
    if (file.filename() == kLockFile) return;
    std::optional<TierRecord> record;
    if (file.extension() == kSuffix) record = read_record_head(file);
    const bool ours = record && record->fingerprint == options_.fingerprint &&
                      std::cmp_equal(record->content.tokens.size(), options_.block_size) &&
                      file == path_of(record->key);
    if (ours) {
      found.push_back({.kind = TierEvent::Kind::kFound,
                       .key = record->key,
                       .record = *std::move(record),
                       .file_bytes = static_cast<std::int64_t>(fs::file_size(file, error))});
    } else if (owns) {
      fs::remove(file, error);
    }
  });
  found.sort([](const TierEvent& a, const TierEvent& b) { return a.record.position < b.record.position; });
  const std::lock_guard lock(mutex_);
  events_.splice(events_.end(), found);
}

void TierFolder::post(TierEvents event) noexcept {
  const TierEvent::Kind kind = event.front().kind;
  {
    const std::lock_guard lock(mutex_);
    events_.splice(events_.end(), event);
  }
  if (kind == TierEvent::Kind::kRead || kind == TierEvent::Kind::kLoaded) ready_();
}

void TierFolder::remove_one(const ChainKey& key) noexcept {
  if (lock_file_ < 0) return;
  try {
    std::error_code ignored;
    fs::remove(path_of(key), ignored);
  } catch (const std::exception&) {  // the file stays until the folder is loaded again
  }
}

void TierFolder::write_one(TierEvent& write) noexcept {
  const bool owns = lock_file_ >= 0;
  std::error_code failed = std::make_error_code(owns ? std::errc::not_enough_memory : std::errc::no_lock_available);
  try {
    if (owns) failed = write_record(path_of(write.key), write.record);
  } catch (const std::exception&) {
  }
  {
    const std::lock_guard lock(mutex_);
    num_queued_bytes_ -= std::ssize(*write.record.payload);
  }
  write.record.payload.reset();
  if (failed && owns && failed != std::errc::not_enough_memory) pause_writing(failed);
  write.kind = failed ? TierEvent::Kind::kLost : TierEvent::Kind::kWritten;
}

void TierFolder::pause_writing(const std::error_code& why) {
  drop_lock();
  drop_writes();
  {
    const std::lock_guard lock(mutex_);
    has_lock_ = false;
    paused_until_ = std::chrono::steady_clock::now() + options_.pause;
  }
  try {
    log::warn("KV blocks could not be written to {} ({}): nothing is kept there for {} s", folder_.native(),
              describe_write_error(why.value()),
              std::chrono::duration_cast<std::chrono::seconds>(options_.pause).count());
  } catch (const std::exception&) {  // no memory for the reason's text
  }
}

void TierFolder::read_one(TierEvent& read) const noexcept {
  const auto began = std::chrono::steady_clock::now();
  const std::uint64_t number = std::exchange(read.record, {}).number;
  try {
    std::optional<TierRecord> record = read_record(path_of(read.key));
    const bool is_right =
        record && record->key == read.key && record->number == number && record->fingerprint == options_.fingerprint;
    if (is_right) read.record = *std::move(record);
  } catch (const std::exception&) {  // treated as missing
  }
  read.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

fs::path TierFolder::path_of(const ChainKey& key) const {
  return folder_ / (hex_digits(key) + kSuffix);
}

}  // namespace quire
