// BackendRunner: drives a Model over any Backend without scheduler or engine: some sequences, each in blocks of its
// own. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/model/layers/loaded_model.h"

namespace quire::test {

using Logits = std::vector<std::vector<float>>;  // logits of each token
using Tokens = std::vector<std::int32_t>;

class BackendRunner {
 public:
  BackendRunner(const LoadedModel& model, std::unique_ptr<Backend> backend, KvDType dtype = KvDType::kF16);

  // Computes the tokens of new sequences from position `context` on and returns the logits of all computed rows.
  Logits step(const std::vector<Tokens>& sequences, std::int32_t context = 0);
  // Computes a sequence in steps of at most `chunk` tokens.
  Logits chunked(const Tokens& ids, std::size_t chunk);

  Model& model() { return *model_; }
  Backend& backend() { return *backend_; }
  KvStorage& kv() { return *kv_; }

  // Changes the arrays of each step before they are computed.
  std::function<void(StepArrays&)> edit;
  std::int64_t num_computed = 0;  // rows of the last step

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvStorage> kv_;
};

// The largest of all rows, relative to the row's largest expected logit.
double difference(const Logits& logits, const Logits& expected);

Tokens some_tokens(std::int32_t count, std::int32_t first = 7);

}  // namespace quire::test
