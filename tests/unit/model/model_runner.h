// ModelRunner: drives a Model without scheduler or engine: one sequence, its blocks in a shuffled order. One thread at
// a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model/layers/loaded_model.h"
#include "tests/unit/model/recording_backend.h"
#include "tests/unit/model/reference/reference_model.h"

namespace quire::test {

using Logits = std::vector<std::vector<float>>;  // a row per token

class ModelRunner {
 public:
  ModelRunner(const LoadedModel& model, const std::string& isa, KvDType kv_dtype = KvDType::kF32, int threads = 2,
              const PackedCacheOptions& cache = {});
  // Runs on any backend, without recording.
  ModelRunner(const LoadedModel& model, std::unique_ptr<Backend> backend);
  ~ModelRunner();

  // Begins a new sequence.
  void reset();
  // Appends the tokens in one step; returns the logits of each.
  Logits append(std::span<const std::int32_t> ids);
  // Appends the tokens in one step; returns the logits of the last.
  std::vector<float> append_for_last(std::span<const std::int32_t> ids);
  // Appends the tokens in steps of at most `chunk`; returns the logits of each.
  Logits append_chunked(std::span<const std::int32_t> ids, std::size_t chunk);
  // Computes several new sequences in one step; returns the logits of each.
  std::vector<Logits> append_together(const std::vector<std::vector<std::int32_t>>& sequences);
  // Computes them in one step; returns the logits of each sequence's last token.
  Logits append_together_for_last(const std::vector<std::vector<std::int32_t>>& sequences);
  // Appends the tokens; returns the final hidden states.
  Logits append_hidden(std::span<const std::int32_t> ids);
  // Appends the tokens; returns a classifier's scores.
  Logits append_labels(std::span<const std::int32_t> ids);
  // Continues a fresh sequence greedily after `prompt`.
  std::vector<std::int32_t> greedy(std::span<const std::int32_t> prompt, std::size_t count);

  // The inputs of all matrix products since the last call.
  Recording take_recording() { return backend_.take(); }
  const std::vector<float>& embedded() const { return backend_.embedded(); }
  Model& model() { return *model_; }
  KvStorage& kv() { return *kv_; }

  // Called to change the arrays of each step before it is computed.
  std::function<void(StepArrays&)> edit;

 private:
  enum class Wanted { kLogits, kLastLogits, kHidden, kLabels };
  Logits step(const std::vector<std::span<const std::int32_t>>& sequences, std::int32_t context, Wanted wanted);

  void allocate(KvDType kv_dtype);

  RecordingBackend backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvStorage> kv_;
  std::unique_ptr<StateStorage> states_;  // null where the model has no recurrent layers
  std::int32_t context_ = 0;
};

// A level of vectors that every machine of this architecture has; tests of one level run on it.
#if defined(__aarch64__)
inline constexpr const char* kVectorIsa = "neon";
#else
inline constexpr const char* kVectorIsa = "avx2";
#endif

// The levels that this machine can run, and AMX's logic over emulated tiles if it has no AMX.
std::vector<std::string> supported_isa_levels();
std::string best_isa_level();  // best level of this processor
// Rounding of the inputs of a level's matrix products.
Rounding rounding_of(const std::string& isa);

std::int32_t argmax(std::span<const float> logits);

}  // namespace quire::test
