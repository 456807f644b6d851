// Dfa: a deterministic automaton over Unicode code points, the exact language of a pattern, name or rule.
// Immutable after construction. State 0 is dead (no way to acceptance); class 0 holds the bytes that occur in no text.
// Invariant after trim(): every other state reaches acceptance, so a live prefix can always be completed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/grammar/limits.h"
#include "core/grammar/regex/charset.h"

namespace quire::grammar {

// Splits the code points into classes of equal behaviour.
class Alphabet {
 public:
  Alphabet();
  // The coarsest alphabet in which every set is a union of classes.
  explicit Alphabet(std::span<const CharSet* const> sets);
  std::uint32_t class_of(char32_t c) const;
  std::uint32_t num_classes() const { return num_classes_; }
  // The classes of the set's members.
  std::vector<std::uint32_t> classes_in(const CharSet& set) const;
  // Common refinement: pairs[k] = (class in a, class in b) of class k.
  static Alphabet refine(const Alphabet& a, const Alphabet& b,
                         std::vector<std::pair<std::uint32_t, std::uint32_t>>& pairs);
  // Maximal runs of a class, in order: run i covers starts()[i] up to the next start.
  const std::vector<char32_t>& starts() const { return starts_; }
  const std::vector<std::uint32_t>& run_classes() const { return classes_; }

 private:
  void index_ascii();
  std::vector<char32_t> starts_;
  std::vector<std::uint32_t> classes_;
  std::uint32_t num_classes_ = 0;
  std::uint32_t ascii_[128] = {};
};

struct CallEdge {
  std::uint32_t symbol;
  std::uint32_t target;
  auto operator<=>(const CallEdge&) const = default;
};

struct Dfa {
  Alphabet alphabet;
  std::vector<std::uint32_t> next;           // [state * num_classes + class]
  std::vector<std::uint32_t> accept;         // per state: 0, or 1 + label
  std::vector<std::vector<CallEdge>> calls;  // per state; empty if the automaton has no calls
  std::uint32_t start = 0;

  std::size_t num_states() const { return accept.size(); }
  std::size_t num_bytes() const;
  std::uint32_t step(std::uint32_t state, char32_t c) const {
    return next[state * alphabet.num_classes() + alphabet.class_of(c)];
  }
  bool empty() const { return start == 0; }
  bool accepts(std::u32string_view text) const;
};

using DfaPtr = std::shared_ptr<const Dfa>;

// Removes states from which acceptance cannot be reached. `calls_live`: per symbol, whether it has any text.
Dfa trim(Dfa dfa, const std::vector<bool>* calls_live = nullptr);
Dfa intersect(const Dfa& a, const Dfa& b, Budget& budget);
Dfa unite(const Dfa& a, const Dfa& b, Budget& budget);
Dfa complement(const Dfa& dfa);
Dfa any_text();
// Accepts exactly these texts; the label of texts[i] is i.
Dfa from_texts(std::span<const std::u32string> texts, Budget& budget);
// Merges states with the same continuations; labels are kept apart.
Dfa minimise(const Dfa& dfa);

}  // namespace quire::grammar
