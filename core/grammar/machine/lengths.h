// Lengths: the numbers of further code points after which a state of a Dfa can accept. Immutable after construction. It
// decides exactly whether a text bounded by minLength and maxLength can still be completed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/grammar/limits.h"
#include "core/grammar/regex/dfa.h"

namespace quire::grammar {

class Lengths {
 public:
  static constexpr std::uint32_t kEndless = 0xFFFFFFFFu;

  // max: length of the longest text in question, or kEndless.
  Lengths(const Dfa& dfa, std::uint32_t max, Budget& budget);
  // Whether acceptance lies between `lo` and `hi` (kEndless: no limit) further code points away.
  bool reachable(std::uint32_t state, std::uint32_t lo, std::uint32_t hi) const;
  std::uint32_t shortest(std::uint32_t state) const { return shortest_[state]; }
  // True if every number of code points from the shortest on is reachable: then only the distance to the bounds
  // matters.
  bool dense() const { return dense_; }
  std::size_t num_bytes() const {
    return sizeof(std::uint32_t) * (shortest_.size() + longest_.size()) + sizeof(std::uint64_t) * bits_.size();
  }

 private:
  using Edges = std::vector<std::vector<std::uint32_t>>;
  void find_shortest(const Dfa& dfa, const Edges& sources);
  void find_longest(const Edges& next, const Edges& sources);
  void find_all(const Dfa& dfa, const Edges& next, std::uint32_t max, Budget& budget);

  std::vector<std::uint32_t> shortest_;
  std::vector<std::uint32_t> longest_;  // kEndless: no longest completion
  std::vector<std::uint64_t> bits_;     // per state: num_words_ words, bit k for k code points; empty if dense
  std::size_t num_words_ = 0;
  bool dense_ = false;
};

}  // namespace quire::grammar
