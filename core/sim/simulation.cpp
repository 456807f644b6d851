#include "core/sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "core/sim/replica.h"

namespace quire::sim {

namespace {

constexpr std::size_t kMaxTimelinePoints = 400;
// Most load, relative to the least loaded replica's, that a cached prefix justifies.
constexpr double kMaxImbalance = 1.5;

// Points at equal distances; if there are too many, every second point is dropped and the distance doubles.
class Timeline {
 public:
  explicit Timeline(std::vector<TimelinePoint>& points) : points_(points) {}

  void observe(double time_s, const std::vector<std::unique_ptr<Replica>>& replicas) {
    if (time_s < next_s_) return;
    TimelinePoint point{time_s, 0.0, 0.0, 0.0, 0.0};
    double num_blocks = 0.0;
    for (const auto& replica : replicas) {
      const BlockPool& pool = replica->kv().pool();
      num_blocks += static_cast<double>(pool.num_blocks());
      point.blocks_used += static_cast<double>(pool.num_referenced());
      point.blocks_cached += static_cast<double>(pool.num_cached());
      point.num_running += static_cast<double>(replica->scheduler().num_running());
      point.num_waiting += static_cast<double>(replica->scheduler().num_waiting());
    }
    point.blocks_used /= num_blocks;
    point.blocks_cached /= num_blocks;
    points_.push_back(point);
    if (points_.size() > kMaxTimelinePoints) thin_out();
    next_s_ = time_s + distance_s_;
  }

  double next_s() const { return next_s_; }  // when the next point is due

 private:
  void thin_out() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < points_.size(); i += 2)
      points_[kept++] = points_[i];
    points_.resize(kept);
    distance_s_ *= 2.0;
  }

  std::vector<TimelinePoint>& points_;
  double distance_s_ = 0.01;
  double next_s_ = 0.0;
};

class Fleet {
  using Replicas = std::span<const std::unique_ptr<Replica>>;

 public:
  Fleet(const SimOptions& options, std::int64_t num_blocks, SimReport& report)
      : options_(options), store_(options.shared_blocks), timeline_(report.timeline) {
    for (std::int32_t i = 0; i < options.num_replicas; ++i) {
      replicas_.push_back(
          std::make_unique<Replica>(options, i, num_blocks, report, options.shared_blocks > 0 ? &store_ : nullptr));
    }
  }

  void arrive(const TraceRequest& request, std::int64_t number) {
    run_until(request.arrival_s);
    timeline_.observe(request.arrival_s, replicas_);
    const bool is_split = options_.num_prefill_replicas > 0;
    const Replicas first = is_split ? prefilling() : Replicas(replicas_);
    choose(request, number, first)
        .arrive(request, number, request.arrival_s, is_split ? Stage::kPrompt : Stage::kWhole);
  }

  void run_to_end(SimReport& report) {
    run_until(std::numeric_limits<double>::infinity());
    timeline_.observe(report.duration_s, replicas_);
    for (const auto& replica : replicas_) {
      report.num_blocks += replica->kv().pool().num_blocks();
      report.peak_blocks += replica->kv().pool().peak_referenced();
    }
  }

 private:
  // Adds each point of the timeline when it is due, so that a backlog is seen between arrivals and after the last one.
  void run_until(double time_s) {
    const auto has_work = [](const auto& replica) { return replica->has_work(); };
    while (timeline_.next_s() < time_s && std::any_of(replicas_.begin(), replicas_.end(), has_work)) {
      const double due_s = timeline_.next_s();
      advance(due_s);
      timeline_.observe(due_s, replicas_);
    }
    advance(time_s);
  }

  std::size_t num_prefilling() const { return static_cast<std::size_t>(options_.num_prefill_replicas); }
  Replicas prefilling() const { return Replicas(replicas_).first(num_prefilling()); }
  // Advances all replicas; prompts that the prefill replicas finished arrive at the others.
  void advance(double time_s) {
    if (options_.steps_at_once > 0) return advance_together(time_s);
    const Replicas others = Replicas(replicas_).subspan(num_prefilling());
    for (const auto& replica : prefilling())
      replica->run_until(time_s);
    for (const HandOver& each : take_handed()) {
      for (const auto& replica : others)
        replica->run_until(each.time_s);
      choose(each.request, each.number, others).arrive(each.request, each.number, each.time_s, Stage::kAnswer);
    }
    for (const auto& replica : others)
      replica->run_until(time_s);
  }

