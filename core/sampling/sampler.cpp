#include "core/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <new>
#include <thread>
#include <utility>

#include "core/sampling/philox.h"
#include "core/sampling/sampler_chain.h"
#include "core/sampling/softmax.h"

namespace quire {

namespace {

// Logits this far below the maximum have no weight in single precision.
constexpr float kFloor = -86.0F;
// Candidates are gathered above a threshold that is lowered until they suffice, without sorting the whole vocabulary.
constexpr std::array kThresholds = {-3.0F, -6.0F, -9.0F, -12.0F, -15.0F, -18.0F, -22.0F, -28.0F, -40.0F, kFloor};

// The first filter of the distribution; top_n_sigma has cut the row before.
std::optional<SamplerStep> first_filter(const SamplingParams& params) {
  for (const FilterInfo& filter : Filters::kInfos) {
    if (filter.step != SamplerStep::kTopNSigma && params.is_on(filter.step)) return filter.step;
  }
  return std::nullopt;
}

// Whether the filters can leave out a token of the row.
bool truncates(const SamplingParams& params, std::size_t vocab_size, bool xtc) {
  return std::ranges::any_of(Filters::kInfos, [&](const FilterInfo& filter) {
    if (filter.step == SamplerStep::kTopNSigma || !params.is_on(filter.step)) return false;
    if (filter.step == SamplerStep::kTopK) return static_cast<std::size_t>(params.top_k) < vocab_size;
    return filter.step != SamplerStep::kXtc || xtc;
  });
}

// Keeps the best `count`, sorted.
void sort_best(Candidates& candidates, std::size_t count) {
  if (count < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count), candidates.end(),
                     kBetter);
    candidates.resize(count);
  }
  std::sort(candidates.begin(), candidates.end(), kBetter);
}

float filter_temperature(const SamplingParams& params) {
  return params.temperature_last ? 1.0F : params.temperature;
}

}  // namespace

// Reserves the most memory that the threads can need at once, since scratches and numbers of candidates vary from step
// to step. Untouched memory costs only addresses.
Sampler::Sampler(Backend& backend, std::int64_t vocab_size, std::int64_t max_tokens) : backend_(backend) {
  const std::size_t num_threads = std::max(1U, std::thread::hardware_concurrency());
  scratch_.reserve(num_threads);
  if (vocab_size == 0) return;
  const auto width = static_cast<std::size_t>(vocab_size);
  const auto length = static_cast<std::size_t>(max_tokens);
  while (scratch_.size() < num_threads) {
    auto made = std::make_unique<Scratch>();
    made->candidates.reserve(width);
    made->ids.reserve(width);
    made->chunk_sums.reserve(width);
    made->raw.reserve(width);
    made->shared.reserve(width);
    made->deviations.reserve(width);
    made->state.window.reserve(length);
    made->state.dry.lengths.reserve(length);
    made->state.dry.found.reserve(length);
    scratch_.push_back(std::move(made));
  }
}

// Out of memory ends only the row: nothing is thrown on a compute thread.
void Sampler::sample(std::span<SampleRow> rows) {
  backend_.parallel_for(static_cast<std::int64_t>(rows.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    std::unique_ptr<Scratch> scratch;
    for (std::int64_t i = begin; i < end; ++i) {
      SampleRow& row = rows[static_cast<std::size_t>(i)];
      row.drawn = {};
      try {
        if (scratch == nullptr) scratch = take_scratch();
        sample_row(row, *scratch);
      } catch (const std::bad_alloc&) {
        row.drawn = {.out_of_memory = true};
      }
    }
    if (scratch != nullptr) give_scratch(std::move(scratch));
  });
}

void Sampler::sample_row(SampleRow& row, Scratch& scratch) {
  const SamplingParams& params = row.state->params_;
  if (params.num_logprobs) scratch.raw.assign(row.logits.begin(), row.logits.end());
  if (row.is_shared) {
    scratch.shared.assign(row.logits.begin(), row.logits.end());
    row.logits = scratch.shared;
  }
  if (!row.mask.empty()) apply_mask(row.logits, row.mask);
  if (params.is_chained()) {
    SamplerChain(row, scratch).sample();
    if (row.drawn.token && params.num_logprobs)
      row.drawn.logprob = logprob_of(scratch.raw, *row.drawn.token, *params.num_logprobs);
    return;
  }
  row.state->apply(row.logits, row.tokens, row.num_prompt_tokens, scratch.state);
  if (params.top_n_sigma > 0.0F) cut_deviating(row.logits, params.top_n_sigma);
  const Maximum maximum = find_maximum(row.logits);
  if (maximum.id < 0) {
    row.drawn.has_no_numbers =
        std::any_of(row.logits.begin(), row.logits.end(), [](float logit) { return std::isnan(logit); });
    return;
  }
  const std::int32_t id = params.temperature < kGreedyBelow ? maximum.id : draw(row, maximum, scratch);
  row.drawn.token = TokenId{id};
  if (params.num_logprobs) row.drawn.logprob = logprob_of(scratch.raw, *row.drawn.token, *params.num_logprobs);
}

