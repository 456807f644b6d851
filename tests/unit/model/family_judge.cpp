#include "tests/unit/model/family_judge.h"

#include <algorithm>
#include <cmath>

#include "core/model/layers/loaded_model.h"
#include "tests/unit/model/model_runner.h"
#include "tests/unit/model/reference/spec_reference.h"

namespace quire::test {

namespace {

std::vector<std::int32_t> tokens_of_a_sequence(std::int32_t count) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < count; ++i)
    ids.push_back((i * 101 + 7) % 380);
  return ids;
}

double difference(const Logits& got, const SpecReference::Rows& exact) {
  double worst = got.size() == exact.size() ? 0.0 : 1e9;
  double scale = 0.0;
  for (std::size_t row = 0; row < std::min(got.size(), exact.size()); ++row) {
    for (std::size_t i = 0; i < exact[row].size(); ++i) {
      scale = std::max(scale, std::fabs(exact[row][i]));
      const double d = std::fabs(exact[row][i] - static_cast<double>(got[row].at(i)));
      worst = d >= 0.0 ? std::max(worst, d) : 1e9;  // written so that a NaN counts as the worst
    }
  }
  return worst / scale;
}

}  // namespace

double deviation_of(const std::filesystem::path& path, const SynthSpec& shape, const std::filesystem::path& gguf,
                    const std::string& isa) {
  const auto model = open_model(path, false);
  const ModelSpec read = read_family_shape(*shape.family).spec;
  const SpecReference reference(read, *GgufFile::open(gguf));
  const std::vector<std::int32_t> ids = tokens_of_a_sequence(40);
  ModelRunner runner(*model, isa, KvDType::kF32, 1);
  if (read.num_labels > 0) {
    const Logits labels = runner.append_labels(ids);
    return difference({read.is_causal ? labels.back() : labels.front()}, {reference.labels(ids)});
  }
  if (!read.has_head) return difference(runner.append_hidden(ids), reference.embeddings(ids));
  return difference(read.is_causal ? runner.append_chunked(ids, 16) : runner.append(ids), reference.logits(ids));
}

}  // namespace quire::test
