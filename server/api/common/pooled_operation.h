// PooledOperation: a call that needs no new tokens from the engine: it computes a vector, scores or logits for each
// text and builds one body from them. One thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "server/api/common/field_reader.h"
#include "server/api/common/operation.h"
#include "server/api/common/served_model.h"

namespace quire {

// The result that is computed for each text.
struct PooledWants {
  Pooling pooling = Pooling::kNone;
  PooledOutput output = PooledOutput::kUnitVector;
  std::vector<TokenId> scored_tokens = {};
};

// A text, or a pair of texts as one.
struct PooledText {
  std::vector<TokenId> tokens;
  std::int64_t second_text = 0;  // start of the second text; 0: there is none
};

struct PooledAnswer {
  std::string id;
  std::int64_t created = 0;  // Unix seconds
  std::string model;
  std::int64_t num_tokens = 0;              // tokens of all texts
  std::vector<std::vector<float>> outputs;  // a result per text
  Json usage() const { return {{"prompt_tokens", num_tokens}, {"total_tokens", num_tokens}}; }
};

using PooledRender = std::function<Json(const PooledAnswer& answer)>;

// A body: the members of `head`, a list with an item for each text, the members of `tail`. The list is written item by
// item, without a tree of all of it.
struct PooledBody {
  PooledRender head;
  std::string list = {};  // the list's name; empty: `head` is the body
  std::function<Json(const PooledAnswer& answer, std::size_t index)> item = {};
  PooledRender tail = {};
};

class PooledOperation final : public Operation {
 public:
  PooledOperation(const ServedModel& model, std::vector<PooledText> texts, const PooledWants& wants, const Call& call,
                  std::string_view id_prefix, PooledBody body);

  void begin(std::string&) override {}
  Wanted on_event(std::size_t index, OutputEvent event, std::string&) override;
  void finish(std::string& out) override {
    while (append_part(out))
      ;
  }
  bool finish_part(std::string& out) override;
  AnswerSize answer_size() const override;
  void fail(const Error&, std::string&) override {}
  OperationSummary summary() const override { return {answer_.num_tokens, 0, 0, "", answer_.model}; }

 private:
  bool append_part(std::string& out);

  PooledAnswer answer_;
  PooledBody body_;
  std::size_t num_written_ = 0;  // items
};

// Truncation of a text that is too long: length and kept end.
struct TextTruncation {
  enum class Keep : std::uint8_t { kAll, kTokens, kWhatFits };
  Keep keep = Keep::kAll;
  std::int64_t num_tokens = 0;                         // with kTokens
  std::optional<bool> keeps_first;                     // absent: the end that suits the model
  std::int64_t limit(const ServedModel& model) const;  // most tokens to keep
};

// truncate_prompt_tokens and truncation_side as vLLM has them; truncate: true as text-embeddings-inference and "START"
// or "END" as Cohere has it.
TextTruncation read_text_truncation(FieldReader& reader);

// Cuts the text; an encoder's text keeps the special tokens around it. Errors, which name `param`: the text is empty,
// or longer than the model's context.
Result<std::vector<TokenId>> fitted(std::vector<TokenId> tokens, const TextTruncation& truncation,
                                    const ServedModel& model, const std::string& param);

// The vector's first dimensions, scaled to length 1 if `normalize` is set, like OpenAI's models.
std::vector<float> shortened(std::vector<float> vector, std::size_t dimensions, bool normalize);

// A vector as numbers, or as OpenAI's clients decode it: base64 of little-endian 32-bit floats.
Json vector_json(std::span<const float> vector, bool base64);

}  // namespace quire
