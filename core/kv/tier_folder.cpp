#include "core/kv/tier_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <random>
#include <utility>

#include "core/base/log.h"
#include "core/base/result.h"

namespace quire {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSuffix = ".kv";
constexpr const char* kLockFile = "lock";

std::string name_of(const ChainKey& key) {
  return fmt::format("{:016x}{:016x}", key.high, key.low);
}

// The open lock file of a folder; -1 and errno where that fails, EWOULDBLOCK where another process holds it.
int lock_of(const fs::path& folder) {
  const int file = open((folder / kLockFile).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  const int why = errno;
  if (file >= 0) close(file);
  errno = why;
  return -1;
}

std::uint64_t random_number() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace

TierFolder::TierFolder(const TierFolderOptions& options, std::function<void()> ready)
    : options_(options),
      folder_(options.directory / ("kv-" + name_of(options.fingerprint))),
      ready_(std::move(ready)),
      number_(random_number()) {
  std::error_code error;
  fs::create_directories(folder_, error);
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

void TierFolder::write(TierRecord record) {
  {
    const std::lock_guard lock(mutex_);
    num_queued_bytes_ += static_cast<std::int64_t>(record.payload->size());
    writes_.push_back(std::move(record));
  }
  changed_.notify_all();
}

void TierFolder::remove(const ChainKey& key) {
  {
    const std::lock_guard lock(mutex_);
    if (!has_lock_) return;
    removals_.push_back(key);
  }
  changed_.notify_all();
}

void TierFolder::read(const ChainKey& key, std::uint64_t number) {
  {
    const std::lock_guard lock(mutex_);
    reads_.push_back({key, number});
  }
  changed_.notify_all();
}

void TierFolder::take_events(std::vector<TierEvent>& out, std::size_t most) {
  const std::lock_guard lock(mutex_);
  for (; most > 0 && !events_.empty(); --most) {
    out.push_back(std::move(events_.front()));
    events_.pop_front();
  }
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
  for (const TierRecord& record : writes_) {
    num_queued_bytes_ -= static_cast<std::int64_t>(record.payload->size());
    events_.push_back({.kind = TierEvent::Kind::kLost, .key = record.key});
  }
  writes_.clear();
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
      const Read read = reads_.front();
      reads_.pop_front();
      lock.unlock();
      post(read_one(read));
    } else if (!removals_.empty()) {  // they make room for what is written after them
      const ChainKey key = removals_.front();
      removals_.pop_front();
      lock.unlock();
      std::error_code ignored;
      if (lock_file_ >= 0) fs::remove(path_of(key), ignored);
    } else if (!writes_.empty()) {
      const TierRecord record = std::move(writes_.front());
      writes_.pop_front();
      lock.unlock();
      write_next(record);
    } else if (stopping_) {
      break;
    } else {
      lock.unlock();
      if (take_lock()) load();  // with what the other process wrote
    }
    lock.lock();
  }
  if (lock_file_ >= 0) close(lock_file_);
}

bool TierFolder::take_lock() {
  std::error_code ignored;
  fs::create_directories(folder_, ignored);
  lock_file_ = lock_of(folder_);
  const int why = errno;
  const std::lock_guard lock(mutex_);
  wants_lock_ = false;
  has_lock_ = lock_file_ >= 0;
  if (!has_lock_ && !std::exchange(said_locked_, true)) {
    log::warn("KV blocks in {} are only read: {}; they are written once the folder can be locked", folder_.string(),
              why == EWOULDBLOCK ? "another process writes there" : std::generic_category().message(why));
  } else if (has_lock_ && std::exchange(said_locked_, false)) {
    log::info("KV blocks are written to {} from now on", folder_.string());
  }
  return has_lock_;
}

// After a failure: the folder itself may be gone.
void TierFolder::drop_lock() {
  if (lock_file_ >= 0) close(lock_file_);
  lock_file_ = -1;
}

// What other models left behind goes first, the oldest folders before the others, where all together are too much.
void TierFolder::trim_other_folders() const {
  std::error_code error;
  std::multimap<fs::file_time_type, std::pair<fs::path, std::int64_t>> folders;
  std::int64_t total = 0;
  for (const fs::directory_entry& folder : fs::directory_iterator(options_.directory, error)) {
    // Only folders of this tier's own naming are touched.
    if (!folder.is_directory(error) || !folder.path().filename().string().starts_with("kv-")) continue;
    std::int64_t bytes = 0;
    for (const fs::directory_entry& file : fs::directory_iterator(folder.path(), error))
      bytes += static_cast<std::int64_t>(file.file_size(error));
    total += bytes;
    if (folder.path() != folder_) folders.emplace(folder.last_write_time(error), std::pair(folder.path(), bytes));
  }
  for (const auto& [time, folder] : folders) {
    if (total <= options_.max_bytes) return;
    const int lock_file = lock_of(folder.first);
    if (lock_file < 0) continue;  // another process serves that model
    fs::remove_all(folder.first, error);
    close(lock_file);
    total -= folder.second;
  }
}

// Finds what an earlier process left. Records lie in no order; they are reported with parents before children.
void TierFolder::load() {
  const bool owns = lock_file_ >= 0;
  if (owns) trim_other_folders();
  struct Found {
    TierRecord record;
    std::int64_t file_bytes;
  };
  std::vector<Found> found;
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(folder_, error)) {
    if (file.path().filename() == kLockFile) continue;
    std::optional<TierRecord> record;
    if (file.path().extension() == kSuffix) record = read_record_head(file.path());
    const bool ours = record && record->fingerprint == options_.fingerprint &&
                      std::cmp_equal(record->tokens.size(), options_.block_size) && file.path() == path_of(record->key);
    if (ours) {
      found.push_back({*std::move(record), static_cast<std::int64_t>(file.file_size(error))});
    } else if (owns) {
      fs::remove(file.path(), error);
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Found& a, const Found& b) { return a.record.position < b.record.position; });
  {
    const std::lock_guard lock(mutex_);
    for (Found& each : found) {
      events_.push_back({.kind = TierEvent::Kind::kFound,
                         .key = each.record.key,
                         .record = std::move(each.record),
                         .file_bytes = each.file_bytes});
    }
  }
  post({.kind = TierEvent::Kind::kLoaded});
}

