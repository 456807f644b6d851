#include "core/grammar/json_schema/builder.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/grammar/json_schema/key_automaton.h"
#include "core/grammar/json_schema/number.h"
#include "core/grammar/regex/regex.h"

namespace quire::grammar {

namespace {

constexpr std::uint32_t kMaxLength = 4096;  // longest bound on the length of strings that must differ

Supply supply_of(const Dfa& dfa) {
  const std::uint32_t labels = *std::max_element(dfa.accept.begin(), dfa.accept.end());
  return std::make_shared<std::vector<KeyReach>>(key_reach(dfa, std::vector<std::uint32_t>(labels, kNoIndex)));
}

// The string's language with the bounds on its length as part of the automaton.
DfaPtr with_length(const StringAlternative& string, const DfaPtr& any, const std::string& pointer, Budget& budget) {
  const DfaPtr language = string.language == nullptr ? any : string.language;
  if (string.min == 0 && string.max == kUnbounded) return language;
  if (string.min > kMaxLength || (string.max != kUnbounded && string.max > kMaxLength)) {
    throw Refusal("uniqueItems of strings with such bounds is not supported", pointer);
  }
  const Dfa length = build_full(make_repeat(make_set(CharSet::any()), string.min, string.max), budget);
  return std::make_shared<Dfa>(intersect(*language, length, budget));
}

}  // namespace

ValueNode make_unique_item(const Shapes& shapes, const std::string& pointer, Lexicon& lexicon, Budget& budget) {
  if (!shapes.arrays.empty() || !shapes.objects.empty()) {
    throw Refusal("uniqueItems is supported for strings, numbers, booleans and null only", pointer);
  }
  ValueNode node;
  DfaPtr text;
  for (const StringAlternative& string : shapes.strings) {
    const DfaPtr one = with_length(string, lexicon.any_text(), pointer, budget);
    text = text == nullptr ? one : std::make_shared<Dfa>(unite(*text, *one, budget));
  }
  if (text != nullptr && !text->empty()) {
    StringShape shape;
    shape.lexer = lexicon.lexer(text, ByteLexer::Encoding::kJsonString);
    shape.supply = supply_of(*text);
    node.strings.push_back(std::move(shape));
  }
  std::vector<std::u32string> words;
  if ((shapes.words & Shapes::kNull) != 0) words.push_back(U"null");
  if ((shapes.words & Shapes::kTrue) != 0) words.push_back(U"true");
  if ((shapes.words & Shapes::kFalse) != 0) words.push_back(U"false");
  Dfa bare = from_texts(words, budget);
  if (shapes.numbers.any) {
    bare = unite(bare, *json_numbers(budget), budget);
    node.by_value = true;
  } else if (shapes.numbers.language != nullptr) {
    if (!shapes.numbers.integral) throw Refusal("uniqueItems of numbers with bounds is not supported", pointer);
    const Dfa spelled = build_full(parse_regex("0|-?[1-9][0-9]*", budget), budget);
    bare = unite(bare, intersect(*shapes.numbers.language, spelled, budget), budget);
  }
  if (bare.empty()) return node;
  node.bare = std::make_shared<ByteLexer>(std::make_shared<Dfa>(std::move(bare)), ByteLexer::Encoding::kUtf8);
  node.bare_supply = supply_of(node.bare->dfa());
  return node;
}

}  // namespace quire::grammar
