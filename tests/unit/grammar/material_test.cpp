// The cases of others: real schemas with instances, the official suite against what llguidance passes, and xgrammar's
// texts.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/material.h"
#include "tests/unit/grammar/support/check.h"

namespace quire::test {
namespace {

using Json = nlohmann::json;

// Every n-th case; QUIRE_TEST_ALL checks them all, which takes minutes.
std::size_t stride(std::size_t n) {
  return std::getenv("QUIRE_TEST_ALL") != nullptr ? 1 : n;
}

// Every step-th schema from the first-th on.
void check_schemas(std::size_t first, std::size_t step) {
  QUIRE_REQUIRE_MATERIAL(path, "json-schema/maskbench.dev.jsonl.gz");
  const GrammarCompiler compiler(byte_vocabulary());
  const auto lines = read_lines(path);
  std::size_t num_checked = 0;
  std::size_t num_clean = 0;
  for (std::size_t i = first; i < lines.size(); i += step) {
    const Json record = Json::parse(lines[i]);
    ++num_checked;
    const auto grammar = compiler.compile(schema_spec(record["schema"].dump()));
    if (!grammar) continue;
    for (const Json& test : record["tests"]) {
      INFO(record["id"] << ": " << test["data"].dump());
      CHECK(accepts(**grammar, test["data"].dump()) == test["valid"].get<bool>());
    }
    ++num_clean;
  }
  CHECK(num_clean * 100 >= num_checked * 90);
}

TEST_CASE("real schemas are clean or refused, and never wrong") {
  check_schemas(0, stride(21));
}

TEST_CASE("more real schemas are clean or refused, and never wrong", "[.long]") {
  check_schemas(7, stride(10));
}

TEST_CASE("instances are accepted however they are usually written") {
  QUIRE_REQUIRE_MATERIAL(path, "json-schema/maskbench.dev.jsonl.gz");
  const GrammarCompiler compiler(byte_vocabulary());
  const auto lines = read_lines(path);
  for (std::size_t i = 7; i < lines.size(); i += stride(211)) {
    const Json record = Json::parse(lines[i]);
    const auto grammar = compiler.compile(schema_spec(record["schema"].dump()));
    if (!grammar) continue;
    for (const Json& test : record["tests"]) {
      const bool valid = test["valid"].get<bool>();
      CHECK(accepts(**grammar, test["data"].dump(2)) == valid);
      CHECK(accepts(**grammar, test["data"].dump(-1, ' ', true)) == valid);
    }
  }
}

TEST_CASE("the official suite passes wherever llguidance does") {
  QUIRE_REQUIRE_MATERIAL(root, "json-schema/JSON-Schema-Test-Suite/tests");
  QUIRE_REQUIRE_MATERIAL(
      reference_path, "json-schema/llguidance-reference/json_schema_test_suite/expected_json_schema_test_suite.json");
  const Json reference = Json::parse(read_file(reference_path));
  const GrammarCompiler compiler(byte_vocabulary());
  for (const auto& [draft, files] : reference.items()) {
    for (const auto& [file, groups] : files.items()) {
      const auto path = root / draft / (file + ".json");
      if (!std::filesystem::exists(path)) continue;
      for (const Json& group : Json::parse(read_file(path))) {
        const auto known = groups.find(group["description"].get<std::string>());
        if (known == groups.end() || !known->is_object()) continue;
        const auto grammar = compiler.compile(schema_spec(group["schema"].dump()));
        for (const Json& test : group["tests"]) {
          if (known->value(test["description"].get<std::string>(), Json()) != "pass") continue;
          INFO(draft << "/" << file << ": " << group["description"] << ": " << test["description"]);
          REQUIRE(grammar.has_value());
          CHECK(accepts(**grammar, test["data"].dump()) == test["valid"].get<bool>());
        }
      }
    }
  }
}

TEST_CASE("xgrammar's grammars take the texts that xgrammar takes") {
  QUIRE_REQUIRE_MATERIAL(path, "json-schema/xgrammar-acceptance.jsonl");
  const GrammarCompiler compiler(byte_vocabulary());
  for (const std::string& line : read_lines(path)) {
    const Json record = Json::parse(line);
    const std::string kind = record["kind"];
    GrammarSpec spec = schema_spec("{}");
    if (kind == "regex") spec = text_spec(GrammarSpec::Kind::kRegex, record["grammar"]);
    if (kind == "ebnf") {
      spec = text_spec(GrammarSpec::Kind::kEbnf, record["grammar"]);
      spec.root = record["options"].value("root_rule_name", "root");
    }
    if (kind != "regex" && kind != "ebnf" && kind != "builtin_json") continue;
    const auto grammar = compiler.compile(spec);
    INFO(record["id"] << ": " << record["input"]);
    REQUIRE(grammar.has_value());
    CHECK(accepts(**grammar, record["input"].get<std::string>()) == record["accepted"].get<bool>());
  }
}

}  // namespace
}  // namespace quire::test
