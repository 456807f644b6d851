#include <catch2/catch.hpp>

#include "tests/unit/grammar/support/check.h"

namespace quire::test {
namespace {

struct Cases {
  std::string schema;
  std::vector<std::string> valid;
  std::vector<std::string> invalid;
  std::vector<std::string> lost{};  // beginnings of no valid text
};

void check(const Cases& cases) {
  const auto grammar = compiled(schema_spec(cases.schema));
  for (const std::string& text : cases.valid) {
    INFO(cases.schema << " must take " << text);
    CHECK(accepts(*grammar, text));
  }
  for (const std::string& text : cases.invalid) {
    INFO(cases.schema << " must not take " << text);
    CHECK_FALSE(accepts(*grammar, text));
  }
  for (const std::string& text : cases.lost) {
    INFO(cases.schema << " must not begin with " << text);
    CHECK_FALSE(begins(*grammar, text));
  }
}

TEST_CASE("properties come in any order and each only once") {
  check(
      {R"({"properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"],"additionalProperties":false})",
       {R"({"a":1})", R"({"b":"x","a":1})", R"({ "a" : 1 , "b" : "x" })", "{\n  \"a\": 1\n}", "[1]"},
       {R"({"b":"x"})", R"({"a":1,"a":2})", R"({"a":"1"})", R"({"a":1,"c":2})", R"({"a":1,})", "{\"a\" 1}"}});
  check({R"({"type":"object","additionalProperties":{"type":"integer"}})",
         {"{}", R"({"x":1,"y":2,"xy":3})", R"({"é":1})", R"({"\u00e9":1})"},
         {R"({"x":1,"x":2})", R"({"é":1,"\u00e9":2})", R"({"x":"1"})"}});
  check({R"({"type":"object","patternProperties":{"^[ab]$":{}},"additionalProperties":false,"minProperties":2})",
         {R"({"a":1,"b":2})", R"({"b":1,"a":2})"},
         {R"({"a":1})", R"({"a":1,"a":2})", R"({"a":1,"c":1})"}});
}

TEST_CASE("keys and strings are what they spell") {
  check({R"({"properties":{"A/é😀":{"type":"integer"}},"additionalProperties":false})",
         {R"({"A/é😀":1})", R"({"\u0041\/\u00e9\uD83D\ude00":1})"},
         {R"({"A/é😀":"x"})", R"({"\u0041/é\ud83d\ude00":"x"})", R"({"A/é\ud83d":1})", R"({"A/é😀":1,"\u0041/é😀":1})"}});
  check({R"({"type":"string","pattern":"^a+$","maxLength":2})",
         {R"("\u0061a")", R"("\u0061\u0061")"},
         {R"("\u0062")", R"("\u0061\u0061a")", R"("\u006")"}});
}

TEST_CASE("counts of properties and items are exact") {
  check({R"({"type":"object","minProperties":1,"maxProperties":2,"required":["k"]})",
         {R"({"k":1})", R"({"z":0,"k":1})", R"({"é":0,"\u006b":1})"},
         {"{}", R"({"z":1})", R"({"z":1,"y":2})", R"({"k":1,"a":2,"b":3})"},
         {R"({"z":0,"\u0061)", "{\"z\":0,\"\xC3"}});
  check({R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false,"minItems":1})",
         {"[1]", R"([1,"a"])"},
         {"[]", R"(["a"])", R"([1,"a",2])"}});
  check({R"({"type":"array","contains":{"const":1},"minContains":2,"maxContains":3,"maxItems":4})",
         {"[1,1]", "[0,1,1,0]", "[1,1,1]"},
         {"[1]", "[1,0,0]", "[1,1,1,1]", "[1,1,0,0,0]"}});
}

