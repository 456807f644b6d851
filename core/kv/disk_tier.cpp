#include "core/kv/disk_tier.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <system_error>
#include <utility>

#include "core/base/log.h"
#include "core/base/result.h"

namespace quire {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSuffix = ".kv";

// What other models left behind goes first, the oldest folders before the others, where all together are too much.
void trim_other_folders(const fs::path& directory, const fs::path& own, std::int64_t max_bytes) {
  std::error_code error;
  std::multimap<fs::file_time_type, std::pair<fs::path, std::int64_t>> folders;
  std::int64_t total = 0;
  for (const fs::directory_entry& folder : fs::directory_iterator(directory, error)) {
    // Only folders of this tier's own naming are touched.
    if (!folder.is_directory(error) || !folder.path().filename().string().starts_with("kv-")) continue;
    std::int64_t bytes = 0;
    for (const fs::directory_entry& file : fs::directory_iterator(folder.path(), error)) {
      bytes += static_cast<std::int64_t>(file.file_size(error));
    }
    total += bytes;
    if (folder.path() != own) folders.emplace(folder.last_write_time(error), std::pair(folder.path(), bytes));
  }
  for (const auto& [time, folder] : folders) {
    if (total <= max_bytes) return;
    fs::remove_all(folder.first, error);
    total -= folder.second;
  }
}

}  // namespace

DiskTier::DiskTier(const DiskTierOptions& options, std::function<void()> ready)
    : options_(options),
      folder_(options.directory / fmt::format("kv-{:016x}", options.fingerprint)),
      ready_(std::move(ready)),
      index_([this](TierId id) { left_.push_back(id); }) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    throw StartupError(
        fmt::format("kv_cache.disk_tier_path: {} cannot be made: {}", folder_.string(), error.message()));
  }
  thread_ = std::thread([this] { run(); });
}

DiskTier::~DiskTier() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

TierId DiskTier::find(TierId parent, const std::string& salt, std::span<const TokenId> tokens) {
  const std::lock_guard lock(mutex_);
  const TierIndex::Node* const node = index_.find(parent, salt, tokens);
  return node != nullptr && node->num_bytes > 0 ? node->id : kNoTierId;  // 0: still being written
}

bool DiskTier::contains(TierId record) const {
  const std::lock_guard lock(mutex_);
  return index_.contains(record);
}

TierId DiskTier::offer(TierId parent, const std::string& salt, std::span<const TokenId> tokens,
                       std::span<const std::byte> payload) {
  TierId id = kNoTierId;
  {
    const std::lock_guard lock(mutex_);
    if (!is_loaded_) return kNoTierId;
    if (const TierIndex::Node* known = index_.find(parent, salt, tokens)) return known->id;
    const auto bytes = static_cast<std::int64_t>(payload.size());
    if (num_queued_bytes_ + bytes > options_.max_queued_bytes) return kNoTierId;
    if (parent != kNoTierId && !index_.contains(parent)) return kNoTierId;
    id = next_id_++;
    index_.add(id, parent, salt, tokens);
    num_queued_bytes_ += bytes;
    writes_.push_back(
        {options_.fingerprint, id, parent, salt, {tokens.begin(), tokens.end()}, {payload.begin(), payload.end()}});
  }
  changed_.notify_all();
  return id;
}

bool DiskTier::is_loaded() const {
  const std::lock_guard lock(mutex_);
  return is_loaded_;
}

std::uint64_t DiskTier::fetch(std::vector<TierId> records) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = next_fetch_++;
    fetches_.push_back({number, std::move(records)});
  }
  changed_.notify_all();
  return number;
}

std::vector<DiskTier::Fetched> DiskTier::take_fetched() {
  const std::lock_guard lock(mutex_);
  return std::exchange(fetched_, {});
}

void DiskTier::wait_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !is_busy_ && fetches_.empty() && writes_.empty(); });
}

std::int64_t DiskTier::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return index_.num_bytes();
}

std::int64_t DiskTier::num_records() const {
  const std::lock_guard lock(mutex_);
  return index_.size();
}

