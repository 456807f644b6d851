#include "server/hub/pull.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/log.h"
#include "server/hub/file_choice.h"

namespace quire::hub {

namespace fs = std::filesystem;

namespace {

// Space left free on the disk beside the model.
constexpr std::int64_t kSpareBytes = std::int64_t{16} << 20;

PullProgress::Phase phase_of(BlobDownload::Phase phase) {
  switch (phase) {
    case BlobDownload::Phase::kWaiting: return PullProgress::Phase::kWaiting;
    case BlobDownload::Phase::kChecking: return PullProgress::Phase::kChecking;
    default: return PullProgress::Phase::kDownloading;
  }
}

}  // namespace

std::string size_text(std::int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024.0 && unit + 1 < kUnits.size(); ++unit)
    value /= 1024.0;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

Pull::Pull(const HubEnvironment& environment, ModelReference model, std::int64_t max_bytes, std::stop_token stop)
    : offline_(environment.offline),
      cache_(environment.cache),
      stop_(std::move(stop)),
      hub_(environment, stop_),
      model_(std::move(model)),
      max_bytes_(max_bytes) {}

Pull::~Pull() = default;

Result<bool> Pull::step() {
  if (progress_.phase == PullProgress::Phase::kDone) return true;
  if (stop_.stop_requested()) {
    return failure(
        ErrorKind::kUnavailable,
        fmt::format("the download of '{}' was stopped: the next one continues where it ended", model_.text()),
        "pull_stopped");
  }
  if (offline_) return find_offline();
  return commit_.empty() ? list() : download();
}

Result<bool> Pull::find_offline() {
  auto found = cache_.find(model_);
  if (!found) {
    Error error = found.error();
    error.message += "; HF_HUB_OFFLINE is set: unset it to download the model";
    return tl::make_unexpected(error);
  }
  result_ = *std::move(found);
  progress_.phase = PullProgress::Phase::kDone;
  return true;
}

Result<bool> Pull::list() {
  auto revision = hub_.list(model_);
  if (!revision && is_transient(revision.error()) && !stop_.stop_requested()) {
    // Without the hub, an earlier download is still valid.
    if (auto found = cache_.find(model_)) {
      log::warn("{}; {} is used as it was downloaded before", revision.error().message, model_.text());
      result_ = *std::move(found);
      progress_.phase = PullProgress::Phase::kDone;
      return true;
    }
    if (retries_.wait(revision.error(), stop_)) return false;
  }
  if (!revision) return tl::make_unexpected(revision.error());
  const auto taken = take_files(*std::move(revision));
  if (!taken && !(is_transient(taken.error()) && retries_.wait(taken.error(), stop_))) {
    return tl::make_unexpected(taken.error());
  }
  return false;
}

Result<void> Pull::take_files(RemoteRevision revision) {
  std::vector<std::string> paths;
  for (const RemoteFile& file : revision.files)
    paths.push_back(file.path);
  auto chosen = choose_files(paths, model_.wanted);
  if (!chosen) {
    chosen.error().message = fmt::format("'{}': {}", model_.repository, chosen.error().message);
    return tl::make_unexpected(chosen.error());
  }
  std::error_code failed;
  fs::create_directories(cache_.folder(), failed);
  if (failed) {
    return failure(ErrorKind::kInternal,
                   fmt::format("cannot create {}: {}; HF_HUB_CACHE names another folder", cache_.folder().string(),
                               failed.message()),
                   "cache_failed");
  }
  const auto taken = lock_.try_take(cache_.repository_lock(model_.repository), CacheLock::Mode::kShared);
  if (!taken) return tl::make_unexpected(taken.error());
  if (!*taken) {
    return failure(ErrorKind::kConflict, fmt::format("'{}' is being deleted: pull it after that", model_.repository),
                   "model_busy");
  }
  files_.clear();
  progress_.size = 0;
  for (const std::string& path : chosen->paths) {
    const auto listed = std::find_if(revision.files.begin(), revision.files.end(),
                                     [&path](const RemoteFile& file) { return file.path == path; });
    auto file = hub_.describe(model_, revision.commit, *listed);
    if (!file) return tl::make_unexpected(file.error());
    progress_.size += file->size;
    files_.push_back(*std::move(file));
  }
  served_ = chosen->model;
  progress_.num_files = files_.size();
  if (auto space = check_space(); !space) return space;
  commit_ = std::move(revision.commit);
  return {};
}

Result<void> Pull::check_space() const {
  if (max_bytes_ > 0 && progress_.size > max_bytes_) {
    return failure(ErrorKind::kForbidden,
                   fmt::format("'{}' has {}, and server.pull.max_bytes is {}", model_.text(), size_text(progress_.size),
                               size_text(max_bytes_)),
                   "model_too_large");
  }
  std::int64_t missing = 0;
  for (const RemoteFile& file : files_) {
    if (cache_.has_blob(model_.repository, file)) continue;
    std::error_code absent;
    const auto partial = fs::file_size(cache_.blob(model_.repository, file.checksum).concat(".incomplete"), absent);
    missing += file.size - (absent ? 0 : std::min(file.size, static_cast<std::int64_t>(partial)));
  }
  std::error_code failed;
  const auto space = fs::space(cache_.folder(), failed);
  const auto left = static_cast<std::int64_t>(space.available) - kSpareBytes;
  if (failed || missing == 0 || missing <= left) return {};
  return failure(
      ErrorKind::kNoMemory,
      fmt::format("'{}' needs {} more on the disk of {}, which has {} free; 'quire models remove' makes room, "
                  "HF_HUB_CACHE names another folder",
                  model_.text(), size_text(missing), cache_.folder().string(),
                  size_text(std::max(left, std::int64_t{0}))),
      "disk_full");
}

void Pull::note_file() {
  const RemoteFile& file = files_[next_];
  progress_.phase = phase_of(blob_->phase());
  progress_.file = file.path;
  progress_.checksum = file.checksum;
  progress_.file_bytes = blob_->num_bytes();
  progress_.file_size = file.size;
  progress_.num_bytes = bytes_before_ + blob_->num_bytes();
  progress_.file_number = next_ + 1;
}

Result<bool> Pull::download() {
  if (next_ == files_.size()) {
    if (auto done = finish(); !done) return tl::make_unexpected(done.error());
    return true;
  }
  if (!blob_) blob_ = std::make_unique<BlobDownload>(hub_, cache_, model_, commit_, files_[next_], stop_);
  const auto done = blob_->step();
  note_file();
  if (!done) return tl::make_unexpected(done.error());
  if (*done) {
    bytes_before_ += files_[next_].size;
    blob_.reset();
    ++next_;
  }
  return false;
}

Result<void> Pull::finish() {
  for (const RemoteFile& file : files_) {
    if (auto linked = cache_.link(model_.repository, commit_, file); !linked) return linked;
  }
  if (auto set = cache_.set_revision(model_, commit_); !set) return set;
  const fs::path snapshot = cache_.snapshot(model_.repository, commit_);
  result_ = {model_, commit_, served_.empty() ? snapshot : snapshot / served_, progress_.size};
  progress_.phase = PullProgress::Phase::kDone;
  return {};
}

}  // namespace quire::hub
