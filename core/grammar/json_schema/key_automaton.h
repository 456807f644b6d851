// KeyAutomaton: reads the key of a property and reports which names and patterns it matches. Immutable after
// construction.
#pragma once

#include <string>
#include <vector>

#include "core/grammar/json_schema/shapes.h"
#include "core/grammar/machine/program.h"
#include "core/grammar/regex/dfa.h"

namespace quire::grammar {

// The keys that an object treats alike: a single name, or all names that match the same patterns.
struct KeyKind {
  bool named = false;
  std::u32string name;               // the name, if named
  std::vector<const Dfa*> patterns;  // the patterns that match
  bool in(const NameSet& names) const;
};

struct KeyAutomaton {
  Dfa dfa;  // labels are kinds; every text is accepted
  std::vector<KeyKind> kinds;
};

// names: sorted. patterns: distinct.
KeyAutomaton make_key_automaton(const std::vector<std::u32string>& names, const std::vector<DfaPtr>& patterns,
                                Budget& budget);
// The keys that can still follow each state. named: by label, its number among the named keys or kNoIndex.
std::vector<KeyReach> key_reach(const Dfa& dfa, const std::vector<std::uint32_t>& named);

}  // namespace quire::grammar
