// Random schemas and grammars: texts sampled under the masks are valid, valid texts in conventional form are accepted,
// and nothing crashes, hangs or exceeds its limits.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/unit/grammar/support/check.h"
#include "tests/unit/grammar/support/validator.h"

namespace quire::test {
namespace {

using Json = nlohmann::json;

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  bool chance(int percent) { return below(100) < percent; }
  std::string name() { return std::string(1, static_cast<char>('a' + below(4))) + (chance(30) ? "b" : ""); }

  Json value(int depth) {
    switch (below(depth > 0 ? 8 : 6)) {
      case 0: return nullptr;
      case 1: return chance(50);
      case 2: return below(12) - 4;
      case 3: return (below(40) - 20) / 4.0;
      case 4: return name();
      case 5: return chance(50) ? "" : "x" + name() + "é";
      case 6: {
        Json array = Json::array();
        for (int i = below(4); i > 0; --i)
          array.push_back(value(depth - 1));
        return array;
      }
      default: {
        Json object = Json::object();
        for (int i = below(4); i > 0; --i)
          object[name()] = value(depth - 1);
        return object;
      }
    }
  }

  Json schema(int depth) {
    if (chance(8)) return chance(80);
    Json s = Json::object();
    if (chance(60)) s["type"] = one_of({"null", "boolean", "integer", "number", "string", "array", "object", "object"});
    const std::string type = s.value("type", "");
    if (type == "integer" || type == "number" || chance(10)) numbers(s);
    if (type == "string" || chance(10)) strings(s);
    if (type == "array" || chance(10)) arrays(s, depth);
    if (type == "object" || chance(15)) objects(s, depth);
    if (chance(8)) s["enum"] = Json::array({value(1), value(1), value(1)});
    if (chance(4)) s["const"] = value(1);
    if (depth > 0 && chance(25)) combine(s, depth);
    if (chance(5)) s["$ref"] = "#/$defs/d";
    return s;
  }

 private:
  std::string one_of(const std::vector<std::string>& list) {
    return list[static_cast<std::size_t>(below(static_cast<int>(list.size())))];
  }

  void numbers(Json& s) {
    if (chance(40)) s["minimum"] = below(10) - 5;
    if (chance(30)) s["maximum"] = (below(40) - 10) / 4.0;
    if (chance(15)) s["exclusiveMinimum"] = below(6) - 3;
    if (chance(15)) s["multipleOf"] = below(4) == 0 ? 0.5 : 1.0 + below(4);
  }

  void strings(Json& s) {
    if (chance(30)) s["minLength"] = below(4);
    if (chance(30)) s["maxLength"] = 1 + below(5);
    if (chance(30)) s["pattern"] = one_of({"^[a-c]+$", "b", "^x", "^(ab)*$", "a.?b|^$", "[^a]$"});
  }

  void arrays(Json& s, int depth) {
    if (depth > 0 && chance(60)) s["items"] = schema(depth - 1);
    if (depth > 0 && chance(20)) s["prefixItems"] = Json::array({schema(depth - 1), schema(depth - 1)});
    if (chance(25)) s["minItems"] = below(3);
    if (chance(25)) s["maxItems"] = 1 + below(3);
    if (depth > 0 && chance(15)) {
      s["contains"] = schema(depth - 1);
      if (chance(40)) s["maxContains"] = 1 + below(2);
      if (chance(40)) s["minContains"] = below(3);
    }
    if (chance(15)) s["uniqueItems"] = true;
  }

  void objects(Json& s, int depth) {
    for (int i = below(4); i > 0 && depth > 0; --i)
      s["properties"][name()] = schema(depth - 1);
    if (depth > 0 && chance(20)) s["patternProperties"][one_of({"^a", "b$", "^[cd]$"})] = schema(depth - 1);
    if (depth > 0 && chance(40)) s["additionalProperties"] = chance(50) ? Json(false) : schema(depth - 1);
    if (chance(40)) s["required"] = Json::array({name()});
    if (chance(15)) s["minProperties"] = below(3);
    if (chance(15)) s["maxProperties"] = 1 + below(3);
    if (chance(8)) s["propertyNames"] = {{"pattern", "^[ab]"}};
    if (chance(8)) s["dependentRequired"] = {{name(), {name()}}};
  }

  void combine(Json& s, int depth) {
    switch (below(5)) {
      case 0: s["allOf"] = Json::array({schema(depth - 1), schema(depth - 1)}); break;
      case 1: s["anyOf"] = Json::array({schema(depth - 1), schema(depth - 1)}); break;
      case 2: s["oneOf"] = Json::array({schema(depth - 1), schema(depth - 1)}); break;
      case 3: s["not"] = schema(depth - 1); break;
      default:
        s["if"] = schema(depth - 1);
        s["then"] = schema(depth - 1);
        s["else"] = schema(depth - 1);
    }
  }

