#include "server/hub/blob_download.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "core/base/files/writing.h"
#include "core/base/log.h"

namespace quire::hub {

namespace fs = std::filesystem;

namespace {

constexpr int kMostRetries = 6;
constexpr int kMostRestarts = 2;
constexpr std::chrono::milliseconds kFirstWait{250};
constexpr std::chrono::milliseconds kLockWait{200};
// Limit of one step, so that the caller can report a stalled transfer.
constexpr std::chrono::milliseconds kReadTime{100};
constexpr std::size_t kCheckedPiece = std::size_t{4} << 20;

void wait_for(std::chrono::milliseconds time, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, time, [] { return false; });
}

tl::unexpected<Error> download_stopped() {
  return failure(ErrorKind::kUnavailable, "stopped", "stopped");
}

}  // namespace

bool Retries::wait(const Error& error, const std::stop_token& stop) {
  if (num_ == kMostRetries) return false;
  const std::chrono::milliseconds usual = kFirstWait * (1 << num_);
  ++num_;
  wait_for(error.retry_after ? std::chrono::milliseconds(*error.retry_after) : usual, stop);
  return !stop.stop_requested();
}

BlobDownload::BlobDownload(const HubClient& hub, const HubCache& cache, ModelReference model, std::string commit,
                           RemoteFile file, std::stop_token stop)
    : hub_(hub),
      cache_(cache),
      model_(std::move(model)),
      commit_(std::move(commit)),
      file_(std::move(file)),
      path_(cache.blob(model_.repository, file_.checksum).concat(".incomplete")),
      stop_(std::move(stop)) {}

BlobDownload::~BlobDownload() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

tl::unexpected<Error> BlobDownload::file_error(const char* what) const {
  const bool is_full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
  return failure(is_full ? ErrorKind::kNoMemory : ErrorKind::kInternal,
                 fmt::format("cannot {} {}: {}{}", what, path_.string(), describe_write_error(errno),
                             is_full ? "; 'quire models remove' makes room, HF_HUB_CACHE names another folder" : ""),
                 is_full ? "disk_full" : "cache_failed");
}

Result<bool> BlobDownload::step() {
  if (stop_.stop_requested()) return download_stopped();
  Result<void> done;
  switch (phase_) {
    case Phase::kLocking:
    case Phase::kWaiting: done = take_lock(); break;
    case Phase::kChecking: done = check_more(); break;
    case Phase::kConnecting: done = connect(); break;
    case Phase::kReading: done = read_piece(); break;
    case Phase::kDone: break;
  }
  if (!done) return tl::make_unexpected(done.error());
  return phase_ == Phase::kDone;
}

Result<void> BlobDownload::take_lock() {
  if (cache_.has_blob(model_.repository, file_)) {
    num_bytes_ = file_.size;
    phase_ = Phase::kDone;
    return {};
  }
  const auto taken = lock_.try_take(cache_.blob_lock(model_.repository, file_.checksum), CacheLock::Mode::kExclusive);
  if (!taken) return tl::make_unexpected(taken.error());
  if (!*taken) {
    phase_ = Phase::kWaiting;
    wait_for(kLockWait, stop_);
    return {};
  }
  if (cache_.has_blob(model_.repository, file_)) return {};  // the next step sees it
  std::error_code failed;
  fs::create_directories(path_.parent_path(), failed);
  descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  struct stat state {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &state) != 0) return file_error("open");
  num_present_ = state.st_size;
  if (num_present_ > file_.size) {
    if (::ftruncate(descriptor_, 0) != 0) return file_error("empty");
    num_present_ = 0;
  }
  checksum_.emplace(file_.checksum, file_.size);
  phase_ = Phase::kChecking;
  return {};
}

// Adds the bytes that an earlier process left to the checksum.
Result<void> BlobDownload::check_more() {
  if (num_bytes_ == num_present_) {
    if (num_bytes_ == file_.size) return complete();
    phase_ = Phase::kConnecting;
    return {};
  }
  std::vector<char> bytes(std::min<std::size_t>(kCheckedPiece, static_cast<std::size_t>(num_present_ - num_bytes_)));
  const ssize_t count = ::pread(descriptor_, bytes.data(), bytes.size(), num_bytes_);
  if (count < 0) return file_error("read");
  if (count == 0) return start_over("the incomplete file became shorter");
  checksum_->add({bytes.data(), static_cast<std::size_t>(count)});
  num_bytes_ += count;
  return {};
}

