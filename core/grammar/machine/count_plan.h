// CountPlan: decides how an array can still meet its conditions on the number of items of each kind. Immutable after
// construction. Invariant: exact; an array that is live() has a way to its end on which every item is of a kind allowed
// at its index.
#pragma once

#include <cstdint>
#include <vector>

#include "core/grammar/limits.h"

namespace quire::grammar {

// `contains`: how many items must be of a kind.
struct ContainsRule {
  std::uint32_t min = 0;
  std::uint32_t max = 0;  // kUnbounded for no limit
};

class CountPlan {
 public:
  // kinds[i]: for each kind of item allowed at index i, the rules it counts for, as bits; the last entry holds for all
  // further items. Throws Refusal if the table would be too large.
  CountPlan(const std::vector<ContainsRule>& rules, const std::vector<std::vector<std::uint32_t>>& kinds,
            std::uint32_t min_items, std::uint32_t max_items, Budget& budget);
  // Counts another item, no further than it matters; false if a rule's maximum is exceeded.
  bool add(std::uint64_t* counts, std::uint32_t counted) const;
  // Whether the rules are met if the array ends now.
  bool met(const std::uint64_t* counts) const;
  // Whether an array of `length` items with these counts can be finished.
  bool live(std::uint32_t length, const std::uint64_t* counts) const;
  std::size_t num_bytes() const { return sizeof(CountPlan) + sizeof(std::uint32_t) * need_.size(); }

 private:
  std::size_t cell(std::uint32_t length, const std::uint64_t* counts) const;
  std::uint32_t fewest(std::size_t row, const std::vector<std::uint64_t>& counts,
                       const std::vector<std::uint32_t>& kinds) const;

  std::vector<ContainsRule> rules_;
  std::vector<std::uint64_t> last_;  // per rule: the highest count told apart
  std::uint32_t max_items_;
  std::uint32_t last_length_ = 0;    // lengths from here on are alike
  std::size_t num_counts_ = 1;       // combinations of counts
  std::vector<std::uint32_t> need_;  // [length, counts]: fewest further items to an end; kUnbounded: no end
};

}  // namespace quire::grammar