  std::mt19937 random_;
};

// Samples a text under the mask, ending as soon as it may once it has grown; empty where it grew too long.
std::string sample(const Grammar& grammar, Generator& generator) {
  const auto state = grammar.start();
  const auto& vocabulary = *byte_vocabulary();
  const TokenId end = vocabulary.end_tokens().front();
  std::string text;
  while (text.size() < 400) {
    const auto mask = mask_of(*state, vocabulary);
    if (in_mask(mask, end) && (generator.chance(40) || state->finished())) return text;
    std::vector<TokenId> allowed;
    for (std::int32_t byte = 0; byte < 256; ++byte) {
      if (!in_mask(mask, TokenId{byte})) continue;
      // Endings are likelier than more of the same, or samples would hardly end.
      const bool closes = byte == '"' || byte == '}' || byte == ']' || byte == ',';
      allowed.insert(allowed.end(), closes ? 20 : byte <= ' ' || byte == '\\' || byte >= 0x80 ? 1 : 3, TokenId{byte});
    }
    REQUIRE((!allowed.empty() || in_mask(mask, end)));
    if (allowed.empty()) return text;
    const TokenId chosen = allowed[static_cast<std::size_t>(generator.below(static_cast<int>(allowed.size())))];
    REQUIRE(state->accept(chosen));
    text += vocabulary.bytes(chosen);
  }
  return {};
}

// Whether the text spells a number that a double may not hold, so that the validator would judge another one.
bool beyond_doubles(const std::string& text) {
  std::size_t digits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    digits = digit || (digits > 0 && text[i] == '.') ? digits + 1 : 0;
    if (digits > 14 || (i > 0 && (text[i] == 'e' || text[i] == 'E') && text[i - 1] >= '0' && text[i - 1] <= '9'))
      return true;
  }
  return false;
}

TEST_CASE("random schemas: samples are valid, valid values are accepted, others are not") {
  const GrammarCompiler compiler(byte_vocabulary());
  int num_compiled = 0;
  int num_sampled = 0;
  for (unsigned seed = 0; seed < 700; ++seed) {
    Generator generator(seed);
    Json schema = generator.schema(3);
    if (!schema.is_object()) continue;
    schema["$defs"]["d"] = {{"type", "array"}, {"items", {{"type", {"integer", "null"}}}}};
    INFO("seed " << seed << ": " << schema.dump());
    const auto grammar = compiler.compile(schema_spec(schema.dump()));
    if (!grammar) continue;
    ++num_compiled;
    for (int i = 0; i < 6; ++i) {
      const std::string text = sample(**grammar, generator);
      if (text.empty()) continue;
      ++num_sampled;
      const Json value = Json::parse(text, nullptr, false);
      INFO("sampled " << text);
      if (beyond_doubles(text)) continue;
      REQUIRE_FALSE(value.is_discarded());
      CHECK(validates(value, schema, schema));
    }
    for (int i = 0; i < 12; ++i) {
      const Json value = generator.value(3);
      INFO("value " << value.dump());
      const bool accepted = accepts(**grammar, value.dump());
      // Integers are digits: 3.0 is one by the schema, and not written.
      const bool spelled_long = value.dump().find(".0") != std::string::npos;
      CHECK((accepted == validates(value, schema, schema) || (spelled_long && !accepted)));
    }
  }
  CHECK(num_compiled > 250);
  CHECK(num_sampled > 1000);
}

TEST_CASE("random grammars and expressions neither crash nor hang") {
  GrammarLimits limits;
  limits.max_steps = 2'000'000;
  const GrammarCompiler compiler(byte_vocabulary(), limits);
  Generator generator(99);
  const std::vector<std::string> pieces = {
      "root", "::=", "\"a\"", "[a-c]", "(",  ")", "|", "*", "+", "?", "{2,3}", "\n", " ", "b",      "\\d", "^",
      "$",    "(?!", "(?=",   "[^x]",  "\\", "é", "{", "}", "]", "[", "\"",    "#",  ".", "{0,60}", "\xFF"};
  int num_compiled = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string source = generator.chance(60) ? "root ::= " : "";
    for (int k = generator.below(12); k > 0; --k)
      source += pieces[static_cast<std::size_t>(generator.below(static_cast<int>(pieces.size())))];
    const auto kind = generator.chance(40)   ? GrammarSpec::Kind::kEbnf
                      : generator.chance(50) ? GrammarSpec::Kind::kGbnf
                                             : GrammarSpec::Kind::kRegex;
    const auto grammar = compiler.compile(text_spec(kind, source));
    if (!grammar) {
      CHECK_FALSE(grammar.error().message.empty());
      continue;
    }
    ++num_compiled;
    INFO(source);
    sample(**grammar, generator);
  }
  CHECK(num_compiled > 100);
}

TEST_CASE("what would cost too much is refused in time") {
  const std::string wide = "(a|b)*a(a|b){30}";
  CHECK_FALSE(refusal(text_spec(GrammarSpec::Kind::kRegex, wide)).empty());
  CHECK_FALSE(refusal(text_spec(GrammarSpec::Kind::kRegex, "((((a{1000}){1000}){1000}){1000})")).empty());
  std::string deep;
  for (int i = 0; i < 5000; ++i)
    deep += R"({"items":)";
  CHECK_FALSE(refusal(schema_spec(deep + "true" + std::string(5000, '}'))).empty());
  CHECK_FALSE(
      refusal(text_spec(GrammarSpec::Kind::kRegex, std::string(100000, '(') + std::string(100000, ')'))).empty());
  Json many = Json::array();
  for (int i = 0; i < 40; ++i) {
    many.push_back({{"type", "object"},
                    {"properties",
                     {{"p" + std::to_string(i), {{"type", "integer"}}}, {"q" + std::to_string(i), {{"minimum", 1}}}}}});
  }
  CHECK_FALSE(refusal(schema_spec(Json{{"oneOf", many}}.dump())).empty());
}

}  // namespace
}  // namespace quire::test
