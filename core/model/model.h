// Model: a transformer's graph over a Backend: token ids in, logits out. Engine thread only.
// Invariant: a row's logits depend only on its own sequence's tokens (see Backend's batch invariance).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace quire {

// Where a prompt's logprobs are asked for, the logits of its rows are kept, each as wide as the vocabulary: so many in
// one step, beside those that a token is drawn from.
inline constexpr std::int64_t kMaxPromptLogitRows = 64;

// One step as flat arrays, derived from a StepPlan. Rows of a sequence are consecutive.
struct ModelInput {
  std::span<const std::int32_t> token_ids;  // [rows]
  std::span<const std::int32_t> positions;  // [rows]
  AttentionBatch attention;
  std::span<const std::int32_t> logit_rows;  // rows whose logits are wanted, ascending
  StateStorage* states = nullptr;  // of models with recurrent layers, named by attention.state_ids
};

class Model {
 public:
  virtual ~Model() = default;

  // Logits of input.logit_rows: [logit_rows, vocab_size], valid until the next call.
  virtual MatrixView forward(const ModelInput& input, KvStorage& kv) = 0;
  // The final-norm hidden states of input.logit_rows instead of logits: [logit_rows, dim], for embeddings.
  virtual MatrixView forward_hidden(const ModelInput& input, KvStorage& kv) = 0;
  // A classifier's scores of input.logit_rows: [logit_rows, num_labels].
  virtual MatrixView forward_labels(const ModelInput& /*input*/, KvStorage& /*kv*/) { return {}; }

  virtual std::int64_t num_labels() const { return 0; }
  virtual std::int64_t state_floats() const { return 0; }  // that a sequence keeps of recurrent layers
  virtual std::int64_t vocab_size() const = 0;
  virtual std::int64_t hidden_size() const = 0;
  virtual std::int64_t max_context() const = 0;  // tokens, as the model's file says
  virtual KvLayout kv_layout() const = 0;        // num_blocks, block_size and dtype are the caller's to fill in
  // What a sequence keeps, as groups of layers.
  virtual std::vector<KvGroupSpec> kv_groups() const {
    const KvLayout all = kv_layout();
    return {{.num_layers = all.num_layers, .num_kv_heads = all.num_kv_heads, .head_dim = all.head_dim}};
  }
};

}  // namespace quire