  std::vector<HandOver> take_handed() {
    std::vector<HandOver> handed;
    for (const auto& replica : prefilling())
      std::ranges::move(replica->take_handed(), std::back_inserter(handed));
    std::ranges::stable_sort(handed, {}, &HandOver::time_s);
    return handed;
  }

  // Advances event by event: a replica's speed changes with the start and end of each step of the others.
  void advance_together(double time_s) {
    while (true) {
      double now_s = std::numeric_limits<double>::infinity();
      for (const auto& replica : replicas_)
        now_s = std::min(now_s, replica->next_event_s());
      if (now_s >= time_s) return;
      for (const auto& replica : replicas_)
        replica->run_until(now_s);
      for (const HandOver& each : take_handed()) {
        const Replicas others = Replicas(replicas_).subspan(num_prefilling());
        choose(each.request, each.number, others).arrive(each.request, each.number, now_s, Stage::kAnswer);
      }
      for (const auto& replica : replicas_)
        replica->begin_at(now_s);
      const auto num_computing =
          std::ranges::count_if(replicas_, [](const auto& each) { return each->is_computing(); });
      const double slowdown = static_cast<double>(num_computing) / static_cast<double>(options_.steps_at_once);
      for (const auto& replica : replicas_)
        replica->slow_down(now_s, std::max(1.0, slowdown));
    }
  }

  Replica& choose(const TraceRequest& request, std::int64_t number, Replicas among) const {
    if (options_.route == Route::kRoundRobin || among.size() == 1) {
      return *among[static_cast<std::size_t>(number) % among.size()];
    }
    const auto less_loaded = [](const auto& a, const auto& b) { return a->load() < b->load(); };
    Replica& least = **std::min_element(among.begin(), among.end(), less_loaded);
    if (options_.route == Route::kLeastLoaded) return least;
    const std::vector<TokenId> prompt = prompt_tokens(request, number);
    Replica* best = &least;
    std::int64_t most_cached = least.num_tokens_cached(prompt);
    const double bound = kMaxImbalance * static_cast<double>(least.load() + request.num_prompt_tokens);
    for (const auto& replica : among) {
      const std::int64_t num_cached = replica->num_tokens_cached(prompt);
      if (num_cached <= most_cached || static_cast<double>(replica->load()) > bound) continue;
      most_cached = num_cached;
      best = replica.get();
    }
    return *best;
  }

  const SimOptions& options_;
  SimStore store_;
  Timeline timeline_;
  std::vector<std::unique_ptr<Replica>> replicas_;
};

std::optional<Error> nonsense(const SimOptions& options) {
  const auto refuse = [](const char* what) { return invalid(what).value(); };
  if (options.block_size < 1 || options.num_blocks < 0)
    return refuse("simulate: block_size and num_blocks must be positive");
  if (options.tier_blocks < 0 || options.tier_block_ms < 0.0) {
    return refuse("simulate: tier_blocks and tier_block_ms must not be negative");
  }
  if (options.shared_blocks < 0 || options.shared_block_ms < 0.0 || options.shared_latency_ms < 0.0)
    return refuse("simulate: shared_blocks, shared_block_ms and shared_latency_ms must not be negative");
  const bool has_tier = options.tier_blocks > 0 || options.shared_blocks > 0;
  if (options.num_states < 0 || (options.num_states > 0 && has_tier))
    return refuse(
        "simulate: num_states must not be negative, and neither a tier below nor a shared store keeps states");
  if (options.num_window_parts < 0 || options.window_tokens < 0)
    return refuse("simulate: window_tokens and num_window_parts must not be negative");
  if (options.num_window_parts > 0) {
    if (has_tier)
      return refuse("simulate: with tier_blocks or shared_blocks no window parts are kept; leave one of them out");
    const std::int64_t least = WindowPool::least_parts(options.window_tokens, options.block_size);
    if (options.window_tokens == 0 || options.num_window_parts < least)
      return invalid(fmt::format("simulate: num_window_parts must be at least {}, and window_tokens be given", least))
          .value();
  }
  if (options.max_drafts < 0 || options.max_drafts > kMostDraftsOfSequence || options.draft_acceptance < 0.0 ||
      options.draft_acceptance > 1.0)
    return refuse("simulate: max_drafts must be from 0 to 32, and draft_acceptance from 0 to 1");
  if (options.num_replicas < 1) return refuse("simulate: at least one replica is needed");
  if (options.steps_at_once < 0) return refuse("simulate: steps_at_once must not be negative");
  if (options.num_prefill_replicas < 0 || options.num_prefill_replicas >= options.num_replicas)
    return refuse("simulate: prefill_replicas must be fewer than replicas");
  if (options.num_prefill_replicas > 0 && options.shared_blocks == 0)
    return refuse("simulate: prefill_replicas hand prompts over through the shared store; give shared_blocks");
  if (options.scheduler.max_num_seqs < 1 || options.scheduler.max_num_batched_tokens < 1) {
    return refuse("simulate: max_num_seqs and max_num_batched_tokens must be positive");
  }
  return std::nullopt;
}

}  // namespace

