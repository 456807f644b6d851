// StatusHistory: the history for the status view: a point per model and second, kept for a quarter of an hour. Any
// thread. Times are Unix seconds; a figure without a measurement in its second is NaN.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "core/engine/figures/engine_stats.h"

namespace quire {

// Counts of a histogram since the start, not cumulative over its buckets; the last bucket has no upper bound.
struct LatencyCounts {
  std::span<const double> bounds;  // seconds, ascending
  std::vector<double> counts;      // bounds.size() + 1
};

// The latency below which a share `quantile` of the counts lies, interpolated within its bucket; NaN without counts.
double latency_quantile(const LatencyCounts& latencies, double quantile);

inline constexpr std::array<double, 3> kStatusQuantiles = {0.5, 0.9, 0.99};

struct StatusPoint {
  double time = 0.0;
  double num_running = 0.0;
  double num_waiting = 0.0;
  double blocks_used = 0.0;
  double blocks_cached = 0.0;
  double prompt_tokens_s = 0.0;  // computed or found in the cache
  double output_tokens_s = 0.0;
  double hit_rate = 0.0;  // share of looked-up prompt tokens, 0 to 1
  double busy = 0.0;      // share of the time in steps, 0 to 1
  std::array<double, kStatusQuantiles.size()> first_token_s{};
  std::array<double, kStatusQuantiles.size()> between_tokens_s{};
};

class StatusHistory {
 public:
  static constexpr std::size_t kNumPoints = 900;

  struct Sample {
    std::string model;
    EngineStats stats;
    LatencyCounts first_token;
    LatencyCounts between_tokens;
  };
  // Adds a point to each sampled model and forgets models that are not sampled any more.
  void add(double time, std::vector<Sample> samples);
  // Oldest first; empty for an unknown model.
  std::vector<StatusPoint> points(const std::string& model) const;

 private:
  struct Series {
    double time = 0.0;
    Sample last;
    std::deque<StatusPoint> points;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Series> series_;
};

}  // namespace quire