void TierFolder::post(TierEvent event) {
  const bool is_awaited = event.kind == TierEvent::Kind::kRead || event.kind == TierEvent::Kind::kLoaded;
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  if (is_awaited) ready_();
}

void TierFolder::write_next(const TierRecord& record) {
  const bool owns = lock_file_ >= 0;
  const std::error_code failed =
      owns ? write_record(path_of(record.key), record) : std::make_error_code(std::errc::no_lock_available);
  {
    const std::lock_guard lock(mutex_);
    num_queued_bytes_ -= static_cast<std::int64_t>(record.payload->size());
  }
  if (failed && owns) pause_writing(failed);
  post({.kind = failed ? TierEvent::Kind::kLost : TierEvent::Kind::kWritten, .key = record.key});
}

void TierFolder::pause_writing(const std::error_code& why) {
  log::warn("KV blocks could not be written to {} ({}): nothing is kept there for {} s", folder_.string(),
            why.message(), std::chrono::duration_cast<std::chrono::seconds>(options_.pause).count());
  drop_lock();
  drop_writes();
  const std::lock_guard lock(mutex_);
  has_lock_ = false;
  paused_until_ = std::chrono::steady_clock::now() + options_.pause;
}

TierEvent TierFolder::read_one(const Read& read) const {
  const auto began = std::chrono::steady_clock::now();
  TierEvent event{.kind = TierEvent::Kind::kRead, .key = read.key};
  std::optional<TierRecord> record = read_record(path_of(read.key));
  const bool is_right =
      record && record->key == read.key && record->number == read.number && record->fingerprint == options_.fingerprint;
  if (is_right) event.record = *std::move(record);
  event.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return event;
}

fs::path TierFolder::path_of(const ChainKey& key) const {
  return folder_ / (name_of(key) + kSuffix);
}

}  // namespace quire
