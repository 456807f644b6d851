#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>

#include "core/sim/trace.h"

namespace quire::sim {

namespace {

// A log-normal distribution of the given mean and coefficient of variation.
std::lognormal_distribution<double> log_normal(double mean, double cv) {
  const double variance = std::log(1.0 + cv * cv);
  return std::lognormal_distribution<double>(std::log(mean) - variance / 2.0, std::sqrt(variance));
}

class SyntheticSource : public TraceSource {
 public:
  explicit SyntheticSource(const SyntheticTraffic& traffic)
      : traffic_(traffic),
        random_(traffic.seed),
        gap_(1.0 / (traffic.gap_cv * traffic.gap_cv), traffic.gap_cv * traffic.gap_cv / traffic.rate),
        prompt_(log_normal(traffic.prompt_mean, traffic.prompt_cv)),
        output_(log_normal(traffic.output_mean, traffic.output_cv)) {}

  bool next(TraceRequest& request) override {
    if (num_made_ == traffic_.num_requests) return false;
    now_ += gap_(random_);
    request.arrival_s = now_;
    request.num_prompt_tokens = length(prompt_(random_));
    request.num_output_tokens = length(output_(random_));
    request.hash_ids.clear();
    const auto group = static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(traffic_.num_groups));
    const std::int32_t num_shared = traffic_.shared_prefix / kHashBlockSize;
    for (std::int32_t i = 0; i < num_shared; ++i)
      request.hash_ids.push_back(group * num_shared + i);
    request.num_prompt_tokens += num_shared * kHashBlockSize;
    request.key = fmt::format("key-{}", random_() % static_cast<std::uint64_t>(traffic_.num_keys));
    ++num_made_;
    return true;
  }

 private:
  std::int32_t length(double drawn) const {
    return std::clamp(static_cast<std::int32_t>(std::min(drawn, 1e9)), 1, traffic_.max_tokens);
  }

  SyntheticTraffic traffic_;
  std::mt19937_64 random_;
  std::gamma_distribution<double> gap_;
  std::lognormal_distribution<double> prompt_;
  std::lognormal_distribution<double> output_;
  std::int64_t num_made_ = 0;
  double now_ = 0.0;
};

}  // namespace

Result<SyntheticTraffic> parse_synthetic(const std::string& text) {
  SyntheticTraffic traffic;
  const auto whole = [](auto& field) {
    return [&field](double value) { field = static_cast<std::remove_reference_t<decltype(field)>>(value); };
  };
  const std::map<std::string, std::function<void(double)>> fields = {{"requests", whole(traffic.num_requests)},
                                                                     {"rate", whole(traffic.rate)},
                                                                     {"cv", whole(traffic.gap_cv)},
                                                                     {"prompt", whole(traffic.prompt_mean)},
                                                                     {"prompt_cv", whole(traffic.prompt_cv)},
                                                                     {"output", whole(traffic.output_mean)},
                                                                     {"output_cv", whole(traffic.output_cv)},
                                                                     {"max", whole(traffic.max_tokens)},
                                                                     {"shared", whole(traffic.shared_prefix)},
                                                                     {"groups", whole(traffic.num_groups)},
                                                                     {"keys", whole(traffic.num_keys)},
                                                                     {"seed", whole(traffic.seed)}};
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t equals = item.find('=');
    const auto field = fields.find(item.substr(0, equals));
    double value = 0.0;
    const bool is_number =
        equals != std::string::npos &&
        std::from_chars(item.data() + equals + 1, item.data() + item.size(), value).ptr == item.data() + item.size();
    if (field == fields.end() || !is_number || value < 0.0 || !std::isfinite(value)) {
      std::string known;
      for (const auto& [name, set] : fields)
        known += " " + name;
      return invalid(fmt::format("synthetic traffic: '{}' is not name=number with one of:{}", item, known),
                     "synthetic");
    }
    field->second(value);
  }
  if (traffic.rate <= 0.0 || traffic.gap_cv <= 0.0 || traffic.prompt_mean <= 0.0 || traffic.output_mean <= 0.0 ||
      traffic.num_groups < 1 || traffic.num_keys < 1 || traffic.max_tokens < 1 || traffic.num_requests < 1) {
    return invalid("synthetic traffic: rate, cv, prompt, output, requests, max, groups and keys must be positive",
                   "synthetic");
  }
  return traffic;
}

std::unique_ptr<TraceSource> make_synthetic(const SyntheticTraffic& traffic) {
  return std::make_unique<SyntheticSource>(traffic);
}

}  // namespace quire::sim
