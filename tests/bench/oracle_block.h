// OracleBlock: a model whose own block (MTP) is computed whole, and whose drafts are then replaced by ones that are
// right with `percent` in a hundred: the gain of a trained block on a file of random weights. It looks at the first
// `num_looked_at` tokens of the vocabulary, as if texts used no others. Of one sequence at a time, whose text `follow`
// names. One thread at a time.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/model/layers/model.h"
#include "tests/support/oracle_drafter.h"

namespace quire::bench {

class OracleBlock final : public Model {
 public:
  OracleBlock(std::unique_ptr<Model> inner, std::uint32_t percent, std::int64_t num_looked_at)
      : inner_(std::move(inner)), percent_(percent), looked_at_{.begin = 0, .end = num_looked_at} {}

  // Sets the sequence to come: a prompt of `num_prompt` tokens, and the text after it.
  void follow(std::vector<TokenId> text, std::size_t num_prompt) {
    text_ = std::move(text);
    num_prompt_ = num_prompt;
  }

  MatrixView draft(const DraftArrays& arrays, KvStorage& kv) override {
    DraftArrays own = arrays;
    own.vocabulary = {&looked_at_, 1};
    const MatrixView logits = inner_->draft(own, kv);
    for (std::int64_t row = 0; row < logits.rows; ++row) {
      const auto next = static_cast<std::size_t>(arrays.positions[static_cast<std::size_t>(row)]) + 1 - num_prompt_;
      const TokenId token = test::oracle_draft(text_, next, percent_, static_cast<std::int32_t>(logits.cols));
      float* values = logits.data + row * logits.stride;
      values[token.value] = 2.0F * *std::max_element(values, values + logits.cols) + 100.0F;
    }
    return logits;
  }

  void reserve(std::int64_t max_rows, std::int64_t max_logit_rows) override {
    inner_->reserve(max_rows, max_logit_rows);
  }
  ModelOutput forward(const StepArrays& arrays, KvStorage& kv) override { return inner_->forward(arrays, kv); }
  DraftsBy drafts_by() const override { return inner_->drafts_by(); }
  std::int64_t max_draft_context() const override { return inner_->max_draft_context(); }
  std::int64_t state_floats() const override { return inner_->state_floats(); }
  std::int64_t vocab_size() const override { return inner_->vocab_size(); }
  std::int64_t hidden_size() const override { return inner_->hidden_size(); }
  std::int64_t max_context() const override { return inner_->max_context(); }
  KvLayout kv_layout() const override { return inner_->kv_layout(); }
  KvSplit kv_split() const override { return inner_->kv_split(); }

 private:
  const std::unique_ptr<Model> inner_;
  const std::uint32_t percent_;
  const OutputRange looked_at_;
  std::vector<TokenId> text_;
  std::size_t num_prompt_ = 0;
};

}  // namespace quire::bench
