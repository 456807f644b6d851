#include "core/engine/tiers.h"

namespace quire {

namespace {

// Blocks offered to the disk between two looks for new requests: a few milliseconds.
constexpr std::int64_t kBlocksPersistedAtOnce = 64;

KvBytes bytes_of(Executor& executor) {
  const auto bytes = [](const KvStorage* storage) { return storage == nullptr ? 0 : storage->block_bytes(); };
  const StateStorage* const states = executor.states();
  return {.block = static_cast<std::int64_t>(bytes(&executor.storage())),
          .part = static_cast<std::int64_t>(bytes(executor.window_storage())),
          .state = states == nullptr ? 0 : static_cast<std::int64_t>(states->state_bytes())};
}

}  // namespace

Tiers::Tiers(KvCache& kv, Scheduler& scheduler, Executor& executor, const TiersOptions& options)
    : scheduler_(scheduler),
      host_bytes_(options.kv_cache.host_tier_bytes),
      disk_bytes_(options.kv_cache.disk_tier_bytes) {
  if (!kv.prefix_caching()) return;
  if (host_bytes_ > 0) host_ = std::make_unique<HostTier>(host_bytes_);
  if (!options.kv_cache.disk_tier_path.empty()) {
    disk_ = std::make_unique<DiskTier>(DiskTierOptions{.directory = options.kv_cache.disk_tier_path,
                                                       .max_bytes = disk_bytes_,
                                                       .fingerprint = options.fingerprint,
                                                       .block_size = kv.block_size()},
                                       options.wake);
  }
  const KvBytes bytes = bytes_of(executor);
  if (options.shared_store) {
    shared_ = std::make_unique<SharedTier>(SharedTierOptions{.fingerprint = options.fingerprint,
                                                             .block_size = kv.block_size(),
                                                             .payload_bytes = RecordLayout(kv.beside(), bytes).sizes()},
                                           options.shared_store(options.wake));
  }
  if (host_ != nullptr || disk_ != nullptr || shared_ != nullptr || options.keeps_slots)
    lower_ = std::make_unique<LowerTier>(kv, bytes, host_.get(), disk_.get(), LowerTierOptions{}, shared_.get());
}

void Tiers::restore(Sequence& sequence, Clock::time_point now) {
  if (lower_ == nullptr || sequence.max_cached_tokens <= 0) return;
  const auto& published = sequence.request->transfer.has;
  const bool is_fetch = published && lower_->is_prefix(*published, sequence.table, sequence.tokens);
  lower_->restore(sequence.table, sequence.tokens, sequence.prefix_limit(), scheduler_.most_restore_seconds(sequence),
                  now, is_fetch);
}

void Tiers::begin_step(Clock::time_point now) {
  if (lower_ == nullptr) return;
  for (Sequence* sequence : scheduler_.next_to_start())
    restore(*sequence, now);
  lower_->begin_step(now);
}

bool Tiers::persist_some() {
  return lower_ != nullptr && lower_->has_disk_room() && lower_->persist_some(kBlocksPersistedAtOnce);
}

void Tiers::report(EngineStats& stats) const {
  if (lower_ == nullptr) return;
  stats.num_blocks_restored = lower_->num_restored();
  if (host_ != nullptr) {
    stats.host_tier_bytes = host_bytes_;
    stats.host_tier_bytes_used = host_->num_bytes();
  }
  if (disk_ != nullptr) {
    stats.disk_tier_bytes = disk_bytes_;
    stats.disk_tier_bytes_used = disk_->num_bytes();
  }
  if (shared_ != nullptr) {
    stats.has_shared_store = 1;
    stats.shared_store = shared_->stats();
    stats.shared_store.num_waiting += lower_->num_to_publish();
  }
}

}  // namespace quire
