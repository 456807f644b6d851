#include "core/grammar/cfg/argument_texts.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/grammar/regex/regex.h"

namespace quire::grammar {

namespace {

constexpr std::uint32_t kLongestKey = 256;
// Longest limit on a text's length that is enforced: a longer one takes too large an automaton.
constexpr std::uint32_t kLongestCounted = 4096;

DfaPtr built(const Expr& expression, Budget& budget) {
  return std::make_shared<Dfa>(build_full(expression, budget));
}

}  // namespace

Expr any_space() {
  CharSet set;
  for (const char32_t space : {U' ', U'\n', U'\t', U'\r'})
    set.add(space, space);
  return make_repeat(make_set(std::move(set)), 0, kUnbounded);
}

DfaPtr texts_of(const StringAlternative& string, Budget& budget) {
  if (string.min == 0 && string.max == kUnbounded) return string.language;
  if (string.min > kLongestCounted || (string.max != kUnbounded && string.max > kLongestCounted))
    throw Refusal("a limit on a text's length is too large for a call of this model");
  const DfaPtr counted = built(make_repeat(make_set(CharSet::any()), string.min, string.max), budget);
  if (string.language == nullptr) return counted;
  return std::make_shared<Dfa>(intersect(*counted, *string.language, budget));
}

Expr text_up_to(const Expr& text, const Expr& end, const Expr& stop, const std::string& name, Lexicon& lexicon,
                Budget& budget) {
  const auto make = [&] {
    const Dfa ends = build_full(make_concat({text == nullptr ? make_everything() : text, end}), budget);
    const Dfa early =
        build_full(make_concat({make_everything(), stop, make_set(CharSet::any()), make_everything()}), budget);
    return std::make_shared<Dfa>(minimise(intersect(ends, complement(early), budget)));
  };
  return make_automaton(text == nullptr ? lexicon.dfa("text up to " + name, make) : make());
}

DfaPtr without(const DfaPtr& dfa, const CharSet& kept_out, Budget& budget) {
  const DfaPtr plain = built(make_repeat(make_set(kept_out.complement()), 0, kUnbounded), budget);
  return dfa == nullptr ? plain : std::make_shared<Dfa>(intersect(*dfa, *plain, budget));
}

Expr make_words(const std::vector<std::string>& words) {
  std::vector<Expr> all;
  for (const std::string& word : words)
    all.push_back(make_literal(word));
  return make_alternate(std::move(all));
}

Expr other_keys(const std::vector<std::u32string>& names, const CharSet& kept_out, Budget& budget) {
  const Expr any = make_repeat(make_set(kept_out.complement()), 1, kLongestKey);
  if (names.empty()) return any;
  std::vector<std::u32string> sorted = names;
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  const Dfa others = intersect(build_full(any, budget), complement(from_texts(sorted, budget)), budget);
  return make_automaton(std::make_shared<Dfa>(minimise(others)));
}

std::string utf8(const std::u32string& text) {
  std::string out;
  for (const char32_t c : text)
    append_utf8(out, c);
  return out;
}

}  // namespace quire::grammar