Result<void> BlobDownload::connect() {
  auto opened = hub_.open(model_, commit_, file_, num_bytes_);
  if (!opened && opened.error().code == kRangeCode) return start_over(opened.error().message);
  if (!opened) return retry(opened.error());
  source_ = *std::move(opened);
  if (source_.offset != num_bytes_) {
    // The server sends the whole file: bytes already on the disk are skipped.
    log::debug("{}: the server sends the file from its beginning", file_.path);
  }
  phase_ = Phase::kReading;
  return {};
}

Result<void> BlobDownload::read_piece() {
  const auto arrived = source_.reader->read_within(kReadTime);
  if (arrived && !*arrived) return {};
  const auto piece = arrived ? Result<std::string_view>(**arrived) : tl::make_unexpected(arrived.error());
  if (!piece) {
    return retry(Error{ErrorKind::kUnavailable, fmt::format("{}: {}", file_.path, piece.error().message),
                       kTransientCode, "", std::nullopt});
  }
  if (piece->empty()) {
    return retry(Error{ErrorKind::kUnavailable, fmt::format("{}: the transfer ended early", file_.path), kTransientCode,
                       "", std::nullopt});
  }
  const auto skipped = std::min(static_cast<std::int64_t>(piece->size()), num_bytes_ - source_.offset);
  const std::string_view fresh = piece->substr(static_cast<std::size_t>(skipped));
  source_.offset += static_cast<std::int64_t>(piece->size());
  if (fresh.empty()) return {};
  retries_.reset();
  if (num_bytes_ + static_cast<std::int64_t>(fresh.size()) > file_.size) return start_over("it is longer than listed");
  if (auto stored = store(fresh); !stored) return stored;
  return num_bytes_ == file_.size ? complete() : Result<void>();
}

Result<void> BlobDownload::store(std::string_view bytes) {
  checksum_->add(bytes);
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), num_bytes_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error("write");
    num_bytes_ += count;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

Result<void> BlobDownload::complete() {
  const std::string found = checksum_->finish();
  if (found != file_.checksum) {
    return start_over(fmt::format("its checksum is {}, not {}", found, file_.checksum));
  }
  source_.reader.reset();
  std::error_code failed;
  if (::fdatasync(descriptor_) != 0) return file_error("write");
  fs::rename(path_, cache_.blob(model_.repository, file_.checksum), failed);
  if (failed) {
    errno = failed.value();
    return file_error("rename");
  }
  ::close(descriptor_);
  descriptor_ = -1;
  lock_.release();
  phase_ = Phase::kDone;
  return {};
}

Result<void> BlobDownload::start_over(const std::string& why) {
  source_.reader.reset();
  if (::ftruncate(descriptor_, 0) != 0) return file_error("empty");
  num_bytes_ = 0;
  num_present_ = 0;
  if (num_restarts_ == kMostRestarts) {
    return failure(
        ErrorKind::kInternal,
        fmt::format("'{}' arrives damaged: {}; another mirror (HF_ENDPOINT) may have it right", file_.path, why),
        "checksum_mismatch");
  }
  ++num_restarts_;
  log::warn("{} is downloaded again: {}", file_.path, why);
  checksum_.emplace(file_.checksum, file_.size);
  phase_ = Phase::kConnecting;
  return {};
}

Result<void> BlobDownload::retry(const Error& error) {
  source_.reader.reset();
  if (!is_transient(error)) return tl::make_unexpected(error);
  if (stop_.stop_requested()) return download_stopped();
  log::debug("{}; trying again", error.message);
  if (!retries_.wait(error, stop_)) {
    return stop_.stop_requested() ? Result<void>(download_stopped()) : Result<void>(tl::make_unexpected(error));
  }
  phase_ = Phase::kConnecting;
  return {};
}

}  // namespace quire::hub