double SimReport::hit_rate() const {
  return num_prompt_tokens > 0 ? static_cast<double>(num_cached_tokens) / static_cast<double>(num_prompt_tokens) : 0.0;
}

double SimReport::block_hit_rate() const {
  return num_prompt_blocks > 0 ? static_cast<double>(num_cached_blocks) / static_cast<double>(num_prompt_blocks) : 0.0;
}

double SimReport::fairness() const {
  double sum = 0.0;
  double squares = 0.0;
  for (const auto& [name, share] : keys) {
    const auto tokens = static_cast<double>(share.num_tokens);
    sum += tokens;
    squares += tokens * tokens;
  }
  return squares > 0.0 ? sum * sum / (static_cast<double>(keys.size()) * squares) : 1.0;
}

Result<StepPrice> parse_price(const std::string& text) {
  StepPrice price = SimOptions().price;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t equals = item.find('=');
    const std::string name = item.substr(0, equals);
    double* const field = name == "base"             ? &price.fixed
                          : name == "stream"         ? &price.stream
                          : name == "prompt"         ? &price.prompt_token
                          : name == "context"        ? &price.stream_ktoken
                          : name == "prompt_context" ? &price.prompt_ktoken
                                                     : nullptr;
    const char* const last = item.data() + item.size();
    double ms = 0.0;
    if (field == nullptr || equals == std::string::npos ||
        std::from_chars(item.data() + equals + 1, last, ms).ptr != last || !(ms >= 0.0)) {
      return invalid(fmt::format("step price: '{}' is not name=milliseconds with one of: base stream prompt context "
                                 "prompt_context",
                                 item),
                     "cost");
    }
    *field = ms / 1000.0;
  }
  if (price.fixed + price.stream <= 0.0 || price.fixed + price.prompt_token <= 0.0) {
    return invalid("step price: a step must cost something", "cost");
  }
  return price;
}

Result<SimReport> simulate(const SimOptions& options, TraceSource& trace) {
  if (auto error = nonsense(options)) return tl::make_unexpected(*std::move(error));
  SimReport report;
  TraceRequest request;
  std::vector<TraceRequest> all;
  std::int64_t num_blocks = options.num_blocks;
  if (num_blocks == 0) {  // an unbounded pool holds all blocks at the same time
    while (trace.next(request)) {
      const std::int64_t tokens = std::int64_t{request.num_prompt_tokens} + request.num_output_tokens;
      num_blocks += tokens / options.block_size + 2;
      all.push_back(std::move(request));
    }
  }
  if (num_blocks > std::numeric_limits<std::int32_t>::max() / 2) {
    return invalid(
        "simulate: the trace needs more blocks than can be numbered; give num_blocks or a larger block_size");
  }
  Fleet fleet(options, num_blocks, report);
  std::int64_t number = 0;
  for (const TraceRequest& known : all)
    fleet.arrive(known, number++);
  while (all.empty() && trace.next(request))
    fleet.arrive(request, number++);
  fleet.run_to_end(report);
  return report;
}

}  // namespace quire::sim
