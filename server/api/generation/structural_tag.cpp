#include "server/api/generation/constraints.h"

#include <fmt/core.h>

#include <functional>
#include <string>
#include <utility>

namespace quire {

namespace {

constexpr std::size_t kMaxTags = 512;

std::string required_text(FieldReader& given, const char* name) {
  auto text = given.string(name);
  if (!text) given.missing(name);
  return text.value_or("");
}

std::string schema_text(FieldReader& given, const char* name) {
  const Json* schema = given.find(name);
  if (schema == nullptr) {
    given.missing(name);
    return {};
  }
  if (!schema->is_object() && !schema->is_boolean())
    given.fail(name, fmt::format("'{}' must be a JSON schema", given.path(name)), "invalid_type");
  return dump_json(*schema);
}

// Calls `read` with a reader of each object of an array.
void for_each_object(FieldReader& given, const char* name, const std::function<void(FieldReader&)>& read) {
  const Json* list = given.array(name);
  if (list == nullptr) return given.missing(name);
  if (list->empty() || list->size() > kMaxTags)
    return given.fail(name, fmt::format("'{}' must hold 1 to {} entries", given.path(name), kMaxTags));
  for (std::size_t i = 0; i < list->size() && !given.error(); ++i) {
    const std::string path = fmt::format("{}[{}]", name, i);
    if (!given.is_object(path, (*list)[i])) return;
    FieldReader inner((*list)[i], given.path(path + "."));
    read(inner);
    take_error(given, inner);
  }
}

void read_triggers(FieldReader& given, GrammarSpec& spec) {
  auto triggers = given.strings("triggers", kMaxTags);
  if (!triggers) given.missing("triggers");
  if (triggers && triggers->empty()) given.fail("triggers", "There must be a trigger");
  spec.triggers = std::move(triggers).value_or(std::vector<std::string>{});
}

GrammarSpec read_structures(FieldReader& given) {
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kStructural;
  for_each_object(given, "structures", [&](FieldReader& inner) {
    StructuralTag tag;
    tag.begin = required_text(inner, "begin");
    tag.schema = schema_text(inner, "schema");
    tag.end = required_text(inner, "end");
    spec.tags.push_back(std::move(tag));
  });
  read_triggers(given, spec);
  return spec;
}

StructuralTag read_tag(FieldReader& given) {
  StructuralTag tag;
  tag.begin = required_text(given, "begin");
  tag.end = required_text(given, "end");
  const Json* content = given.object("content");
  if (content == nullptr) {
    given.missing("content");
    return tag;
  }
  FieldReader inner(*content, given.path("content."));
  if (!inner.word("type", {"json_schema"})) inner.missing("type");
  tag.schema = schema_text(inner, "json_schema");
  take_error(given, inner);
  return tag;
}

void read_tags(FieldReader& given, GrammarSpec& spec) {
  for_each_object(given, "tags", [&](FieldReader& inner) { spec.tags.push_back(read_tag(inner)); });
  spec.required = given.boolean("at_least_one", false);
}

std::optional<GrammarSpec> read_format(FieldReader& given) {
  GrammarSpec spec;
  const auto type = given.word("type", {"any_text", "const_string", "json_schema", "regex", "grammar", "tag",
                                        "triggered_tags", "tags_with_separator"});
  if (!type) given.missing("type");
  if (given.error() || *type == "any_text") return std::nullopt;
  spec.kind = GrammarSpec::Kind::kStructural;
  if (*type == "const_string") {
    spec.kind = GrammarSpec::Kind::kChoice;
    spec.choices = {required_text(given, "value")};
  } else if (*type == "json_schema") {
    spec.kind = GrammarSpec::Kind::kJsonSchema;
    spec.text = schema_text(given, "json_schema");
  } else if (*type == "regex") {
    spec.kind = GrammarSpec::Kind::kRegex;
    spec.text = required_text(given, "pattern");
  } else if (*type == "grammar") {
    spec.text = required_text(given, "grammar");
    const bool gbnf = spec.text.find("::=") != std::string::npos;
    spec.kind = gbnf ? GrammarSpec::Kind::kGbnf : GrammarSpec::Kind::kEbnf;
  } else if (*type == "tag") {
    spec.tags.push_back(read_tag(given));
    spec.free_text = false;
    spec.required = true;
    spec.parallel = false;
  } else if (*type == "triggered_tags") {
    read_triggers(given, spec);
    read_tags(given, spec);
    spec.stops = given.boolean("stop_after_first", false);
    given.refuse_unless("excludes", Json::array(), "only triggers end the free text");
  } else {
    read_tags(given, spec);
    spec.free_text = false;
    spec.separator = required_text(given, "separator");
    spec.parallel = !given.boolean("stop_after_first", false);
  }
  return spec;
}

}  // namespace

std::optional<GrammarSpec> read_structural_tag(FieldReader& tag) {
  std::optional<GrammarSpec> spec;
  if (const Json* format = tag.object("format")) {
    FieldReader inner(*format, tag.path("format."));
    spec = read_format(inner);
    take_error(tag, inner);
  } else {
    spec = read_structures(tag);
  }
  if (tag.error()) return std::nullopt;
  return spec;
}

}  // namespace quire
