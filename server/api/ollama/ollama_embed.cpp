#include "server/api/ollama/ollama.h"

#include <chrono>

#include "server/api/common/pooled_operation.h"
#include "server/api/fields/ollama.h"
#include "server/api/generation/prompt_list.h"
#include "server/api/ollama/ollama_request.h"

namespace quire {

namespace {

std::vector<PooledText> read_texts_of(FieldReader& reader, const ServedModel& model, const fields::Field& field,
                                      const TextTruncation& truncation) {
  std::vector<PooledText> texts;
  const Json* input = reader.find(field);
  // An empty input is not an error: it only loads the model.
  if (input == nullptr || *input == Json::array() || *input == "") return texts;
  for (Prompt& prompt : read_prompts(reader, field, model, "", truncation.keep != TextTruncation::Keep::kAll)) {
    auto text = fitted(std::move(prompt.tokens), truncation, model, std::string(field.name));
    if (!text) {
      reader.fail(field, text.error().message, text.error().code);
      break;
    }
    texts.push_back({*std::move(text)});
  }
  return texts;
}

std::shared_ptr<const ServedModel> bounded_model(FieldReader& reader, std::shared_ptr<const ServedModel> model) {
  FieldReader options(ollama_options(reader), "options.");
  model = with_num_ctx(options, std::move(model));
  take_error(reader, options);
  return model;
}

}  // namespace

Result<std::unique_ptr<Operation>> parse_ollama_embed(ModelCall& asked, const Call& call) {
  FieldReader& reader = asked.reader;
  const auto ready = Clock::now();
  const auto model = bounded_model(reader, asked.model);
  read_ollama_hints(reader);
  TextTruncation truncation;
  if (reader.boolean(fields::ollama::kTruncateText, true)) truncation = {TextTruncation::Keep::kWhatFits, 0, true};
  const auto size = model->info.hidden_size;
  const auto dimensions = static_cast<std::size_t>(reader.integer(fields::ollama::kDimensions, size).value_or(size));
  auto texts =
      reader.error() ? std::vector<PooledText>() : read_texts_of(reader, *model, fields::ollama::kInput, truncation);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  PooledBody body;
  body.head = [](const PooledAnswer& answer) { return Json{{"model", answer.model}}; };
  body.list = "embeddings";
  body.item = [dimensions](const PooledAnswer& answer, std::size_t index) {
    return vector_json(shortened(answer.outputs[index], dimensions, true), false);
  };
  body.tail = [ready, arrival = call.arrival](const PooledAnswer& answer) {
    const auto nanoseconds = [](Clock::duration time) {
      return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
    };
    return Json{{"total_duration", nanoseconds(Clock::now() - arrival)},
                {"load_duration", nanoseconds(ready - arrival)},
                {"prompt_eval_count", answer.num_tokens}};
  };
  return std::make_unique<PooledOperation>(*model, std::move(texts),
                                           PooledWants{model->info.pooling, PooledOutput::kUnitVector}, call, "embd-",
                                           std::move(body));
}

Result<std::unique_ptr<Operation>> parse_ollama_embeddings(ModelCall& asked, const Call& call) {
  FieldReader& reader = asked.reader;
  const auto model = bounded_model(reader, asked.model);
  read_ollama_hints(reader);
  reader.string(fields::ollama::kEmbeddedPrompt);
  const TextTruncation truncation{TextTruncation::Keep::kWhatFits, 0, true};
  auto texts = reader.error() ? std::vector<PooledText>()
                              : read_texts_of(reader, *model, fields::ollama::kEmbeddedPrompt, truncation);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  const auto render = [](const PooledAnswer& answer) {
    return Json{{"embedding", answer.outputs.empty() ? Json::array() : vector_json(answer.outputs.front(), false)}};
  };
  return std::make_unique<PooledOperation>(*model, std::move(texts),
                                           PooledWants{model->info.pooling, PooledOutput::kVector}, call, "embd-",
                                           PooledBody{render});
}

}  // namespace quire
