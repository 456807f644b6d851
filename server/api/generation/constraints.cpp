#include "server/api/generation/constraints.h"

#include <fmt/core.h>

#include <optional>

#include "core/grammar/compiler.h"
#include "server/api/fields/generation.h"

namespace quire {

namespace {

// A constraint found in a request: its field and the grammar to compile.
struct Demand {
  std::string field;
  GrammarSpec spec;
};

GrammarSpec spec_of(GrammarSpec::Kind kind, std::string text = {}) {
  GrammarSpec spec;
  spec.kind = kind;
  spec.text = std::move(text);
  return spec;
}

// A schema as an object, as true or false, or as JSON text.
std::optional<GrammarSpec> schema_spec(FieldReader& reader, const std::string& field, const Json& schema) {
  if (schema.is_object() || schema.is_boolean()) return spec_of(GrammarSpec::Kind::kJsonSchema, dump_json(schema));
  if (schema.is_string()) return spec_of(GrammarSpec::Kind::kJsonSchema, schema.get<std::string>());
  reader.fail(field, fmt::format("'{}' must be a JSON schema", field), "invalid_type");
  return std::nullopt;
}

// vLLM's guided_grammar comes in two notations; "::=" is only in one of them.
GrammarSpec grammar_spec(std::string text) {
  const bool gbnf = text.find("::=") != std::string::npos;
  return spec_of(gbnf ? GrammarSpec::Kind::kGbnf : GrammarSpec::Kind::kEbnf, std::move(text));
}

class DemandReader {
 public:
  explicit DemandReader(FieldReader& reader) : reader_(reader) {}

  std::optional<Demand> read() {
    read_response_format();
    if (const Json* outputs = reader_.object(fields::generation::kStructuredOutputs)) {
      FieldReader inner(*outputs, "structured_outputs.");
      read_kinds(inner, {"json", "regex", "choice", "grammar", "json_object"});
      read_tag_text(inner);
      inner.refuse("whitespace_pattern", "white space is that of JSON, or none by 'disable_any_whitespace'");
      const bool compact = inner.boolean("disable_any_whitespace", false);
      if (compact && demand_) demand_->spec.compact = true;
      inner.refuse_unless("disable_additional_properties", false, "the schema says it");
      take_error(reader_, inner);
    }
    read_kinds(reader_,
               {fields::generation::kGuidedJson, fields::generation::kGuidedRegex, fields::generation::kGuidedChoice,
                fields::generation::kGuidedGrammar, fields::generation::kGuidedJsonObject});
    reader_.refuse(fields::generation::kGuidedWhitespacePattern);
    // SGLang's two fields.
    if (auto text = reader_.string(fields::generation::kRegex))
      add("regex", spec_of(GrammarSpec::Kind::kRegex, std::move(*text)));
    if (auto text = reader_.string(fields::generation::kEbnf)) add("ebnf", grammar_spec(std::move(*text)));
    // llama-server's two fields.
    if (auto text = reader_.string(fields::generation::kGrammar); text && !text->empty()) {
      add("grammar", spec_of(GrammarSpec::Kind::kGbnf, std::move(*text)));
    }
    if (const Json* schema = reader_.find(fields::generation::kJsonSchema)) add_schema(reader_, "json_schema", *schema);
    return std::move(demand_);
  }

 private:
  struct KindNames {
    FieldName schema, regex, choice, grammar, json_object;
  };

  void read_kinds(FieldReader& from, const KindNames& names) {
    if (const Json* schema = from.find(names.schema))
      add_schema(from, std::string(std::string_view(names.schema)), *schema);
    if (auto text = from.string(names.regex)) {
      add(from.path(names.regex), spec_of(GrammarSpec::Kind::kRegex, std::move(*text)));
    }
    constexpr auto kMost = static_cast<std::size_t>(fields::generation::kGuidedChoice.type.most);
    if (auto choices = from.strings(names.choice, kMost)) {
      if (choices->empty())
        from.fail(names.choice, fmt::format("'{}' must not be empty", std::string_view(names.choice)));
      GrammarSpec spec = spec_of(GrammarSpec::Kind::kChoice);
      spec.choices = std::move(*choices);
      add(from.path(names.choice), std::move(spec));
    }
    if (auto text = from.string(names.grammar)) add(from.path(names.grammar), grammar_spec(std::move(*text)));
    if (from.boolean(names.json_object, false)) {
      add(from.path(names.json_object), spec_of(GrammarSpec::Kind::kJsonObject));
    }
  }

