#include "server/api/pooling/pooling.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "server/api/fields/generation.h"
#include "server/api/fields/pooling.h"
#include "server/api/generation/prompt_list.h"
#include "server/api/pooling/pair_scoring.h"

namespace quire {

namespace {

PairOptions read_pair_options(FieldReader& reader) {
  PairOptions options;
  options.truncation = read_text_truncation(reader);
  options.max_document = reader.integer(fields::pooling::kMaxTokensPerDoc);
  options.instruction = reader.string(fields::pooling::kInstruction).value_or("");
  options.activated =
      reader.boolean(fields::pooling::kUseActivation, reader.boolean(fields::pooling::kActivation, true));
  if (const auto raw = reader.boolean(fields::pooling::kRawScores)) options.activated = !*raw;
  reader.string(fields::generation::kUser);
  return options;
}

// Reads a document of Cohere or Jina: a text, or an object with `text`.
std::string document_text(FieldReader& reader, const std::string& name, const Json& value) {
  const Json* text = &value;
  if (value.is_object()) {
    const auto member = value.find("text");
    text = member == value.end() ? nullptr : &*member;
  }
  if (text != nullptr && text->is_string()) return text->get<std::string>();
  reader.fail(name, fmt::format("'{}' must be a string or an object with a 'text'", name), "invalid_type");
  return {};
}

struct NamedText {
  std::string param;
  std::string text;
};

// Reads a text or a list of texts.
std::vector<NamedText> read_named_texts(FieldReader& reader, const fields::Field& field) {
  std::vector<NamedText> texts;
  const Json* value = reader.find(field);
  if (value == nullptr) {
    reader.missing(field);
  } else if (!value->is_array()) {
    texts.push_back({std::string(field.name), document_text(reader, std::string(field.name), *value)});
  } else if (value->empty()) {
    reader.fail(field, fmt::format("'{}' is empty", field.name));
  } else if (value->size() > kMaxPrompts) {
    reader.fail(field, fmt::format("'{}' holds more than {} texts", field.name, kMaxPrompts));
  } else {
    for (const Json& each : *value) {
      const std::string name = fmt::format("{}[{}]", field.name, texts.size());
      texts.push_back({name, document_text(reader, name, each)});
      if (reader.error()) break;
    }
  }
  return texts;
}

struct RerankForm {
  bool tei = false;  // text-embeddings-inference's own field and answer
  bool with_documents = false;
  std::size_t top_n = 0;
};

Json result_json(const RerankForm& form, std::size_t index, double score, const std::string& text) {
  if (form.tei) {
    Json result{{"index", index}, {"score", score}};
    if (form.with_documents) result["text"] = text;
    return result;
  }
  Json result{{"index", index}, {"relevance_score", score}};
  if (form.with_documents) result["document"] = {{"text", text}};
  return result;
}

// The best documents first; of equally good ones in their order.
Json results_json(const RerankForm& form, const std::vector<double>& scores, const std::vector<NamedText>& documents) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t left, std::size_t right) { return scores[left] > scores[right]; });
  Json results = Json::array();
  for (const std::size_t index : order) {
    if (results.size() == form.top_n) break;
    results.push_back(result_json(form, index, scores[index], documents[index].text));
  }
  return results;
}

RerankForm read_rerank_form(FieldReader& reader, const Call& call, std::size_t num_documents) {
  RerankForm form;
  form.tei = !reader.has(fields::pooling::kDocuments) && reader.has(fields::pooling::kTexts);
  // Cohere's second version gives documents back only where it is asked to, as does text-embeddings-inference.
  const bool by_default = !form.tei && call.path != "/v2/rerank";
  form.with_documents = form.tei ? reader.boolean(fields::pooling::kReturnText, false)
                                 : reader.boolean(fields::pooling::kReturnDocuments, by_default);
  const auto top_n = reader.integer(fields::pooling::kTopN);
  form.top_n = top_n ? static_cast<std::size_t>(*top_n) : num_documents;
  return form;
}

}  // namespace

Result<std::unique_ptr<Operation>> parse_rerank(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  std::vector<NamedText> queries = read_named_texts(reader, fields::pooling::kQuery);
  if (!reader.error() && queries.size() != 1)
    reader.fail(fields::pooling::kQuery, "'query' must be one text", "invalid_type");
  const bool named_texts = !reader.has(fields::pooling::kDocuments) && reader.has(fields::pooling::kTexts);
  const fields::Field& field = named_texts ? fields::pooling::kTexts : fields::pooling::kDocuments;
  std::vector<NamedText> documents = read_named_texts(reader, field);
  const RerankForm form = read_rerank_form(reader, call, documents.size());
  auto scoring = std::make_shared<PairScoring>(model, read_pair_options(reader));
  if (reader.error()) return tl::make_unexpected(*reader.error());
  for (const NamedText& document : documents) {
    const auto added = scoring->add(queries[0].text, queries[0].param, document.text, document.param);
    if (!added) return tl::make_unexpected(added.error());
  }
  const PooledWants wants = scoring->wants();
  auto texts = scoring->take_texts();
  const auto render = [form, scoring, documents = std::move(documents)](const PooledAnswer& answer) -> Json {
    Json results = results_json(form, scoring->scores(answer.outputs), documents);
    if (form.tei) return results;
    return Json{{"id", answer.id},
                {"object", "list"},
                {"model", answer.model},
                {"results", std::move(results)},
                {"usage", answer.usage()},
                {"meta", {{"api_version", {{"version", "2"}}}, {"billed_units", {{"search_units", 1}}}}}};
  };
  return std::make_unique<PooledOperation>(*model, std::move(texts), wants, call, "rerank-", PooledBody{render});
}

Result<std::unique_ptr<Operation>> parse_score(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  const bool named = !reader.has(fields::pooling::kText1) && reader.has(fields::pooling::kQueries);
  const auto first = read_named_texts(reader, named ? fields::pooling::kQueries : fields::pooling::kText1);
  const auto second = read_named_texts(reader, named ? fields::pooling::kDocuments : fields::pooling::kText2);
  auto scoring = std::make_shared<PairScoring>(model, read_pair_options(reader));
  if (!reader.error() && first.size() != 1 && first.size() != second.size()) {
    reader.fail(named ? fields::pooling::kQueries : fields::pooling::kText1,
                "The texts must be one to one, one to many, or as many as there are others");
  }
  if (reader.error()) return tl::make_unexpected(*reader.error());
  for (std::size_t i = 0; i < second.size(); ++i) {
    const NamedText& query = first[first.size() == 1 ? 0 : i];
    const auto added = scoring->add(query.text, query.param, second[i].text, second[i].param);
    if (!added) return tl::make_unexpected(added.error());
  }
  const PooledWants wants = scoring->wants();
  auto texts = scoring->take_texts();
  const auto render = [scoring](const PooledAnswer& answer) {
    const std::vector<double> scores = scoring->scores(answer.outputs);
    Json data = Json::array();
    for (std::size_t i = 0; i < scores.size(); ++i)
      data.push_back(Json{{"index", i}, {"object", "score"}, {"score", scores[i]}});
    return Json{{"id", answer.id},       {"object", "list"},        {"created", answer.created},
                {"model", answer.model}, {"data", std::move(data)}, {"usage", answer.usage()}};
  };
  return std::make_unique<PooledOperation>(*model, std::move(texts), wants, call, "score-", PooledBody{render});
}

}  // namespace quire