TEST_CASE("several conditions on how many items are of a kind hold together, and leave no array unfinished") {
  check({R"({"type":"array","prefixItems":[{},{"type":["integer","string"]}],"items":{"type":"null"},
            "allOf":[{"contains":{"type":"integer"}},{"contains":{"type":"string"}}]})",
         {R"([1,"a"])", R"(["a",1,null])"},
         {"[]", "[1]"},
         {"[t", "[1,2", R"(["a",")", "[n"}});
  check(
      {R"({"type":"array","maxItems":3,"allOf":[{"contains":{"type":"integer"},"maxContains":1},{"contains":{"const":"a"},"minContains":2}]})",
       {R"(["a",1,"a"])", R"([1,"a","a"])"},
       {"[true", "[1,2", R"(["a","a","a")", R"(["a","a"])"}});
  check(
      {R"({"type":"array","prefixItems":[{"const":1},{"const":1}],"contains":{"const":1},"maxContains":2,"minItems":3})",
       {R"([1,1,0])", R"([1,1,"a",null])"},
       {"[1,1,1", "[1,1]"}});
  const std::string impossible =
      R"({"type":"array","prefixItems":[{}],"items":false,"allOf":[{"contains":{"type":"integer"}},{"contains":{"type":"string"}}]})";
  CHECK_THAT(refusal(schema_spec(impossible)), Catch::Matchers::Contains("no value satisfies"));
}

TEST_CASE("alternatives that agree for long are read together") {
  const auto nested = [](const std::string& open, const std::string& close) {
    std::string text = "null";
    for (int i = 0; i < 120; ++i)
      text = open + text + close;
    return text;
  };
  check({R"({"anyOf":[{"type":"null"},{"type":"object","properties":{"a":{"$ref":"#"},"x":{"type":"integer"}}},
            {"type":"object","properties":{"a":{"$ref":"#"},"y":{"type":"integer"}}}]})",
         {nested(R"({"a":)", "}"), nested(R"({"x":1,"y":"z","a":)", "}"), nested(R"({"y":1,"x":"z","a":)", "}")},
         {nested(R"({"x":"z","y":"z","a":)", "}")}});
  check(
      {R"({"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#"},"maxItems":2},{"type":"array","items":{"$ref":"#"},"minItems":4}]})",
       {nested("[", "]"), nested("[null,", "]"), nested("[null,null,null,", "]")},
       {nested("[null,null,", "]")}});
}

TEST_CASE("a condition that some part must meet is not followed once per part") {
  std::string members;
  std::string items;
  for (int i = 0; i < 200; ++i) {
    members += "\"k" + std::to_string(i) + "\":" + std::to_string(i) + ",";
    items += std::to_string(i) + ",";
  }
  check({R"({"type":"object","not":{"additionalProperties":{"type":"string"}}})",
         {"{" + members + "\"z\":\"a\"}"},
         {R"({"a":"b","c":"d"})"}});
  check({R"({"type":"array","contains":{"type":"integer"},"minContains":3})", {"[" + items + "null]"}, {"[1,2,null]"}});
}

TEST_CASE("items that must differ do, whatever their spelling") {
  check({R"({"type":"array","uniqueItems":true,"items":{"enum":["a","ab","b"]}})",
         {"[]", R"(["ab","a"])", R"(["a","ab","b"])"},
         {R"(["a","a"])", R"(["a","ab","b","a"])"}});
  check({R"({"type":"array","uniqueItems":true,"items":{"type":["string","number","null"]}})",
         {R"([1,"1",null])", R"(["x y","x"])", "[1,10,100]"},
         {"[1,1.0]", "[1e2,100]", R"(["é","\u00e9"])", "[null,null]"}});
  check({R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":1,"maximum":10}})",
         {"[1,10,2]", "[10,1]"},
         {"[1,1]", "[3,2,1,3]"}});
  CHECK_THAT(refusal(schema_spec(R"({"uniqueItems":true,"type":"array","minItems":3,"items":{"type":"boolean"}})")),
             Catch::Matchers::Contains("no value"));
  CHECK_THAT(refusal(schema_spec(R"({"items":{"uniqueItems":true,"type":"array","items":{"type":"object"}}})")),
             Catch::Matchers::StartsWith("#/items/uniqueItems"));
}

