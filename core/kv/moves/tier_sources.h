// TierSources: the tiers below the pool, their content of a node, and the prices of reading it. Engine thread only.
// Prices are averages of measured times; a price that a restore refuses falls by a hundredth, so that the tier is tried
// again. An absent tier is null.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/kv/groups/record_layout.h"
#include "core/kv/moves/step_moves.h"
#include "core/kv/tiers/disk_tier.h"
#include "core/kv/tiers/host_tier.h"
#include "core/kv/tiers/shared_tier.h"

namespace quire {

// An average that follows the newest measurements; 0: none yet.
void follow(double& average, double value);

class TierSources {
 public:
  struct Source {
    RecordTier* tier;
    double read_seconds = 0.0;  // time per block; 0: unknown
    bool is_refused = false;    // the current restore finds computing cheaper
  };

  TierSources(const RecordLayout& layout, HostTier* host, DiskTier* disk, SharedTier* shared);

  HostTier* host() const { return host_; }
  DiskTier* disk() const { return disk_; }
  SharedTier* shared() const { return shared_; }
  std::vector<Source>& records() { return records_; }  // disk, then store; absent tiers are left out
  const std::vector<Source>& records() const { return records_; }
  std::uint8_t bit_of(const Source& source) const {
    return static_cast<std::uint8_t>(source.tier == shared_ ? TierKind::kShared : TierKind::kDisk);
  }
  // Whether the disk's records of earlier processes have been found.
  bool is_loaded() const { return disk_ == nullptr || disk_->is_loaded(); }

  // Whether a tier has a node with the content of its first `num_groups` groups.
  bool is_on_host(PrefixNode node, std::size_t num_groups) const;
  bool has_record(const RecordTier& tier, PrefixNode node, std::size_t num_groups) const;
  // The cheapest tier that can read the node; null if none can.
  const Source* source_of(PrefixNode node, std::size_t num_groups, bool if_cheap = false) const;
  // Whether a payload holds the content of the first `num_groups` groups.
  bool holds(std::int64_t payload_bytes, std::size_t num_groups) const {
    const auto held = layout_.groups_in(payload_bytes);
    return held && *held >= num_groups;
  }

  // Refuses record tiers that cost more than computing a block; true if host memory costs more, too.
  bool refuse_dear(double compute_seconds);
  // `source` did not answer in time: for a while nothing more is asked there.
  void refuse_slow(Source& source, double compute_seconds);
  void note_read(Source& source, double seconds, std::int64_t num_bytes);
  void note_moved(const MoveTimes& times, std::int64_t bytes_in, std::int64_t bytes_out);
  void note_forgotten();  // moving out cost more than computing again

  // The price of moving a block to the host tier and back; 0: not yet known. Nothing: there is no such tier.
  std::optional<double> swap_seconds() const;
  // Fixes that price: for a simulation, whose clock is another.
  void set_swap_seconds(double block_seconds);

 private:
  double block_seconds(double seconds, std::int64_t num_bytes) const;

  const RecordLayout layout_;
  HostTier* const host_;
  DiskTier* const disk_;
  SharedTier* const shared_;
  std::vector<Source> records_;
  double load_seconds_ = 0.0;  // time to load one block from host memory
  double offload_seconds_ = 0.0;
  bool measures_ = true;
};

}  // namespace quire