  void read_response_format() {
    const Json* format = reader_.object(fields::generation::kResponseFormat);
    if (format == nullptr) return;
    FieldReader inner(*format, "response_format.");
    const auto type = inner.word("type", {"text", "json_object", "json_schema", "structural_tag"});
    if (!type) inner.missing("type");
    if (type == "structural_tag") {
      auto spec = read_structural_tag(inner);
      take_error(reader_, inner);
      if (spec) add("response_format", *std::move(spec));
      return;
    }
    // llama-server lets a schema stand beside both types.
    const Json* schema = inner.find("schema");
    std::string field = "response_format.schema";
    if (type == "json_schema" && inner.has("json_schema")) {
      if (const Json* named = inner.object("json_schema")) {
        FieldReader members(*named, "response_format.json_schema.");
        members.string("name");
        members.string("description");
        members.boolean("strict");
        schema = members.find("schema");
        field = "response_format.json_schema.schema";
        take_error(reader_, members);
      }
    }
    if (type == "json_schema" && schema == nullptr && !inner.error()) {
      inner.fail("json_schema", "'response_format.json_schema.schema' is required", "missing_required_parameter");
    }
    take_error(reader_, inner);
    if (reader_.error() || type == "text") return;
    if (schema != nullptr) {
      add_schema(reader_, field, *schema);
    } else {
      add(field, spec_of(GrammarSpec::Kind::kJsonObject));
    }
  }

  // vLLM's structured_outputs has the tag as JSON text.
  void read_tag_text(FieldReader& from) {
    const Json* given = from.find("structural_tag");
    if (given == nullptr) return;
    const auto parsed = given->is_string() ? parse_json(given->get_ref<const std::string&>()) : Result<Json>(*given);
    if (!parsed || !parsed->is_object())
      return from.fail("structural_tag", "'structured_outputs.structural_tag' must be a JSON object, or its text");
    FieldReader tag(*parsed, from.path("structural_tag."));
    auto spec = read_structural_tag(tag);
    take_error(from, tag);
    if (spec) add(from.path("structural_tag"), *std::move(spec));
  }

  void add_schema(FieldReader& from, const std::string& field, const Json& schema) {
    if (auto spec = schema_spec(from, field, schema)) add(from.path(field), std::move(*spec));
  }

  void add(const std::string& field, GrammarSpec spec) {
    if (demand_) {
      return reader_.fail(field, fmt::format("'{}' and '{}' both constrain the text", demand_->field, field));
    }
    demand_ = Demand{field, std::move(spec)};
  }

  FieldReader& reader_;
  std::optional<Demand> demand_;
};

}  // namespace

std::shared_ptr<const TextConstraint> compile_constraint(FieldReader& reader, const ServedModel& model,
                                                         const std::string& field, GrammarSpec spec) {
  if (model.grammar_compiler == nullptr) {
    reader.fail(field, "This model has no constrained decoding", "unsupported_parameter");
    return nullptr;
  }
  auto grammar = model.grammar_compiler->compile(spec, reader.limit());
  if (grammar) return std::make_shared<const TextConstraint>(TextConstraint{field, std::move(spec), *grammar});
  const Error& error = grammar.error();
  if (error.kind != ErrorKind::kInvalidRequest) {
    reader.fail(error);
    return nullptr;
  }
  reader.fail(field + error.param,
              fmt::format("'{}' cannot be enforced: {}{}{}", field, error.message, error.param.empty() ? "" : " at ",
                          error.param),
              error.code.empty() ? "invalid_schema" : error.code);
  return nullptr;
}

std::shared_ptr<const TextConstraint> read_constraint(FieldReader& reader, const ServedModel& model) {
  const auto demand = DemandReader(reader).read();
  if (!demand || reader.error()) return nullptr;
  return compile_constraint(reader, model, demand->field, demand->spec);
}

}  // namespace quire
