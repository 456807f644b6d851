#include "tests/unit/model/reference/reference_math.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

namespace quire::test {

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

double softplus(double x) {
  return x > 30.0 ? x : std::log1p(std::exp(x));
}

void add_scaled(std::vector<double>& x, const std::vector<double>& y, double scale) {
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] += scale * y[i];
}

double activated(const ActivationArgs& args, double gate, double up) {
  const auto limit = static_cast<double>(args.limit);
  switch (args.kind) {
    case Nonlinearity::kSilu: {
      const double value = gate * sigmoid(gate);
      return limit > 0.0 ? std::min(value, limit) * std::clamp(up, -limit, limit) : value * up;
    }
    case Nonlinearity::kGelu: {
      const double inner = std::sqrt(2.0 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate);
      return 0.5 * gate * (1.0 + std::tanh(inner)) * up;
    }
    case Nonlinearity::kGeluOfError: return 0.5 * gate * std::erfc(-gate / std::numbers::sqrt2) * up;
    case Nonlinearity::kQuickGelu: return gate / (1.0 + std::exp(-1.702 * gate)) * up;
    case Nonlinearity::kRelu: return std::max(gate, 0.0) * up;
    case Nonlinearity::kReluSquared: return std::pow(std::max(gate, 0.0), 2.0) * up;
    case Nonlinearity::kSwigluOai: {
      const double least = std::min(gate, 7.0);
      return least * sigmoid(1.702 * least) * (std::clamp(up, -7.0, 7.0) + 1.0);
    }
    case Nonlinearity::kXielu: {
      const auto beta = static_cast<double>(args.beta);
      const double positive = softplus(static_cast<double>(args.alpha_p));
      const double negative = beta + softplus(static_cast<double>(args.alpha_n));
      const double low = std::expm1(std::min(gate, static_cast<double>(args.eps))) - gate;
      return (gate > 0.0 ? positive * gate * gate + beta * gate : low * negative + beta * gate) * up;
    }
    case Nonlinearity::kTanh: return std::tanh(gate) * up;
    case Nonlinearity::kSigmoid: return sigmoid(gate) * up;
    case Nonlinearity::kNone: break;
  }
  return gate * up;
}

double rotation_speed(const RopeConfig& rope, std::size_t pair) {
  const auto dim = static_cast<double>(rope.rotary_dim);
  double theta = 1.0 / std::pow(rope.base, 2.0 * static_cast<double>(pair) / dim);
  if (!rope.frequency_divisors.empty()) theta /= static_cast<double>(rope.frequency_divisors.at(pair));
  if (rope.scaling == RopeScaling::kNone) return theta;
  if (rope.scaling == RopeScaling::kLinear) return theta / rope.factor;
  double extrapolated = 0.0;  // share of the speed that stays
  if (rope.scaling == RopeScaling::kLlama3) {
    const double turns = rope.original_context * theta / (2.0 * std::numbers::pi);
    extrapolated = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  } else {
    const auto dimension_of = [&](double turns) {
      return dim / 2.0 * std::log(rope.original_context / (2.0 * std::numbers::pi * turns)) / std::log(rope.base);
    };
    double fast = dimension_of(rope.beta_fast);
    double slow = dimension_of(rope.beta_slow);
    if (rope.truncate) {
      fast = std::floor(fast);
      slow = std::ceil(slow);
    }
    fast = std::max(fast, 0.0);
    slow = std::min(slow, dim - 1.0);
    extrapolated = 1.0 - (static_cast<double>(pair) - fast) / std::max(slow - fast, 0.001);
  }
  extrapolated = std::clamp(extrapolated, 0.0, 1.0);
  return theta * (extrapolated + (1.0 - extrapolated) / rope.factor);
}

namespace {

std::vector<double> probabilities(RouteOptions::Gate gate, const std::vector<double>& logits) {
  std::vector<double> out = logits;
  if (gate == RouteOptions::Gate::kSoftmaxOfChosen || gate == RouteOptions::Gate::kSparseMixer) return out;
  const double largest = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (double& value : out)
    sum += value = gate == RouteOptions::Gate::kSigmoid ? sigmoid(value) : std::exp(value - largest);
  for (double& value : out)
    value /= gate == RouteOptions::Gate::kSigmoid ? 1.0 : sum;
  return out;
}

// Experts outside the best groups cannot be chosen; a group is as good as its two best together.
void leave_groups(const RouteOptions& route, std::vector<double>& scores) {
  if (route.num_groups <= 1) return;
  const std::size_t size = scores.size() / static_cast<std::size_t>(route.num_groups);
  std::vector<std::pair<double, std::size_t>> groups;
  for (std::size_t first = 0; first < scores.size(); first += size) {
    std::vector<double> members(scores.begin() + static_cast<std::ptrdiff_t>(first),
                                scores.begin() + static_cast<std::ptrdiff_t>(first + size));
    std::ranges::sort(members, std::greater<>());
    groups.emplace_back(members[0] + (size > 1 ? members[1] : 0.0), first);
  }
  std::ranges::stable_sort(groups, [](const auto& a, const auto& b) { return a.first > b.first; });
  for (std::size_t i = static_cast<std::size_t>(route.num_groups_chosen); i < groups.size(); ++i)
    std::fill_n(scores.begin() + static_cast<std::ptrdiff_t>(groups[i].second), size,
                -std::numeric_limits<double>::infinity());
}

// Softmax of the chosen logit among those near it that do not precede it.
double mixed_weight(const RouteOptions& route, const std::vector<double>& logits, const std::vector<std::size_t>& order,
                    std::size_t place) {
  const double best = logits[order[place]];
  double sum = 0.0;
  for (std::size_t i = place; i < order.size(); ++i) {
    const double logit = logits[order[i]];
    const double distance = (best - logit) / std::max(std::fabs(logit), best);
    if (!(distance > static_cast<double>(route.mixer_share))) sum += std::exp(logit - best);
  }
  return 1.0 / sum;
}

}  // namespace

std::vector<std::pair<std::size_t, double>> routed(const RouteOptions& route, const std::vector<double>& logits,
                                                   const std::vector<double>& bias) {
  const std::vector<double> weights = probabilities(route.gate, logits);
  std::vector<double> scores = weights;
  for (std::size_t i = 0; i < bias.size(); ++i)
    scores[i] += bias[i];
  leave_groups(route, scores);
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  std::vector<std::pair<std::size_t, double>> chosen;
  double sum = 0.0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(route.num_chosen); ++i) {
    double weight = weights[order[i]];
    if (route.gate == RouteOptions::Gate::kSoftmaxOfChosen) weight = std::exp(weight - logits[order[0]]);
    if (route.gate == RouteOptions::Gate::kSparseMixer) weight = mixed_weight(route, logits, order, i);
    chosen.emplace_back(order[i], weight);
    sum += weight;
  }
  const bool divides = route.normalise || route.gate == RouteOptions::Gate::kSoftmaxOfChosen;
  for (auto& [expert, weight] : chosen)
    weight = weight / (divides ? std::max(sum, 6.103515625e-5) : 1.0) * static_cast<double>(route.scale);
  return chosen;
}

}  // namespace quire::test
