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

// Where a prompt's logprobs are asked for, the logits of its rows are kept, each as wide as the vocabulary: so many in
// one step, beside those that a token is drawn from.
inline constexpr std::int64_t kMaxPromptLogitRows = 64;

// Consecutive rows of a step whose input is an embedding: a piece of media's.
struct EmbeddedRows {
  std::int64_t first_row = 0;  // index in the step
  // [rows, hidden_size * (1 + levels)] in the backend's memory: the input, then what is added to the outputs of the
  // first layers, one level each (deepstack, arXiv 2406.04334).
  MatrixView rows;
};

// Rows that attend to each other in both directions are computed in one step, and in one slice of it: at most so many.
inline constexpr std::int64_t kMostRowsOfSpan = 512;

// One step as flat arrays, derived from a StepPlan and unchanged until the step is done. Rows of a sequence are
// consecutive. A row's input is a token or an embedding.
struct StepArrays {
  std::span<const std::int32_t> token_ids{};  // [rows]; id < 0: what the step before drew for its place -id - 1
  std::span<const std::int32_t> positions{};  // [rows, positions_per_row]
  std::int64_t positions_per_row = 1;         // up to 3: time, height and width
  std::span<const EmbeddedRows> embedded{};   // in the order of their rows; their token ids are not read
  AttentionBatch attention{};
  std::span<const Adapter* const> adapters{};  // [sequences] null: none; empty: none at all
  std::span<const std::int8_t> token_types{};  // [rows] 1: of the second text of a pair; empty: all 0
  std::span<const std::int32_t> states{};      // [sequences] where a recurrent layer keeps its state; -1: nowhere
  StateStorage* state_storage = nullptr;  // of which those are; a sequence that begins here begins with an empty state

  AttentionBatch window{};              // as `attention`, of layers that keep parts of blocks
  KvStorage* window_storage = nullptr;  // of those parts; null: these layers keep as much as the others

  std::span<const std::int32_t> logit_rows{};   // rows whose logits are wanted, ascending
  std::span<const std::int32_t> hidden_rows{};  // rows whose hidden states after the last norm are wanted, ascending
  std::span<const std::int32_t> label_rows{};   // rows whose classifier scores are wanted, ascending
  std::span<const OutputRange> vocabulary{};    // tokens whose logits are wanted, others' may be -infinity; empty: all

  std::int64_t slice_rows = 0;                   // rows computed at once; 0: as many as the model likes
  const std::atomic<bool>* interrupt = nullptr;  // once true, the pass ends after the slice that it computes
  bool cuts_slices = false;  // or at once, between two of its layers: then that slice was computed for nothing

  std::int64_t num_rows() const { return static_cast<std::int64_t>(token_ids.size()); }
};

// Of the rows that were computed, the first of the step: all, unless the pass was interrupted.
struct ModelOutput {
  std::int64_t num_rows = 0;
  bool cut_slice = false;  // the pass ended within the slice behind those rows
  MatrixView logits;       // [logit_rows, vocab_size]
  MatrixView hidden;       // [hidden_rows, hidden_size]
  MatrixView labels;       // [label_rows, num_labels]
};

// What Model::draft() predicts with.
enum class DraftsBy : std::uint8_t {
  kNothing,
  kNextTokens,  // the file's own block that predicts the token after next (MTP)
  kModel,       // a smaller model of the same vocabulary
};

// Rows of one round of drafting, beyond which a drafting model takes memory for no more.
inline constexpr std::int64_t kMostDraftRows = 640;

// One round of drafting: the tokens after which some sequences are to go on, one behind the other. Rows of a sequence
// are consecutive: one, or of a drafting model all that it has not computed yet. Their K and V are kept at the slots
// that these tokens have.
struct DraftArrays {
  std::span<const std::int32_t> token_ids{};  // [rows]
  std::span<const std::int32_t> positions{};  // [rows]
  AttentionBatch attention{};
  std::span<const std::int32_t>
      logit_rows{};  // rows whose next token is predicted, each its sequence's last; ascending
  // [rows] where the hidden state before each token is: in the first round among the last pass's logit rows, then among
  // the rows of the round before.
  std::span<const std::int32_t> hidden_rows{};
  bool is_first = true;
  std::span<const OutputRange> vocabulary{};  // as in StepArrays

  std::int64_t num_rows() const { return static_cast<std::int64_t>(token_ids.size()); }
};

class Model {
 public:
  virtual ~Model() = default;

  // Takes the memory of steps of up to `max_rows` rows, of which the logits of up to `max_logit_rows` are wanted.
  virtual void reserve(std::int64_t max_rows, std::int64_t max_logit_rows) = 0;
  // Before reserve(): rows may have adapters of up to this rank.
  virtual void allow_adapters(std::int64_t /*max_rank*/) {}
  // Throws StartupError. Any thread, also while steps run; what it returns is used in steps of this model alone.
  virtual std::shared_ptr<const Adapter> load_adapter(const std::filesystem::path& path) const {
    throw StartupError(path.string() + ": this model takes no adapters");
  }
  // Enqueues the pass. Its results are complete after Backend::synchronize() and valid until the next call.
  virtual ModelOutput forward(const StepArrays& arrays, KvStorage& kv) = 0;

  // The logits of what follows the wanted rows, as drafts_by() has them: valid until the next call of either. Between
  // two passes. The file's own block takes one row of each sequence, and wants all of them.
  virtual MatrixView draft(const DraftArrays& /*arrays*/, KvStorage& /*kv*/) { return {}; }
  virtual DraftsBy drafts_by() const { return DraftsBy::kNothing; }
  virtual std::int64_t max_draft_context() const { return max_context(); }  // no row of draft() stands behind it

  virtual std::int64_t positions_per_row() const { return 1; }  // 3 for rows of media with M-RoPE
  virtual bool is_causal() const { return true; }               // false: a sequence is computed whole, in one step
  virtual bool has_head() const { return true; }                // false: no logits
  virtual std::int64_t num_labels() const { return 0; }
  virtual std::int64_t state_floats() const { return 0; }  // that a sequence keeps of recurrent layers
  virtual std::int64_t vocab_size() const = 0;
  virtual std::int64_t hidden_size() const = 0;
  virtual std::int64_t max_context() const = 0;  // tokens, as the model's file says
  virtual KvLayout kv_layout() const = 0;        // num_blocks, block_size and dtype are the caller's to fill in
  virtual KvSplit kv_split() const { return {}; }
};

}  // namespace quire
