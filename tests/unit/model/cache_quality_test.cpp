// Cost of the cache's element type in quality: perplexity of the trained models on a fixed text.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "core/model/layers/loaded_model.h"
#include "tests/support/material.h"
#include "tests/unit/model/model_runner.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr std::size_t kSequenceTokens = 1000;
constexpr std::size_t kChunk = 100;
constexpr std::size_t kAllSequences = 100;

// Text as tokens; the models were trained to write the answers only.
struct Chats {
  std::vector<std::int32_t> ids;
  std::vector<bool> answers;

  void add(const LoadedModel& model, const std::string& text, bool is_answer) {
    for (const TokenId id : model.tokenizer()->encode(text, false, true)) {
      ids.push_back(id.value);
      answers.push_back(is_answer);
    }
  }
};

// Chats about the topics of the training, one after another.
Chats chats(const LoadedModel& model) {
  Chats out;
  std::string topic;
  const std::string file = read_file(source_folder() / "deploy/demo-model/corpus/topics_serving.txt");
  for (std::size_t at = 0; at < file.size();) {
    const std::size_t end = std::min(file.find('\n', at), file.size());
    const std::string line = file.substr(at, end - at);
    at = end + 1;
    const std::size_t colon = line.find(": ");
    if (line.starts_with("# ")) {
      topic = line.substr(2, line.find(" |") - 2);
      out.add(model, "<|endoftext|>", false);
    }
    if (line.starts_with("#") || colon == std::string::npos) continue;
    const std::string question = line.starts_with("what")  ? "What is " + topic + "?"
                                 : line.starts_with("why") ? "Why is that useful?"
                                                           : "How does it work?";
    out.add(model, "<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n", false);
    out.add(model, line.substr(colon + 2) + "<|im_end|>", true);
    out.add(model, "\n", false);
  }
  return out;
}

double negative_log_likelihood(const std::vector<float>& logits, std::int32_t id) {
  const auto top = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0;
  for (const float x : logits)
    sum += std::exp(static_cast<double>(x) - top);
  return std::log(sum) + top - static_cast<double>(logits[static_cast<std::size_t>(id)]);
}

// exp of the mean negative log-likelihood of the tokens of answers.
double perplexity(const LoadedModel& model, KvDType dtype, std::size_t num_sequences) {
  const Chats text = chats(model);
  ModelRunner runner(model, kVectorIsa, dtype);
  double total = 0.0;
  std::int64_t count = 0;
  for (std::size_t first = 0; first + kSequenceTokens <= text.ids.size() && first / kSequenceTokens < num_sequences;
       first += kSequenceTokens) {
    runner.reset();
    const std::span ids = std::span(text.ids).subspan(first, kSequenceTokens);
    const Logits logits = runner.append_chunked(ids, kChunk);
    runner.take_recording();  // or it grows
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      if (!text.answers[first + i + 1]) continue;
      total += negative_log_likelihood(logits[i], ids[i + 1]);
      ++count;
    }
  }
  return std::exp(total / static_cast<double>(count));
}

}  // namespace

TEST_CASE("A cache of int4 costs the trained models less than half a percent of perplexity",
          "[model][families][trained][.long]") {
  constexpr double kMostLoss = 0.005;
  for (const char* name :
       {"quire-demo", "families/quire-windowed", "families/quire-experts", "families/quire-hybrid"}) {
    const auto model = open_model(source_folder() / "deploy/demo-model" / (std::string(name) + ".gguf"));
    const double plain = perplexity(*model, KvDType::kF16, kAllSequences);
    const double narrow = perplexity(*model, KvDType::kI4, kAllSequences);
    INFO(name << ": f16 " << plain << ", int8 " << perplexity(*model, KvDType::kI8, kAllSequences) << ", int4 "
              << narrow);
    CHECK(narrow < plain * (1.0 + kMostLoss));
  }
}

TEST_CASE("A cache of int4 costs the demo model less than half a percent of perplexity", "[model][trained]") {
  const auto model = open_model(source_folder() / "deploy/demo-model/quire-demo.gguf");
  CHECK(perplexity(*model, KvDType::kI4, 3) < 1.005 * perplexity(*model, KvDType::kF16, 3));
}
