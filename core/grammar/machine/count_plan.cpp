#include "core/grammar/machine/count_plan.h"

#include <algorithm>

#include "core/grammar/regex/expression.h"

namespace quire::grammar {

namespace {

constexpr std::uint64_t kMaxCells = std::uint64_t{1} << 21;

}  // namespace

CountPlan::CountPlan(const std::vector<ContainsRule>& rules, const std::vector<std::vector<std::uint32_t>>& kinds,
                     std::uint32_t min_items, std::uint32_t max_items, Budget& budget)
    : rules_(rules), max_items_(max_items) {
  std::uint64_t cells = 1;
  for (const ContainsRule& rule : rules_) {
    last_.push_back(rule.max == kUnbounded ? rule.min : rule.max);
    cells = std::min(kMaxCells + 1, cells * (last_.back() + 1));
  }
  num_counts_ = cells;
  const auto places = static_cast<std::uint32_t>(kinds.size() - 1);
  last_length_ = std::min(max_items, std::max(places, min_items));
  cells *= std::uint64_t{last_length_} + 1;
  if (cells > kMaxCells) throw Refusal("the conditions on how many items there are of a kind are too many together");
  need_.assign(cells, kUnbounded);
  // From the end: another item never lowers a count, so the results of longer arrays are known already.
  for (std::size_t at = need_.size(); at-- > 0;) {
    const std::size_t length = at / num_counts_;
    const auto& here = kinds[std::min<std::size_t>(length, places)];
    budget.spend(1 + here.size());
    std::vector<std::uint64_t> counts;
    for (std::size_t rest = at % num_counts_, i = 0; i < rules_.size(); ++i) {
      counts.push_back(rest % (last_[i] + 1));
      rest /= last_[i] + 1;
    }
    need_[at] = length >= min_items && met(counts.data())
                    ? 0
                    : fewest(std::min<std::size_t>(length + 1, last_length_), counts, here);
  }
}

// Fewest items after which an array may end, if its next item has one of these kinds.
std::uint32_t CountPlan::fewest(std::size_t row, const std::vector<std::uint64_t>& counts,
                                const std::vector<std::uint32_t>& kinds) const {
  std::uint32_t best = kUnbounded;
  for (const std::uint32_t kind : kinds) {
    std::vector<std::uint64_t> then = counts;
    if (!add(then.data(), kind)) continue;
    const std::uint32_t further = need_[cell(static_cast<std::uint32_t>(row), then.data())];
    if (further != kUnbounded) best = std::min(best, further + 1);
  }
  return best;
}

bool CountPlan::add(std::uint64_t* counts, std::uint32_t counted) const {
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    if ((counted >> i & 1) == 0) continue;
    if (counts[i] == last_[i] && rules_[i].max != kUnbounded) return false;
    counts[i] = std::min(counts[i] + 1, last_[i]);
  }
  return true;
}

bool CountPlan::met(const std::uint64_t* counts) const {
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    if (counts[i] < rules_[i].min) return false;
  }
  return true;
}

std::size_t CountPlan::cell(std::uint32_t length, const std::uint64_t* counts) const {
  std::size_t at = std::min(length, last_length_);
  for (std::size_t i = rules_.size(); i-- > 0;)
    at = at * (last_[i] + 1) + counts[i];
  return at;
}

bool CountPlan::live(std::uint32_t length, const std::uint64_t* counts) const {
  const std::uint32_t need = need_[cell(length, counts)];
  return need != kUnbounded && need <= max_items_ - std::min(length, max_items_);
}

}  // namespace quire::grammar
