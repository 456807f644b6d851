// Adapters of random numbers for the matrices of a model, written in each form, and the model with them merged in. Any
// thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/model/formats/gguf/gguf.h"
#include "tests/unit/model/model_runner.h"

namespace quire::test {

// Alpha of all adapters in these tests.
inline constexpr float kAdapterAlpha = 6.0F;

// Writes a synthetic model.
std::shared_ptr<const GgufFile> write_model(const std::string& shape, const std::string& types,
                                            const std::filesystem::path& path);

// A change of one matrix, [outputs, rank] times [rank, inputs], or of a stack with one for each expert.
struct Change {
  std::string name;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  std::int64_t rank = 0;
  std::vector<float> down;
  std::vector<float> up;
  std::int64_t num_experts = 0;  // 0: no stack
};
Change random_change(const std::string& name, std::int64_t inputs, std::int64_t outputs, std::int64_t rank,
                     std::int64_t num_experts, unsigned seed);
// Random changes of all matrices of a layer (products, their parts, stacks of experts) and of a separate head. rank 0:
// random ranks from 1 to 9.
std::vector<Change> changes_of(const std::shared_ptr<const GgufFile>& model, unsigned seed, std::int64_t rank = 0);
// Reorders rows of queries and keys: Hugging Face has the halves of a head, Llama's GGUF files have pairs.
std::vector<Change> in_halves(std::vector<Change> changes, const GgufFile& model);
// The change of one expert, for the matrix with this name.
Change of_expert(const Change& stack, std::int64_t expert, const std::string& name);
// Outputs [first, first + count) of a stack.
Change part_of(const Change& stack, std::int64_t first, std::int64_t count, const std::string& name);

void write_adapter(const std::vector<Change>& changes, const std::string& architecture,
                   const std::filesystem::path& path);
// Writes an adapter like PEFT, with the alpha and the first change's rank in its configuration; names are those of a
// GGUF file or, from "layers." on, PEFT's own. A stack is written as for `target_parameters`; is_turned: for a
// parameter [outputs][inputs], by a release that takes its first dimension for the inputs. `settings`: more members of
// the configuration, or other values, as a JSON object.
void write_peft(const std::vector<Change>& changes, const std::filesystem::path& directory, bool is_turned = false,
                const std::string& settings = "{}");
// Writes the model's file with the changes added to its f32 weights.
void write_merged(const std::filesystem::path& model, const std::vector<Change>& changes,
                  const std::filesystem::path& path);

std::vector<std::int32_t> tokens(std::int32_t count, std::int32_t first);
double difference(const Logits& a, const Logits& b);  // largest, relative to the largest of b
std::string text_of(const GgufFile& file, const char* key);

}  // namespace quire::test
