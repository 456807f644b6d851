#include "server/ops/reports/status_history.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

namespace quire {

namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

// The counts between two samples. A histogram that was reset counts from zero.
LatencyCounts growth(const LatencyCounts& now, const LatencyCounts& before) {
  LatencyCounts grown = now;
  if (before.counts.size() != now.counts.size()) return grown;
  for (std::size_t i = 0; i < grown.counts.size(); ++i)
    grown.counts[i] = std::max(0.0, now.counts[i] - before.counts[i]);
  return grown;
}

double growth(std::uint64_t now, std::uint64_t before) {
  return now >= before ? static_cast<double>(now - before) : static_cast<double>(now);
}

double busy_ns(const EngineStats& stats) {
  const auto turn = static_cast<std::size_t>(StepPhase::kTurn);  // waiting for other models
  double sum = 0.0;
  for (std::size_t i = 0; i < stats.phase_ns.size(); ++i)
    if (i != turn) sum += static_cast<double>(stats.phase_ns[i]);
  return sum;
}

StatusPoint point_between(const StatusHistory::Sample& before, const StatusHistory::Sample& now, double time,
                          double seconds) {
  const EngineStats& stats = now.stats;
  const EngineStats& old = before.stats;
  const double queries = growth(stats.prefix_cache_queries, old.prefix_cache_queries);
  StatusPoint point{
      .time = time,
      .num_running = static_cast<double>(stats.num_running),
      .num_waiting = static_cast<double>(stats.num_waiting),
      .blocks_used = static_cast<double>(stats.num_blocks_used),
      .blocks_cached = static_cast<double>(stats.num_blocks_cached),
      .prompt_tokens_s = growth(stats.prompt_tokens, old.prompt_tokens) / seconds,
      .output_tokens_s = growth(stats.generation_tokens, old.generation_tokens) / seconds,
      .hit_rate = queries > 0.0 ? growth(stats.prefix_cache_hits, old.prefix_cache_hits) / queries : kNothing,
      .busy = std::clamp((busy_ns(stats) - busy_ns(old)) * 1e-9 / seconds, 0.0, 1.0)};
  const LatencyCounts first = growth(now.first_token, before.first_token);
  const LatencyCounts between = growth(now.between_tokens, before.between_tokens);
  for (std::size_t i = 0; i < kStatusQuantiles.size(); ++i) {
    point.first_token_s[i] = latency_quantile(first, kStatusQuantiles[i]);
    point.between_tokens_s[i] = latency_quantile(between, kStatusQuantiles[i]);
  }
  return point;
}

}  // namespace

double latency_quantile(const LatencyCounts& latencies, double quantile) {
  const double total = std::accumulate(latencies.counts.begin(), latencies.counts.end(), 0.0);
  if (total <= 0.0) return kNothing;
  double left = quantile * total;
  for (std::size_t i = 0; i < latencies.bounds.size(); ++i) {
    const double below = i == 0 ? 0.0 : latencies.bounds[i - 1];
    if (left <= latencies.counts[i]) {
      return below + (latencies.bounds[i] - below) * (latencies.counts[i] > 0.0 ? left / latencies.counts[i] : 0.0);
    }
    left -= latencies.counts[i];
  }
  return latencies.bounds.back();
}

void StatusHistory::add(double time, std::vector<Sample> samples) {
  const std::lock_guard lock(mutex_);
  std::set<std::string> sampled;
  for (Sample& sample : samples) {
    sampled.insert(sample.model);
    const auto [at, is_new] = series_.try_emplace(sample.model);
    Series& series = at->second;
    if (!is_new && time > series.time) {
      series.points.push_back(point_between(series.last, sample, time, time - series.time));
      if (series.points.size() > kNumPoints) series.points.pop_front();
    }
    series.time = time;
    series.last = std::move(sample);
  }
  std::erase_if(series_, [&](const auto& entry) { return sampled.count(entry.first) == 0; });
}

std::vector<StatusPoint> StatusHistory::points(const std::string& model) const {
  const std::lock_guard lock(mutex_);
  const auto at = series_.find(model);
  if (at == series_.end()) return {};
  return {at->second.points.begin(), at->second.points.end()};
}

}  // namespace quire