std::int32_t Sampler::draw(const SampleRow& row, Maximum maximum, Scratch& scratch) {
  const SamplingParams& params = row.state->params_;
  const RowRandom random = row.random();
  const double u = random.uniform(Draw::kToken);
  const bool xtc = params.is_due(random);
  if (maximum.value == std::numeric_limits<float>::infinity())
    return maximum.id;  // the others are infinitely less likely
  if (!truncates(params, row.logits.size(), xtc)) {
    const float scale = 1.0F / params.temperature;
    const std::int32_t id = find_by_share(row.logits, maximum.value, scale, u, scratch.chunk_sums);
    return id >= 0 ? id : maximum.id;
  }
  const std::optional<SamplerStep> collected = collect(row.logits, maximum.value, params, xtc, scratch);
  Candidates& candidates = scratch.candidates;
  Distribution kept(candidates, scratch.deviations,
                    {.random = random, .vocab_size = row.logits.size(), .is_sorted = true});
  for (const FilterInfo& filter : Filters::kInfos) {
    if (filter.step != SamplerStep::kTopNSigma && filter.step != collected) params.cut(filter.step, kept);
  }
  if (params.temperature_last) {
    const float best = candidates.front().logit;
    for (Candidate& candidate : candidates)
      candidate.weight = exp_nonpositive((candidate.logit - best) / params.temperature);
  }
  const double target = u * total_weight(candidates);
  double sum = 0.0;
  for (const Candidate& candidate : candidates) {
    sum += static_cast<double>(candidate.weight);
    if (sum > target) return candidate.id;
  }
  return candidates.back().id;
}

// Gathers the tokens left by the first filter, best first. Returns that filter if it needs no further cut.
std::optional<SamplerStep> Sampler::collect(std::span<const float> logits, float maximum, const SamplingParams& params,
                                            bool xtc, Scratch& scratch) {
  Candidates& out = scratch.candidates;
  const float temperature = filter_temperature(params);
  const float scale = 1.0F / temperature;
  const std::optional<SamplerStep> first = first_filter(params);
  const bool by_count = first == SamplerStep::kTopK;
  const bool by_mass = first == SamplerStep::kTopP;  // a share of the whole distribution
  const bool by_min_p = first == SamplerStep::kMinP && !xtc;
  const double mass = by_mass ? static_cast<double>(params.top_p) * sum_of_exponentials(logits, maximum, scale) : 0.0;
  for (float threshold : kThresholds) {
    if (by_min_p) {
      threshold = std::max(kFloor, min_p_threshold(params.min_p));
    } else if (!by_count && !by_mass) {
      threshold = kFloor;  // all tokens are wanted
    }
    find_above(logits, maximum + threshold * temperature, scratch.ids);
    out.clear();
    for (const std::int32_t id : scratch.ids) {
      const float logit = (logits[static_cast<std::size_t>(id)] - maximum) * scale;
      out.push_back({logit, id, by_mass ? exp_nonpositive(logit) : 0.0F});
    }
    if (by_min_p || threshold <= kFloor) break;
    if (by_count && out.size() >= static_cast<std::size_t>(params.top_k)) break;
    if (by_mass && total_weight(out) >= mass) break;
  }
  sort_best(out, by_count ? static_cast<std::size_t>(params.top_k) : out.size());
  for (Candidate& candidate : out)
    candidate.weight = exp_nonpositive(candidate.logit);
  if (by_mass) keep_first(out, mass, 1);
  return by_count || by_mass ? first : std::nullopt;
}

TokenLogprob Sampler::logprob_of(std::span<const float> logits, TokenId token, std::int32_t num_top) {
  const Maximum maximum = find_maximum(logits);
  const double log_sum = std::log(sum_of_exponentials(logits, maximum.value, 1.0F));
  const auto logprob = [&](std::size_t id) {
    return static_cast<float>(static_cast<double>(logits[id] - maximum.value) - log_sum);
  };
  TokenLogprob result{.token = token, .logprob = logprob(static_cast<std::size_t>(token.value)), .top = {}};
  if (num_top <= 0) return result;
  Scratch scratch;
  SamplingParams params;
  params.top_k = num_top;
  collect(logits, maximum.value, params, false, scratch);
  for (const Candidate& candidate : scratch.candidates) {
    result.top.emplace_back(TokenId{candidate.id}, logprob(static_cast<std::size_t>(candidate.id)));
  }
  return result;
}

std::unique_ptr<Sampler::Scratch> Sampler::take_scratch() {
  const std::lock_guard lock(scratch_mutex_);
  if (scratch_.empty()) return std::make_unique<Scratch>();
  std::unique_ptr<Scratch> taken = std::move(scratch_.back());
  scratch_.pop_back();
  return taken;
}

void Sampler::give_scratch(std::unique_ptr<Scratch> scratch) {
  const std::lock_guard lock(scratch_mutex_);
  if (scratch_.size() < scratch_.capacity()) scratch_.push_back(std::move(scratch));
}

}  // namespace quire
