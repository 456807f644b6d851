// The filters of a distribution: each is a struct with its parameters and what it cuts. A new one is a struct, its
// step and its place in `Filters`: the sampler, the names in `samplers` and their usual order follow. Values; any
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/sampling/distribution.h"

namespace quire {

// The steps of llama.cpp's chain of samplers, and further filters.
enum class SamplerStep : std::uint8_t {
  kPenalties,
  kDry,
  kTopNSigma,
  kTopK,
  kTypicalP,
  kTopP,
  kTopA,
  kMinP,
  kXtc,
  kTemperature
};

// The drawing code that knows a filter, the fastest first.
enum class DrawnBy : std::uint8_t { kDevice, kSampler, kChain };

struct FilterInfo {
  SamplerStep step;
  std::string_view name;
  std::string_view other_name;
  char letter;  // llama-server's; 0: llama.cpp has no such filter
  DrawnBy drawn_by = DrawnBy::kChain;
};

struct TopNSigma {
  static constexpr FilterInfo kInfo{SamplerStep::kTopNSigma, "top_n_sigma", "top-n-sigma", 's', DrawnBy::kSampler};
  float top_n_sigma = 0.0F;  // keeps logits within this many standard deviations of the best; 0 or negative: off

  bool is_on() const { return top_n_sigma > 0.0F; }
  void turn_off() { top_n_sigma = 0.0F; }
  void cut(Distribution& row) const { row.keep_within(top_n_sigma); }
};

struct TopK {
  static constexpr FilterInfo kInfo{SamplerStep::kTopK, "top_k", "top-k", 'k', DrawnBy::kDevice};
  std::int32_t top_k = 0;  // 0 or negative: off

  bool is_on() const { return top_k > 0; }
  void turn_off() { top_k = 0; }
  void cut(Distribution& row) const { row.keep_best(static_cast<std::size_t>(top_k)); }
};

struct TypicalP {
  static constexpr FilterInfo kInfo{SamplerStep::kTypicalP, "typ_p", "typical_p", 'y', DrawnBy::kSampler};
  float typical_p = 1.0F;

  bool is_on() const { return typical_p < 1.0F; }
  void turn_off() { typical_p = 1.0F; }
  void cut(Distribution& row) const {
    row.weigh();
    row.keep_typical(static_cast<double>(typical_p));
  }
};

struct TopP {
  static constexpr FilterInfo kInfo{SamplerStep::kTopP, "top_p", "top-p", 'p', DrawnBy::kDevice};
  float top_p = 1.0F;

  bool is_on() const { return top_p < 1.0F; }
  void turn_off() { top_p = 1.0F; }
  void cut(Distribution& row) const {
    row.weigh();
    row.keep_mass(static_cast<double>(top_p) * row.total());
  }
};

// Keeps probabilities of at least `top_a` times the square of the best one (KoboldAI's top-a).
struct TopA {
  static constexpr FilterInfo kInfo{SamplerStep::kTopA, "top_a", "top-a", 0};
  float top_a = 0.0F;

  bool is_on() const { return top_a > 0.0F; }
  void turn_off() { top_a = 0.0F; }
  void cut(Distribution& row) const {
    row.weigh();
    const auto best = static_cast<double>(row.best());
    row.keep_above(static_cast<float>(static_cast<double>(top_a) * best * best / row.total()));
  }
};

struct MinP {
  static constexpr FilterInfo kInfo{SamplerStep::kMinP, "min_p", "min-p", 'm', DrawnBy::kDevice};
  float min_p = 0.0F;

  bool is_on() const { return min_p > 0.0F; }
  void turn_off() { min_p = 0.0F; }
  void cut(Distribution& row) const {
    row.weigh();
    row.keep_above(min_p * row.best());
  }
};

// Removes likely tokens, so that a less likely one is drawn (p-e-w, 2024).
struct Xtc {
  static constexpr FilterInfo kInfo{SamplerStep::kXtc, "xtc", "xtc", 'x', DrawnBy::kSampler};
  float xtc_probability = 0.0F;
  float xtc_threshold = 0.1F;

  bool is_on() const { return xtc_probability > 0.0F && xtc_threshold <= 0.5F; }
  void turn_off() { xtc_probability = 0.0F; }
  bool is_due(const RowRandom& random) const {
    return is_on() && random.uniform(Draw::kXtc) < static_cast<double>(xtc_probability);
  }
  void cut(Distribution& row) const {
    if (!is_due(row.random())) return;
    row.weigh();
    row.drop_above(static_cast<double>(xtc_threshold) * row.total());
  }
};

template <class... Each>
struct FilterSet : Each... {
  static constexpr std::array kInfos{Each::kInfo...};

  bool is_on(SamplerStep step) const { return ((Each::kInfo.step == step && as<Each>().is_on()) || ...); }
  // Whether a filter is on that only this or slower code knows.
  bool needs(DrawnBy code) const { return ((Each::kInfo.drawn_by >= code && as<Each>().is_on()) || ...); }
  // Cuts by the filter of this step, if it is on.
  void cut(SamplerStep step, Distribution& row) const {
    ((Each::kInfo.step == step && as<Each>().is_on() ? as<Each>().cut(row) : void()), ...);
  }
  void turn_off(SamplerStep step) { ((Each::kInfo.step == step ? static_cast<Each&>(*this).turn_off() : void()), ...); }

 private:
  template <class Filter>
  const Filter& as() const {
    return *this;
  }
};

// All filters, in the order of their application.
using Filters = FilterSet<TopNSigma, TopK, TypicalP, TopP, TopA, MinP, Xtc>;

// The usual order of all steps. The temperature follows top_n_sigma, or stands last.
constexpr auto usual_order(bool temperature_last) {
  std::array<SamplerStep, Filters::kInfos.size() + 3> order{SamplerStep::kPenalties, SamplerStep::kDry};
  std::size_t next = 2;
  for (const FilterInfo& filter : Filters::kInfos) {
    order[next++] = filter.step;
    if (filter.step == SamplerStep::kTopNSigma && !temperature_last) order[next++] = SamplerStep::kTemperature;
  }
  if (temperature_last) order[next] = SamplerStep::kTemperature;
  return order;
}

}  // namespace quire
