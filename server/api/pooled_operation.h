// PooledOperation: a call that asks the engine for no new tokens: a vector, scores or logits of each of its texts, and
// one body made of them all. One thread at a time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "server/api/generation_fields.h"
#include "server/api/operation.h"

namespace quire {

// What is wanted of each text.
struct PooledWants {
  Pooling pooling = Pooling::kNone;
  PooledOutput output = PooledOutput::kUnitVector;
  std::vector<TokenId> scored_tokens = {};
};

struct PooledAnswer {
  std::string id;
  std::int64_t created = 0;  // Unix seconds
  std::string model;
  std::int64_t num_tokens = 0;              // of all texts
  std::vector<std::vector<float>> outputs;  // one per text
  Json usage() const { return {{"prompt_tokens", num_tokens}, {"total_tokens", num_tokens}}; }
};

using PooledRender = std::function<Json(const PooledAnswer& answer)>;

class PooledOperation final : public Operation {
 public:
  PooledOperation(const ServedModel& model, std::vector<std::vector<TokenId>> texts, const PooledWants& wants,
                  const Call& call, std::string_view id_prefix, PooledRender render);

  void begin(std::string&) override {}
  Wanted on_event(std::size_t index, OutputEvent event, std::string&) override;
  void finish(std::string& out) override { out += dump_json(render_(answer_)); }
  void fail(const Error&, std::string&) override {}
  OperationSummary summary() const override { return {answer_.num_tokens, 0, 0, "", answer_.model}; }

 private:
  PooledAnswer answer_;
  PooledRender render_;
};

// Cuts the text as `fields` say. Errors: it is empty, or longer than the model's context: `param` is named.
Result<std::vector<TokenId>> fitted(std::vector<TokenId> tokens, const GenerationFields& fields,
                                    const ServedModel& model, const std::string& param);

// A vector as numbers, or as OpenAI's clients decode it: base64 of little-endian 32-bit floats.
Json vector_json(std::span<const float> vector, bool base64);

}  // namespace quire
