// Sampler: the choice of each next token from its row of logits. Rows are independent: a batch is sampled in parallel.
// SamplerState (one per sequence): Engine thread only. Sampler: Engine thread only; it uses the backend's compute
// threads. Invariant: a row's result depends on its logits, its sequence's tokens, its parameters, seed, choice and
// position only. Order: masks, logit_bias, penalties (repetition, frequency, presence, DRY), then the filters in the
// order of `Filters`, with the temperature after top_n_sigma or last; a request may set another order.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/sampling/candidates.h"
#include "core/sampling/drawn_token.h"
#include "core/sampling/dry.h"
#include "core/sampling/philox.h"
#include "core/sampling/sampling_params.h"
#include "core/sampling/softmax.h"
#include "kernels/backend.h"

namespace quire {

struct DrawEdit;
struct SampleRow;

// State that sampling keeps of a sequence from token to token.
class SamplerState {
 public:
  // params must outlive the state. end_of_generation: tokens that min_tokens forbids, besides the stop tokens.
  SamplerState(const SamplingParams& params, std::span<const TokenId> prompt,
               std::span<const TokenId> end_of_generation, std::int64_t vocab_size, std::uint64_t seed,
               std::int32_t choice);

  void append(TokenId token);  // a generated token
  // Takes DrawnToken::observed of the last draw, for samplers that follow the draws.
  void observe(float observed);
  // Lists the changes that apply() makes to logits, except masks and DRY, as edits that ascend by token; `window` is
  // scratch.
  void list_edits(std::span<const TokenId> tokens, std::int64_t num_prompt_tokens, std::int64_t vocab_size,
                  std::vector<std::int32_t>& window, std::vector<DrawEdit>& out) const;
  // Whether the request itself forbids `token` after `generated`, independent of the model.
  bool forbids(TokenId token, std::span<const TokenId> generated) const;

 private:
  friend class Sampler;
  friend class SamplerChain;
  friend class DrawPlan;
  friend struct SampleRow;
  // Scratch memory of apply(): kept by the Sampler from row to row.
  struct Scratch {
    std::vector<std::int32_t> window;
    DryScratch dry;
  };
  void apply(std::span<float> logits, std::span<const TokenId> tokens, std::int64_t num_prompt_tokens,
             Scratch& scratch) const;
  void apply_limits(std::span<float> logits, std::span<const TokenId> tokens, std::int64_t num_prompt_tokens) const;
  void apply_penalties(std::span<float> logits, std::span<const TokenId> tokens, Scratch& scratch) const;
  void apply_dry(std::span<float> logits, std::span<const TokenId> tokens, Scratch& scratch) const;
  template <class Ban>
  void visit_bans(std::span<const TokenId> generated, const Ban& ban) const;
  template <class Penalise>
  void visit_penalties(std::span<const TokenId> tokens, std::vector<std::int32_t>& ids, const Penalise& penalise) const;
  void penalize(float& logit, std::int32_t count) const;
  bool keeps_ends_away(std::span<const TokenId> generated) const;

  const SamplingParams& params_;
  const std::vector<TokenId> ends_;
  const std::uint64_t seed_;
  const std::int32_t choice_;
  struct Count {
    std::int32_t token;
    std::int32_t num_generated;
  };
  std::vector<std::uint32_t> allowed_;  // a mask of allowed_token_ids; empty: all
  std::vector<Count> counts_;           // prompt and generated tokens by id; filled if a penalty needs it
  std::size_t num_counted_;             // tokens in counts_; a row's further tokens are drafts
  float surprise_bound_;                // mirostat: in bits
  float drawn_weight_ = 0.0F;           // adaptive-p: decayed sum of drawn probabilities, and of ones
  float drawn_total_ = 0.0F;
};

struct SampleRow {
  std::span<float> logits;  // [vocab_size], overwritten unless other rows share them
  bool is_shared = false;
  const SamplerState* state = nullptr;
  std::span<const TokenId> tokens;  // prompt and generated: the new token follows them
  std::int64_t num_prompt_tokens = 0;
  std::span<const std::uint32_t> mask;  // a grammar's mask; empty: none
  DrawnToken drawn = {};

  RowRandom random() const { return {state->seed_, state->choice_, static_cast<std::int64_t>(tokens.size())}; }
};

class Sampler {
 public:
  // Reserves memory to sample from rows of `vocab_size` after sequences of up to `max_tokens`; more is allocated when
  // needed.
  explicit Sampler(Backend& backend, std::int64_t vocab_size = 0, std::int64_t max_tokens = 0);

  void sample(std::span<SampleRow> rows);

  // The logprob of `token` in a row of logits, with the `num_top` most likely ones.
  static TokenLogprob logprob_of(std::span<const float> logits, TokenId token, std::int32_t num_top);

 private:
  struct Scratch {
    Candidates candidates;
    std::vector<std::int32_t> ids;
    std::vector<double> chunk_sums;
    std::vector<float> raw;     // the model's own logits, if logprobs are requested
    std::vector<float> shared;  // a copy to overwrite, if other rows need the same logits
    SamplerState::Scratch state;
    std::vector<double> deviations;
  };

  friend class SamplerChain;
  static void sample_row(SampleRow& row, Scratch& scratch);
  static std::int32_t draw(const SampleRow& row, Maximum maximum, Scratch& scratch);
  static std::optional<SamplerStep> collect(std::span<const float> logits, float maximum, const SamplingParams& params,
                                            bool xtc, Scratch& scratch);
  std::unique_ptr<Scratch> take_scratch();
  void give_scratch(std::unique_ptr<Scratch> scratch);

  Backend& backend_;
  std::mutex scratch_mutex_;
  std::vector<std::unique_ptr<Scratch>> scratch_;  // per compute thread, kept between steps
};

}  // namespace quire