void DiskTier::run() {
  pthread_setname_np(pthread_self(), "kv-disk");
  load();
  std::unique_lock lock(mutex_);
  while (true) {
    is_busy_ = false;
    changed_.notify_all();
    changed_.wait(lock, [this] { return stopping_ || !fetches_.empty() || !writes_.empty(); });
    is_busy_ = true;
    if (!fetches_.empty()) {
      const Fetch fetch = std::move(fetches_.front());
      fetches_.pop_front();
      lock.unlock();
      Fetched fetched = read(fetch);
      lock.lock();
      fetched_.push_back(std::move(fetched));
      lock.unlock();
      ready_();
    } else if (!writes_.empty()) {
      const TierRecord record = std::move(writes_.front());
      writes_.pop_front();
      lock.unlock();
      write(record);
    } else {
      return;
    }
    lock.lock();
  }
}

// Finds what an earlier process left. Records come in no order; one whose predecessor is gone is of no use.
void DiskTier::load() {
  trim_other_folders(options_.directory, folder_, options_.max_bytes);
  std::map<TierId, std::pair<TierRecord, std::int64_t>> found;  // by id: a predecessor's is always smaller
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(folder_, error)) {
    std::optional<TierRecord> record;
    if (file.path().extension() == kSuffix) record = read_record_head(file.path());
    const bool ours = record && record->fingerprint == options_.fingerprint && record->parent < record->id &&
                      std::cmp_equal(record->tokens.size(), options_.block_size) && file.path() == path_of(record->id);
    if (ours) {
      const TierId id = record->id;
      found.emplace(id, std::pair(*std::move(record), static_cast<std::int64_t>(file.file_size(error))));
    } else {
      fs::remove(file.path(), error);
    }
  }
  std::unique_lock lock(mutex_);
  is_loaded_ = true;
  if (!found.empty()) next_id_ = found.rbegin()->first + 1;
  for (const auto& [id, each] : found) {
    const auto& [record, bytes] = each;
    const bool is_reachable = record.parent == kNoTierId || index_.contains(record.parent);
    if (!is_reachable || index_.find(record.parent, record.salt, record.tokens) != nullptr) {
      left_.push_back(id);
      continue;
    }
    index_.set_bytes(index_.add(id, record.parent, record.salt, record.tokens), bytes);
  }
  index_.make_room(0, options_.max_bytes);
  lock.unlock();
  remove_files();
}

// Without the lock: a file system may take its time, and the engine asks for the index meanwhile.
void DiskTier::remove_files() {
  std::vector<TierId> removed;
  {
    const std::lock_guard lock(mutex_);
    removed.swap(left_);
  }
  std::error_code ignored;
  for (const TierId id : removed)
    fs::remove(path_of(id), ignored);
}

void DiskTier::write(const TierRecord& record) {
  const std::int64_t file_bytes = record_bytes(record);
  {
    const std::lock_guard lock(mutex_);
    num_queued_bytes_ -= static_cast<std::int64_t>(record.payload.size());
    if (!index_.make_room(file_bytes, options_.max_bytes) && index_.contains(record.id)) index_.remove(record.id);
  }
  remove_files();
  {
    const std::lock_guard lock(mutex_);
    if (!index_.contains(record.id)) return;  // or its predecessor was removed meanwhile
  }
  const bool written = write_record(path_of(record.id), record);
  if (!written) log::warn("the KV disk tier could not write to {}", folder_.string());
  const std::lock_guard lock(mutex_);
  TierIndex::Node* const node = index_.find(record.id);
  if (node == nullptr) {
    std::error_code error;
    fs::remove(path_of(record.id), error);
  } else if (!written) {
    index_.remove(record.id);
  } else {
    index_.set_bytes(*node, file_bytes);
  }
}

DiskTier::Fetched DiskTier::read(const Fetch& fetch) {
  const auto began = std::chrono::steady_clock::now();
  Fetched fetched{fetch.number, {}, 0.0};
  for (const TierId id : fetch.records) {
    std::optional<TierRecord> record = read_record(path_of(id));
    const std::lock_guard lock(mutex_);
    const TierIndex::Node* const node = index_.find(id);
    if (node == nullptr) break;
    const bool is_right = record && record->id == id && record->parent == node->parent &&
                          record->tokens == node->tokens && record->fingerprint == options_.fingerprint;
    if (!is_right) {
      log::warn("the KV disk tier dropped a damaged record of {}", folder_.string());
      index_.remove(id);
      break;
    }
    fetched.payloads.push_back(std::move(record->payload));
  }
  remove_files();
  fetched.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return fetched;
}

fs::path DiskTier::path_of(TierId id) const {
  return folder_ / fmt::format("{:016x}{}", id, kSuffix);
}

}  // namespace quire
