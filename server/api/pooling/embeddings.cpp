#include "server/api/pooling/pooling.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "server/api/common/pooled_operation.h"
#include "server/api/conversation/chat_prompt.h"
#include "server/api/fields/generation.h"
#include "server/api/fields/pooling.h"
#include "server/api/generation/prompt_fit.h"
#include "server/api/generation/prompt_list.h"
#include "server/api/pooling/probabilities.h"

namespace quire {

namespace {

// Prefix for each text: a named prompt of the model's file, or the prompt for Cohere's kind of input.
std::string prefix_of(FieldReader& reader, const ServedModel& model) {
  const auto& prompts = model.tasks.prompts;
  const auto named = [&](std::string_view name) -> const std::string* {
    const auto found =
        std::find_if(prompts.begin(), prompts.end(), [&](const auto& each) { return each.first == name; });
    return found == prompts.end() ? nullptr : &found->second;
  };
  if (const auto name = reader.string(fields::pooling::kPromptName)) {
    const std::string* prompt = named(*name);
    if (prompt == nullptr)
      reader.fail(fields::pooling::kPromptName, fmt::format("This model has no prompt named '{}'", *name));
    return prompt == nullptr ? "" : *prompt;
  }
  const auto type = reader.string(fields::pooling::kInputType);
  if (!type) return "";
  // A model without prompts reads all inputs alike.
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kKinds = {
      {{"search_query", "query"},
       {"search_document", "document"},
       {"search_document", "passage"},
       {"passage", "document"},
       {"document", "passage"},
       {"classification", "Classification"}}};
  if (const std::string* prompt = named(*type)) return *prompt;
  for (const auto& [kind, name] : kKinds) {
    const std::string* prompt = kind == *type ? named(name) : nullptr;
    if (prompt != nullptr) return *prompt;
  }
  return "";
}

// The texts of `input`, or the chat of `messages` as one text; cut, and short enough.
std::vector<PooledText> read_texts(FieldReader& reader, const ServedModel& model, const std::string& prefix) {
  std::vector<PooledText> texts;
  const TextTruncation truncation = read_text_truncation(reader);
  std::vector<Prompt> prompts;
  const bool is_chat = reader.has(fields::pooling::kMessages);
  const fields::Field& field = is_chat ? fields::pooling::kMessages : fields::pooling::kInput;
  if (is_chat && reader.has(fields::pooling::kInput)) {
    reader.fail(field, "'input' and 'messages' cannot both be given: each names the texts");
    return texts;
  }
  if (is_chat) {
    ChatPromptFields chat = read_chat_prompt_fields(reader);
    if (reader.error()) return texts;
    chat.is_bounded = truncation.keep == TextTruncation::Keep::kAll;
    const auto pieces = render_chat(reader, model, chat);
    if (!pieces) return texts;
    auto tokens = encode_prompt(*pieces, chat.add_special_tokens, !chat.is_bounded, model, std::string(field.name));
    if (!tokens) {
      reader.fail(field, tokens.error().message, tokens.error().code);
      return texts;
    }
    prompts.push_back({"", *std::move(tokens)});
  } else {
    prompts = read_prompts(reader, field, model, prefix);
  }
  for (Prompt& prompt : prompts) {
    auto text = fitted(std::move(prompt.tokens), truncation, model, std::string(field.name));
    if (!text) {
      reader.fail(field, text.error().message, text.error().code);
      break;
    }
    texts.push_back({*std::move(text)});
  }
  return texts;
}

struct VectorForm {
  bool base64 = false;
  bool normalize = true;
  std::size_t dimensions = 0;
};

VectorForm read_form(FieldReader& reader, const ServedModel& model) {
  const std::int64_t size = model.info.hidden_size;
  VectorForm form;
  form.base64 = reader.word(fields::pooling::kEncodingFormat) == "base64";
  form.dimensions = static_cast<std::size_t>(reader.integer(fields::pooling::kDimensions, size).value_or(size));
  form.normalize = reader.boolean(fields::pooling::kNormalize, true);
  reader.string(fields::generation::kUser);
  return form;
}

PooledOutput output_of(const VectorForm& form) {
  return form.normalize ? PooledOutput::kUnitVector : PooledOutput::kVector;
}

// vLLM's form of a list.
PooledBody list_body(std::function<Json(const PooledAnswer& answer, std::size_t index)> item) {
  PooledBody body;
  body.head = [](const PooledAnswer& answer) {
    return Json{{"id", answer.id}, {"object", "list"}, {"created", answer.created}, {"model", answer.model}};
  };
  body.list = "data";
  body.item = std::move(item);
  body.tail = [](const PooledAnswer& answer) { return Json{{"usage", answer.usage()}}; };
  return body;
}

Result<PooledWants> classifier_wants(const ServedModel& model) {
  if (model.tasks.num_labels > 0) return PooledWants{model.info.pooling, PooledOutput::kLabels};
  return invalid(fmt::format("The model '{}' has no classifier", model.name), "model", "unsupported_operation");
}

// The vectors of a text's tokens, which stand one after another.
Json rows_json(const std::vector<float>& rows, std::size_t width, bool base64) {
  Json list = Json::array();
  for (std::size_t at = 0; width > 0 && at + width <= rows.size(); at += width)
    list.push_back(vector_json(std::span(rows).subspan(at, width), base64));
  return list;
}

}  // namespace

Result<std::unique_ptr<Operation>> parse_embeddings(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  const std::string prefix = prefix_of(reader, *model);
  auto texts = read_texts(reader, *model, prefix);
  const VectorForm form = read_form(reader, *model);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  PooledBody body_form;
  body_form.head = [](const PooledAnswer&) { return Json{{"object", "list"}}; };
  body_form.list = "data";
  body_form.item = [form](const PooledAnswer& answer, std::size_t index) {
    return Json{
        {"object", "embedding"},
        {"index", index},
        {"embedding", vector_json(shortened(answer.outputs[index], form.dimensions, form.normalize), form.base64)}};
  };
  body_form.tail = [](const PooledAnswer& answer) { return Json{{"model", answer.model}, {"usage", answer.usage()}}; };
  return std::make_unique<PooledOperation>(*model, std::move(texts), PooledWants{model->info.pooling, output_of(form)},
                                           call, "embd-", std::move(body_form));
}

Result<std::unique_ptr<Operation>> parse_pooling(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  const std::string prefix = prefix_of(reader, *model);
  auto texts = read_texts(reader, *model, prefix);
  const VectorForm form = read_form(reader, *model);
  const std::string task = reader.word(fields::pooling::kTask).value_or("token_embed");
  if (task == "token_embed") reader.refuse(fields::pooling::kDimensions, "the vectors of tokens are not shortened");
  if (reader.error()) return tl::make_unexpected(*reader.error());
  PooledWants wants{task == "embed" ? model->info.pooling : Pooling::kEach, output_of(form)};
  if (task == "classify" || task == "score") {
    auto of_classifier = classifier_wants(*model);
    if (!of_classifier) return tl::make_unexpected(of_classifier.error());
    wants = *std::move(of_classifier);
  }
  const auto width = static_cast<std::size_t>(wants.pooling == Pooling::kEach ? model->info.hidden_size : 0);
  const auto item = [form, width](const PooledAnswer& answer, std::size_t index) {
    const std::vector<float>& output = answer.outputs[index];
    return Json{{"object", "pooling"},
                {"index", index},
                {"data", width > 0 ? rows_json(output, width, form.base64)
                                   : vector_json(shortened(output, form.dimensions, form.normalize), form.base64)}};
  };
  return std::make_unique<PooledOperation>(*model, std::move(texts), wants, call, "pool-", list_body(item));
}

Result<std::unique_ptr<Operation>> parse_classify(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  const std::string prefix = prefix_of(reader, *model);
  auto texts = read_texts(reader, *model, prefix);
  const bool activated =
      reader.boolean(fields::pooling::kUseActivation, reader.boolean(fields::pooling::kActivation, true));
  reader.string(fields::generation::kUser);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  const auto wants = classifier_wants(*model);
  if (!wants) return tl::make_unexpected(wants.error());
  const auto item = [activated, labels = model->tasks.labels](const PooledAnswer& answer, std::size_t index) {
    const std::vector<float>& output = answer.outputs[index];
    const std::vector<double> values = activated ? probabilities(output) : as_doubles(output);
    const auto best = static_cast<std::size_t>(std::max_element(values.begin(), values.end()) - values.begin());
    return Json{{"index", index},
                {"label", best < labels.size() ? Json(labels[best]) : Json()},
                {"probs", values},
                {"num_classes", values.size()}};
  };
  return std::make_unique<PooledOperation>(*model, std::move(texts), *wants, call, "classify-", list_body(item));
}

}  // namespace quire
