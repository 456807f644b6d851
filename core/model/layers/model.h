// Model: a transformer's graph over a Backend: the arrays of a step in, logits and hidden states out. Engine thread
// only. Invariants: a row's results depend only on its own sequence (see Backend's batch invariance); after reserve() a
// step allocates nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "core/base/result.h"
#include "kernels/backend.h"

namespace quire {

class Adapter;

// Most logit rows in a step for prompt logprobs, in addition to those that a token is drawn from: they are kept, each
// as wide as the vocabulary.
inline constexpr std::int64_t kMaxPromptLogitRows = 64;

// Consecutive rows of a step with embeddings as input: rows of a piece of media.
struct EmbeddedRows {
  std::int64_t first_row = 0;  // index in the step
  // [rows, hidden_size * (1 + levels)] in the backend's memory: the input, then an addend to each of the first layers'
  // outputs (deepstack, arXiv 2406.04334).
  MatrixView rows;
};

// Rows that attend to each other in both directions are computed in the same step and slice: at most this many.
inline constexpr std::int64_t kMostRowsOfSpan = 512;

// Flat arrays of a step, derived from a StepPlan and unchanged until the step is done. Rows of a sequence are
// consecutive. A row's input is a token or an embedding.
struct StepArrays {
  std::span<const std::int32_t> token_ids{};  // [rows]; id < 0: token that the previous step draws at index -id - 1
  std::span<const std::int32_t> positions{};  // [rows, positions_per_row]
  std::int64_t positions_per_row = 1;         // up to 3: time, height and width
  std::span<const EmbeddedRows> embedded{};   // in the order of their rows; their token ids are not read
  AttentionBatch attention{};
  std::span<const Adapter* const> adapters{};  // [sequences] null: none; empty: none at all
  std::span<const std::int8_t> token_types{};  // [rows] 1: the second text of a pair; empty: all 0
  std::span<const std::int32_t> states{};      // [sequences] place of a recurrent layer's state; -1: none
  StateStorage* state_storage = nullptr;       // their storage; sequences that begin here begin with an empty one

  AttentionBatch window{};              // the same for layers with a window
  KvStorage* window_storage = nullptr;  // window parts; null: these layers keep every token

  std::span<const std::int32_t> logit_rows{};   // rows whose logits are wanted, ascending
  std::span<const std::int32_t> hidden_rows{};  // rows whose hidden states after the last norm are wanted, ascending
  std::span<const std::int32_t> label_rows{};   // rows whose classifier scores are wanted, ascending
  std::span<const OutputRange> vocabulary{};    // tokens whose logits are wanted, others may be -infinity; empty: all

  std::int64_t slice_rows = 0;                   // rows computed at once; 0: the model's choice
  const std::atomic<bool>* interrupt = nullptr;  // once true, the pass ends after the current slice
  bool cuts_slices = false;                      // the pass then ends between two layers, and the current slice is lost

  std::int64_t num_rows() const { return static_cast<std::int64_t>(token_ids.size()); }
};

// Results of the step's first `num_rows` rows: all, unless the pass was interrupted.
struct ModelOutput {
  std::int64_t num_rows = 0;
  bool cut_slice = false;  // the pass ended inside the slice after these rows
  MatrixView logits;       // [logit_rows, vocab_size]
  MatrixView hidden;       // [hidden_rows, hidden_size]
  MatrixView labels;       // [label_rows, num_labels]
};

// The draft model used by Model::draft().
enum class DraftsBy : std::uint8_t {
  kNothing,
  kNextTokens,  // the file's own block that predicts the token after next (MTP)
  kModel,       // a smaller model of the same vocabulary
};

// Rows of a drafting round; a drafting model reserves memory for no more.
inline constexpr std::int64_t kMostDraftRows = 640;

// A round of drafting: the tokens of some sequences after which to continue. Rows of a sequence are consecutive: a
// single row, or for a drafting model all rows that it has not computed yet. Their K and V go to the slots of these
// tokens.
struct DraftArrays {
  std::span<const std::int32_t> token_ids{};  // [rows]
  std::span<const std::int32_t> positions{};  // [rows]
  AttentionBatch attention{};
  std::span<const std::int32_t> logit_rows{};  // rows to predict a token after, each its sequence's last; ascending
  // [rows] index of the hidden state before each token: in the first round among the last pass's logit rows, then among
  // the previous round's rows.
  std::span<const std::int32_t> hidden_rows{};
  bool is_first = true;
  std::span<const OutputRange> vocabulary{};  // see StepArrays

  std::int64_t num_rows() const { return static_cast<std::int64_t>(token_ids.size()); }
};

class Model {
 public:
  virtual ~Model() = default;

  // Allocates memory for steps of up to `max_rows` rows, of which up to `max_logit_rows` have logits.
  virtual void reserve(std::int64_t max_rows, std::int64_t max_logit_rows) = 0;
  // Called before reserve(): rows may have adapters of up to this rank.
  virtual void allow_adapters(std::int64_t /*max_rank*/) {}
  // Throws StartupError. Any thread, also while steps run; the adapter is used in steps of this model only.
  virtual std::shared_ptr<const Adapter> load_adapter(const std::filesystem::path& path) const {
    throw StartupError(path.string() + ": this model takes no adapters");
  }
  // Enqueues the pass. Its results are complete after Backend::synchronize() and valid until the next call.
  virtual ModelOutput forward(const StepArrays& arrays, KvStorage& kv) = 0;

  // Runs a draft round by drafts_by(), between two passes: logits of the tokens after the wanted rows, valid until the
  // next call of either. The file's own block takes a row of each sequence, and all rows are wanted.
  virtual MatrixView draft(const DraftArrays& /*arrays*/, KvStorage& /*kv*/) { return {}; }
  virtual DraftsBy drafts_by() const { return DraftsBy::kNothing; }
  virtual std::int64_t max_draft_context() const { return max_context(); }  // draft() has no row beyond it

  virtual std::int64_t positions_per_row() const { return 1; }  // 3 for rows of media with M-RoPE
  virtual bool is_causal() const { return true; }               // false: a sequence is computed whole, in one step
  virtual bool has_head() const { return true; }                // false: no logits
  virtual std::int64_t num_labels() const { return 0; }
  virtual std::int64_t state_floats() const { return 0; }  // recurrent layers' state of a sequence
  virtual std::int64_t vocab_size() const = 0;
  virtual std::int64_t hidden_size() const = 0;
  virtual std::int64_t max_context() const = 0;  // tokens, by the model's file
  virtual KvLayout kv_layout() const = 0;        // the caller fills in num_blocks, block_size and dtype
  virtual KvSplit kv_split() const { return {}; }
};

}  // namespace quire
