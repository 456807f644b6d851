#include "core/grammar/cfg/tagged_calls.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/grammar/regex/build.h"

namespace quire::grammar {

namespace {

constexpr std::uint32_t kMostSpaces = 16;  // between two tags
constexpr std::uint32_t kLongestKey = 256;

Expr any_text() {
  return make_repeat(make_set(CharSet::any()), 0, kUnbounded);
}

Expr spaces() {
  CharSet set;
  for (const char32_t space : {U' ', U'\n', U'\t', U'\r'})
    set.add(space, space);
  return make_repeat(make_set(std::move(set)), 0, kMostSpaces);
}

// A key: no line end, no bracket, no quote, and nothing that its end begins with.
Expr key(const TaggedCalls& calls, Budget& budget) {
  std::u32string end;
  if (!decode_utf8(calls.key_end, end) || end.empty()) throw Refusal("a key needs an end");
  CharSet kept_out;
  for (const char32_t c : {end.front(), U'<', U'>', U'"', U'\n', U'\r'})
    kept_out.add(c, c);
  budget.spend(1);
  return make_repeat(make_set(kept_out.complement()), 1, kLongestKey);
}

// Text up to the first value_end, before which nothing stands that a reader takes for the value's end.
Expr value(const TaggedCalls& calls, Budget& budget) {
  const Expr stop =
      make_alternate({make_literal(calls.value_end), make_literal(calls.key_begin), make_literal(calls.call_end)});
  const Dfa ends = build_full(make_concat({any_text(), make_literal(calls.value_end)}), budget);
  const Dfa early = build_full(make_concat({any_text(), stop, make_set(CharSet::any()), any_text()}), budget);
  return make_automaton(std::make_shared<Dfa>(intersect(ends, complement(early), budget)));
}

}  // namespace

Expr tagged_calls(const TaggedCalls& calls, Budget& budget) {
  if (calls.names.empty()) throw Refusal("tagged calls need a name");
  std::vector<Expr> names;
  for (const std::string& name : calls.names)
    names.push_back(make_literal(name));
  const Expr value_begin =
      calls.value_begin.empty() ? make_empty() : make_concat({spaces(), make_literal(calls.value_begin)});
  const Expr argument = make_concat({make_literal(calls.key_begin), key(calls, budget), make_literal(calls.key_end),
                                     value_begin, value(calls, budget), spaces()});
  const Expr call = make_concat({make_alternate(std::move(names)), make_literal(calls.name_end), spaces(),
                                 make_repeat(argument, 0, kUnbounded), make_literal(calls.call_end)});
  if (calls.is_begun) return call;
  const Expr whole = make_concat({spaces(), make_literal(calls.name_begin), call});
  return make_concat({whole, make_repeat(whole, 0, calls.parallel ? kUnbounded : 0), spaces()});
}

}  // namespace quire::grammar