TEST_CASE("no byte leads to nothing but texts that are taken") {
  check({R"({"type":"array","uniqueItems":true,"items":{"enum":["é","b",null]}})",
         {R"(["b","é",null])", R"(["\u00e9","b"])"},
         {R"(["b","b"])"},
         {"[\"é\",\"\xC3", R"(["é","\u00e)", R"(["é","b",")", "[null,n"}});
  check({R"({"type":"object","patternProperties":{"^[éb]$":{}},"additionalProperties":false})",
         {R"({"é":1,"b":2})", R"({"\u0062":1,"\u00e9":2})"},
         {R"({"b":1,"b":1})"},
         {"{\"é\":1,\"\xC3", R"({"é":1,"\u00e)", R"({"é":1,"b":2,)"}});
}

TEST_CASE("numbers keep their bounds in every usual spelling") {
  check({R"({"type":"number","minimum":-1.5,"exclusiveMaximum":20})",
         {"-1.5", "-1.50", "0", "-0", "19.999", "1.5e1", "1e-07", "-1e0"},
         {"-1.51", "20", "20.0", "2e1", "1e2", "-2e0", "01"}});
  check({R"({"type":"integer","minimum":5})", {"5", "12", "1000"}, {"4", "5.0", "1e3", "5.5", "-5", "1e-3"}});
  check({R"({"multipleOf":0.25})", {"0.5", "3", "-1.75", "0.250"}, {"0.3", "1.1"}});
  check({R"({"type":"integer","multipleOf":7})", {"0", "7", "-14", "700"}, {"1", "15"}});
  check({R"({"enum":[1.5,100,0]})", {"1.5", "1.50", "100", "1e2", "100.0", "0", "-0"}, {"15", "10", "1"}});
}

TEST_CASE("strings keep length, pattern and format together") {
  check({R"({"type":"string","minLength":2,"maxLength":3})",
         {R"("ab")", R"("é😀")", R"("\ud83d\ude00a")"},
         {R"("a")", R"("abcd")"}});
  check({R"({"type":"string","pattern":"^(?!foo)[a-z]+$","maxLength":5})",
         {R"("fo")", R"("bar")"},
         {R"("foo")", R"("foob")", R"("abcdef")"}});
  check({R"({"type":"string","pattern":"^([ab]{2})*$","minLength":3,"maxLength":5})",
         {R"("abab")"},
         {R"("ab")", R"("ababab")", R"("aba")"}});
  check({R"({"format":"date"})",
         {R"("2024-02-29")", R"("2023-12-31")"},
         {R"("2023-02-29")", R"("1900-02-29")", R"("2023-13-01")"}});
  check({R"({"format":"date-time"})",
         {R"("2023-01-01T00:00:00Z")", R"("1998-12-31T15:59:60.1-08:00")"},
         {R"("1998-12-31T15:58:60Z")"}});
  check({R"({"format":"uri-template"})", {R"("it's/{x}")"}, {R"("it's/{x")"}});
  check({R"({"format":"an-unknown-one"})", {R"("anything")"}, {}});
}

TEST_CASE("combinations are exact") {
  check({R"({"oneOf":[{"type":"integer"},{"type":"number","minimum":2}]})", {"1", "2.5", "-7"}, {"2", "3", "1.5"}});
  check({R"({"not":{"type":["integer","null"]}})", {"1.5", R"("x")", "[]", "{}", "true"}, {"1", "null"}});
  check({R"({"type":"object","not":{"required":["a","b"]}})",
         {"{}", R"({"a":1})", R"({"c":1,"b":2})"},
         {R"({"a":1,"b":1})"}});
  check(
      {R"({"type":"object","if":{"properties":{"k":{"const":"n"}},"required":["k"]},"then":{"required":["v"]},"else":{"maxProperties":1}})",
       {R"({"k":"n","v":1})", R"({"k":"m"})", "{}"},
       {R"({"k":"n"})", R"({"k":"m","v":1})"}});
  check({R"({"type":"object","not":{"additionalProperties":{"type":"integer"}}})",
         {R"({"a":"x"})", R"({"a":1,"b":null})"},
         {"{}", R"({"a":1})"}});
  check({R"({"dependentRequired":{"a":["b"]}})", {R"({"b":1})", R"({"a":1,"b":1})", "1"}, {R"({"a":1})"}});
}

TEST_CASE("references recur") {
  check(
      {R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"},"v":{"type":"integer"}},
             "required":["v"],"additionalProperties":false}}})",
       {R"({"v":1})", R"({"l":{"l":{"v":3},"v":2},"v":1})"},
       {R"({"l":{},"v":1})", R"({"l":{"v":2}})"}});
  check({R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]", "[[]"}});
}

TEST_CASE("what cannot be enforced is refused at its pointer") {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"properties":{"a":{"$ref":"http://example.com/x"}}})", "#/properties/a/$ref"},
      {R"({"properties":{"a~/b":{"pattern":"(a)\\1"}}})", "#/properties/a~0~1b/pattern"},
      {R"({"items":{"format":"regex"}})", "#/items/format"},
      {R"({"type":"nothing"})", "#/type"},
      {R"({"$defs":{"x":{"allOf":[{"$ref":"#/$defs/x"}]}},"$ref":"#/$defs/x"})", "#/$defs/x"},
      {R"({"type":"string","enum":[1]})", "#: no value satisfies"},
      {R"({"$ref":"#/$defs/t","$defs":{"t":{"type":"object","properties":{"t":{"$ref":"#/$defs/t"}},"required":["t"]}}})",
       "#: no value satisfies"},
  };
  for (const auto& [schema, expected] : cases) {
    INFO(schema);
    CHECK_THAT(refusal(schema_spec(schema)), Catch::Matchers::StartsWith(expected));
  }
}

}  // namespace
}  // namespace quire::test
