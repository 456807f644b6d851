#include "core/kv/moves/tier_sources.h"

#include <algorithm>

namespace quire {

namespace {

constexpr double kNewest = 0.2;    // share of the newest measurement
constexpr double kRefused = 0.99;  // share that is left of a price that was too high

}  // namespace

void follow(double& average, double value) {
  average = average == 0.0 ? value : average + kNewest * (value - average);
}

TierSources::TierSources(const RecordLayout& layout, HostTier* host, DiskTier* disk, SharedTier* shared)
    : layout_(layout), host_(host), disk_(disk), shared_(shared) {
  if (disk_ != nullptr) records_.push_back({disk_});
  if (shared_ != nullptr) records_.push_back({shared_});
}

bool TierSources::is_on_host(PrefixNode node, std::size_t num_groups) const {
  return host_ != nullptr && host_->contains(node) && holds(std::ssize(*host_->payload(node)), num_groups);
}

bool TierSources::has_record(const RecordTier& tier, PrefixNode node, std::size_t num_groups) const {
  return tier.is_readable(node) && holds(tier.payload_bytes(node), num_groups);
}

const TierSources::Source* TierSources::source_of(PrefixNode node, std::size_t num_groups, bool if_cheap) const {
  const Source* cheapest = nullptr;
  for (const Source& source : records_) {
    if ((if_cheap && source.is_refused) || !has_record(*source.tier, node, num_groups)) continue;
    if (cheapest == nullptr || source.read_seconds < cheapest->read_seconds) cheapest = &source;
  }
  return cheapest;
}

// An empty payload, of a block whose layers all have a window, gives no price.
double TierSources::block_seconds(double seconds, std::int64_t num_bytes) const {
  const std::int64_t unit = layout_.block_bytes() > 0 ? layout_.block_bytes() : layout_.most_bytes();
  return num_bytes == 0 ? 0.0 : seconds * static_cast<double>(unit) / static_cast<double>(num_bytes);
}

bool TierSources::refuse_dear(double compute_seconds) {
  const bool refuses_host = compute_seconds > 0.0 && load_seconds_ > compute_seconds;
  if (refuses_host && measures_) load_seconds_ *= kRefused;
  for (Source& source : records_) {
    source.is_refused = compute_seconds > 0.0 && source.read_seconds > compute_seconds;
    if (source.is_refused) source.read_seconds *= kRefused;
  }
  return refuses_host;
}

void TierSources::refuse_slow(Source& source, double compute_seconds) {
  source.read_seconds = 2.0 * std::max(source.read_seconds, compute_seconds);
}

void TierSources::note_read(Source& source, double seconds, std::int64_t num_bytes) {
  if (num_bytes > 0) follow(source.read_seconds, block_seconds(seconds, num_bytes));
}

void TierSources::note_moved(const MoveTimes& times, std::int64_t bytes_in, std::int64_t bytes_out) {
  if (!measures_) return;
  if (bytes_in > 0 && times.load_s > 0.0) follow(load_seconds_, block_seconds(times.load_s, bytes_in));
  if (bytes_out > 0 && times.offload_s > 0.0) follow(offload_seconds_, block_seconds(times.offload_s, bytes_out));
}

void TierSources::note_forgotten() {
  if (measures_) offload_seconds_ *= kRefused;
}

std::optional<double> TierSources::swap_seconds() const {
  if (host_ == nullptr) return std::nullopt;
  return offload_seconds_ + load_seconds_;
}

void TierSources::set_swap_seconds(double block_seconds) {
  load_seconds_ = offload_seconds_ = block_seconds / 2.0;
  measures_ = false;
}

}  // namespace quire
