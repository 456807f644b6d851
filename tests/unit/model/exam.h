// Exam: tiny models of an architecture with the outputs that another engine computed for them (material/architectures).
// One thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace quire::test {

struct ExamPrompt {
  std::vector<std::int32_t> ids;
  std::int64_t top_k = 0;
  std::vector<std::int32_t> top_ids;  // [ids][top_k]
  std::vector<float> top_values;
  std::vector<float> columns;  // [ids][ExamReference::columns]
  std::vector<float> lse;      // [ids]
  std::vector<float> last;     // the whole last row
  std::vector<std::int32_t> greedy;
  std::vector<double> greedy_gap;
  std::vector<float> embedding;
  double l2norm = 0.0;
};

struct ExamReference {
  bool is_embedding = false;
  std::string pooling;
  std::int64_t context = 0;  // context that the other engine served
  std::vector<std::int32_t> columns;
  std::vector<ExamPrompt> prompts;
};

ExamReference read_exam(const std::filesystem::path& reference_json);

struct ExamResult {
  double worst = 0.0;  // largest difference of a stored logit, or of an embedding over its length
  std::string where;   // place of the worst difference
  bool greedy_agrees = true;
};

// Compares a model's outputs with its reference; chunk 0: each prompt in one step.
ExamResult take_exam(const std::filesystem::path& model, const ExamReference& reference, std::size_t chunk,
                     bool with_greedy);

}  // namespace quire::test
