// The trained models of several families (deploy/demo-model/families) against the scalar reference in double precision.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "core/model/layers/checkpoint.h"
#include "core/model/layers/loaded_model.h"
#include "tests/support/material.h"
#include "tests/unit/model/model_runner.h"
#include "tests/unit/model/reference/spec_reference.h"

using namespace quire;
using namespace quire::test;

namespace {

std::filesystem::path trained(const std::string& family) {
  return source_folder() / "deploy/demo-model/families" / ("quire-" + family + ".gguf");
}

struct Trained {
  explicit Trained(const std::string& family)
      : path(trained(family)),
        file(GgufFile::open(path)),
        spec(make_gguf_checkpoint(file, path.string(), false).spec),
        reference(spec, *file),
        model(open_model(path)) {}

  std::filesystem::path path;
  std::shared_ptr<const GgufFile> file;
  ModelSpec spec;
  SpecReference reference;
  std::shared_ptr<const LoadedModel> model;
};

std::vector<std::int32_t> ids_of(const LoadedModel& model, const std::string& text) {
  std::vector<std::int32_t> ids;
  for (const TokenId id : model.tokenizer()->encode(text, true, true))
    ids.push_back(id.value);
  return ids;
}

double farthest_logit(const std::vector<float>& got, const SpecReference::Vector& exact) {
  double worst = got.size() == exact.size() ? 0.0 : 1e9;
  for (std::size_t i = 0; i < std::min(got.size(), exact.size()); ++i)
    worst = std::max(worst, std::fabs(exact[i] - static_cast<double>(got[i])));
  return worst;
}

}  // namespace

// Activations of eight bits move logits of up to 20 by some tenths, and by more where experts near a tie change places;
// a wrong scale or order moves every row by several.
TEST_CASE("The trained families' logits are the scalar reference's", "[model][families][trained]") {
  constexpr double kRounding = 0.5;
  constexpr double kRoundingOfChoice = 2.5;
  constexpr double kMeanRounding = 0.3;
  const std::string text =
      "<|im_start|>user\nWhat is continuous batching, and why is it useful?<|im_end|>\n<|im_start|>assistant\n"
      "Continuous batching lets new requests join the batch";
  for (const char* family : {"hybrid", "experts", "windowed"}) {
    const Trained it(family);
    const auto ids = ids_of(*it.model, text);
    const auto exact = it.reference.logits(ids);
    for (const char* isa : {"scalar", kVectorIsa}) {
      INFO(family << " on " << isa);
      const Logits logits = ModelRunner(*it.model, isa, KvDType::kF32, 1).append_chunked(ids, 16);
      REQUIRE(logits.size() == exact.size());
      double worst = 0.0;
      double sum = 0.0;
      for (std::size_t row = 0; row < exact.size(); ++row) {
        const double difference = farthest_logit(logits[row], exact[row]);
        worst = std::max(worst, difference);
        sum += difference;
      }
      CHECK(worst < (it.spec.layers[0].feed_forward.num_experts > 0 ? kRoundingOfChoice : kRounding));
      CHECK(sum / static_cast<double>(exact.size()) < kMeanRounding);
      CHECK(argmax(logits.back()) == std::ranges::max_element(exact.back()) - exact.back().begin());
    }
  }
}

TEST_CASE("The trained reranker's scores are the scalar reference's", "[model][families][trained]") {
  constexpr double kRounding = 0.1;
  const Trained it("reranker");
  for (const char* text : {"what is a kv block?", "who made you?", "a server answers many users at once"}) {
    const auto ids = ids_of(*it.model, text);
    INFO(text);
    const Logits labels = ModelRunner(*it.model, kVectorIsa, KvDType::kF32, 1).append_labels(ids);
    CHECK(farthest_logit(labels.front(), it.reference.labels(ids)) < kRounding);
  }
}
