#include "server/api/embeddings.h"

#include <cmath>
#include <cstring>

#include "server/api/base64.h"
#include "server/api/generation_fields.h"
#include "server/api/prompt_list.h"

namespace quire {

namespace {

class EmbeddingOperation final : public Operation {
 public:
  EmbeddingOperation(const ServedModel& model, std::vector<Prompt> inputs, bool base64, std::size_t dimensions,
                     const Call& call)
      : model_name_(model.name), base64_(base64), dimensions_(dimensions), vectors_(inputs.size()) {
    queue_ = model.queue;
    const std::string id = make_id("embd-");
    for (Prompt& input : inputs) {
      auto request = std::make_shared<Request>();
      request->id = id + "-" + std::to_string(requests_.size());
      request->key_name = call.key_name;
      request->prompt = std::move(input.tokens);
      request->sampling.max_tokens = 1;
      request->pooling = model.info.pooling;
      request->arrival = call.arrival;
      num_tokens_ += static_cast<std::int64_t>(request->prompt.size());
      requests_.push_back(std::move(request));
    }
  }

  void begin(std::string&) override {}

  Wanted on_event(std::size_t index, OutputEvent event, std::string&) override {
    if (!event.embedding.empty()) vectors_[index] = shortened(std::move(event.embedding));
    if (!event.finish) return Wanted::kMore;
    if (event.finish->error) error_ = event.finish->error;
    if (!error_ && vectors_[index].empty()) {
      error_ = Error{ErrorKind::kInternal, "The embedding could not be computed", "internal_error", "", std::nullopt};
    }
    return Wanted::kNothing;
  }

  void finish(std::string& out) override {
    Json body{{"object", "list"}, {"data", Json::array()}, {"model", model_name_}};
    for (std::size_t i = 0; i < vectors_.size(); ++i) {
      body["data"].push_back(Json{{"object", "embedding"}, {"index", i}, {"embedding", vector_json(vectors_[i])}});
    }
    body["usage"] = {{"prompt_tokens", num_tokens_}, {"total_tokens", num_tokens_}};
    out += dump_json(body);
  }

  void fail(const Error&, std::string&) override {}
  OperationSummary summary() const override { return {num_tokens_, 0, 0, "", model_name_}; }

 private:
  // The first dimensions, of length 1 again: what OpenAI's models do.
  std::vector<float> shortened(std::vector<float> vector) const {
    if (vector.size() <= dimensions_) return vector;
    vector.resize(dimensions_);
    double square = 0.0;
    for (const float value : vector)
      square += static_cast<double>(value) * static_cast<double>(value);
    if (square > 0.0) {
      for (float& value : vector)
        value = static_cast<float>(static_cast<double>(value) / std::sqrt(square));
    }
    return vector;
  }

  Json vector_json(const std::vector<float>& vector) const {
    if (!base64_) return vector;
    // OpenAI's clients decode little-endian 32-bit floats.
    std::string raw(vector.size() * sizeof(float), '\0');
    std::memcpy(raw.data(), vector.data(), raw.size());
    return encode_base64(raw);
  }

  std::string model_name_;
  bool base64_;
  std::size_t dimensions_;
  std::int64_t num_tokens_ = 0;
  std::vector<std::vector<float>> vectors_;
};

}  // namespace

Result<std::unique_ptr<Operation>> parse_embeddings(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  std::vector<Prompt> inputs = read_prompts(reader, "input", *model);
  const bool base64 = reader.word("encoding_format", {"float", "base64"}) == "base64";
  const std::int64_t size = model->info.hidden_size;
  const std::int64_t dimensions = reader.integer("dimensions", 1, size).value_or(size);
  reader.string("user");
  GenerationFields fields;
  fields.max_tokens = 1;
  read_truncation(reader, fields);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  for (Prompt& input : inputs) {
    input.tokens = truncate_prompt(std::move(input.tokens), fields, *model);
    const auto room = resolve_max_tokens(static_cast<std::int64_t>(input.tokens.size()), 1, *model, "input");
    if (!room) return tl::make_unexpected(room.error());
  }
  return std::make_unique<EmbeddingOperation>(*model, std::move(inputs), base64, static_cast<std::size_t>(dimensions),
                                              call);
}

}  // namespace quire
