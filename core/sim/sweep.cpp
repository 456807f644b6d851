#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "core/sim/report.h"

namespace quire::sim {

namespace {

std::optional<double> number(const std::string& text) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0.0 || value > 1e15) return std::nullopt;
  return value;
}

template <class T>
std::function<bool(SimOptions&, const std::string&)> numeric(T& (*field)(SimOptions&)) {
  return [field](SimOptions& options, const std::string& text) {
    const auto value = number(text);
    if (!value) return false;
    field(options) = static_cast<T>(*value);
    return true;
  };
}

template <class T>
std::function<bool(SimOptions&, const std::string&)> named(T& (*field)(SimOptions&), std::map<std::string, T> values) {
  return [field, values = std::move(values)](SimOptions& options, const std::string& text) {
    const auto found = values.find(text);
    if (found == values.end()) return false;
    field(options) = found->second;
    return true;
  };
}

const std::map<std::string, std::function<bool(SimOptions&, const std::string&)>>& settings() {
  using Options = SimOptions;
  static const std::map<std::string, std::function<bool(Options&, const std::string&)>> kKnown = {
      {"num_blocks", numeric<std::int64_t>([](Options & o) -> auto& { return o.num_blocks; })},
      {"block_size", numeric<std::int32_t>([](Options & o) -> auto& { return o.block_size; })},
      {"max_num_seqs", numeric<std::int32_t>([](Options & o) -> auto& { return o.scheduler.max_num_seqs; })},
      {"max_num_batched_tokens",
       numeric<std::int32_t>([](Options & o) -> auto& { return o.scheduler.max_num_batched_tokens; })},
      {"target_itl_ms", numeric<double>([](Options & o) -> auto& { return o.scheduler.target_itl_ms; })},
      {"max_step_time_ms",
       [](Options& options, const std::string& text) {
         const auto value = text == "auto" ? SchedulerOptions::kAutoStepTime : number(text);
         options.scheduler.max_step_time_ms = value.value_or(0.0);
         return value.has_value();
       }},
      {"can_end_early",
       named<bool>([](Options & o) -> auto& { return o.can_end_early; }, {{"true", true}, {"false", false}})},
      {"num_states", numeric<std::int64_t>([](Options & o) -> auto& { return o.num_states; })},
      {"window_tokens", numeric<std::int64_t>([](Options & o) -> auto& { return o.window_tokens; })},
      {"num_window_parts", numeric<std::int64_t>([](Options & o) -> auto& { return o.num_window_parts; })},
      {"tier_blocks", numeric<std::int64_t>([](Options & o) -> auto& { return o.tier_blocks; })},
      {"tier_block_ms", numeric<double>([](Options & o) -> auto& { return o.tier_block_ms; })},
      {"shared_blocks", numeric<std::int64_t>([](Options & o) -> auto& { return o.shared_blocks; })},
      {"shared_block_ms", numeric<double>([](Options & o) -> auto& { return o.shared_block_ms; })},
      {"shared_latency_ms", numeric<double>([](Options & o) -> auto& { return o.shared_latency_ms; })},
      {"max_drafts", numeric<std::int32_t>([](Options & o) -> auto& { return o.max_drafts; })},
      {"media_rows", numeric<std::int64_t>([](Options & o) -> auto& { return o.media_rows; })},
      {"draft_acceptance", numeric<double>([](Options & o) -> auto& { return o.draft_acceptance; })},
      {"replicas", numeric<std::int32_t>([](Options & o) -> auto& { return o.num_replicas; })},
      {"steps_at_once", numeric<std::int32_t>([](Options & o) -> auto& { return o.steps_at_once; })},
      {"prefill_replicas", numeric<std::int32_t>([](Options & o) -> auto& { return o.num_prefill_replicas; })},
      {"prefix_caching",
       named<bool>([](Options & o) -> auto& { return o.prefix_caching; }, {{"true", true}, {"false", false}})},
      {"prefix_aware",
       named<bool>([](Options & o) -> auto& { return o.scheduler.prefix_aware; }, {{"true", true}, {"false", false}})},
      {"preemption",
       named<Preemption>(
           [](Options & o) -> auto& { return o.scheduler.preemption; },
           {{"auto", Preemption::kCheaper}, {"swap", Preemption::kSwap}, {"recompute", Preemption::kRecompute}})},
      {"policy", named<SchedulerPolicy>([](Options & o) -> auto& { return o.scheduler.policy; },
                                        {{"fcfs", SchedulerPolicy::kFcfs},
                                         {"priority", SchedulerPolicy::kPriority},
                                         {"fair", SchedulerPolicy::kFair}})},
      {"route",
       named<Route>(
           [](Options & o) -> auto& { return o.route; },
           {{"round-robin", Route::kRoundRobin}, {"least-loaded", Route::kLeastLoaded}, {"prefix", Route::kPrefix}})},
  };
  return kKnown;
}

Result<std::vector<SimCase>> vary(const std::vector<SimCase>& cases, const std::string& item) {
  const std::size_t equals = item.find('=');
  const std::string name = item.substr(0, equals);
  const auto setting = settings().find(name);
  if (setting == settings().end() || equals == std::string::npos) {
    std::string known;
    for (const auto& [each, set] : settings())
      known += " " + each;
    return invalid(fmt::format("sweep: '{}' is not name=value,value,... with one of:{}", item, known), "sweep");
  }
  std::vector<SimCase> varied;
  std::size_t begin = equals + 1;
  while (begin <= item.size()) {
    const std::size_t end = std::min(item.find(',', begin), item.size());
    const std::string value = item.substr(begin, end - begin);
    begin = end + 1;
    for (const SimCase& each : cases) {
      SimCase next = each;
      if (!setting->second(next.options, value))
        return invalid(fmt::format("sweep: {} cannot be '{}'", name, value), "sweep");
      next.name += fmt::format("{}{}={}", next.name.empty() ? "" : " ", name, value);
      varied.push_back(std::move(next));
    }
  }
  return varied;
}

}  // namespace

Result<std::vector<SimCase>> make_cases(const SimOptions& base, const std::vector<std::string>& sweep) {
  std::vector<SimCase> cases{{"", base, {}}};
  for (const std::string& item : sweep) {
    Result<std::vector<SimCase>> varied = vary(cases, item);
    if (!varied) return varied;
    cases = *std::move(varied);
  }
  if (sweep.empty()) cases.front().name = "as given";
  return cases;
}

}  // namespace quire::sim
