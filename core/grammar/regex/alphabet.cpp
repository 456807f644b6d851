#include <algorithm>
#include <map>

#include "core/grammar/regex/dfa.h"

namespace quire::grammar {

Alphabet::Alphabet() : Alphabet(std::span<const CharSet* const>{}) {}

Alphabet::Alphabet(std::span<const CharSet* const> sets) {
  const CharSet scalar = CharSet::any();
  std::vector<char32_t> cuts{0};
  const auto cut = [&cuts](const CharSet& set) {
    for (const CodeRange& range : set.ranges()) {
      cuts.push_back(range.lo);
      if (range.hi < kMaxCodePoint) cuts.push_back(range.hi + 1);
    }
  };
  cut(scalar);
  for (const CharSet* set : sets)
    cut(*set);
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());

  std::vector<std::vector<std::uint32_t>> members(cuts.size());  // per run: the sets that contain it
  for (std::uint32_t k = 0; k < sets.size(); ++k) {
    for (const CodeRange& range : sets[k]->ranges()) {
      auto run = static_cast<std::size_t>(std::lower_bound(cuts.begin(), cuts.end(), range.lo) - cuts.begin());
      for (; run < cuts.size() && cuts[run] <= range.hi; ++run)
        members[run].push_back(k);
    }
  }
  std::map<std::vector<std::uint32_t>, std::uint32_t> known;
  num_classes_ = 1;
  for (std::size_t run = 0; run < cuts.size(); ++run) {
    std::uint32_t id = 0;
    if (scalar.contains(cuts[run])) {
      const auto [found, fresh] = known.try_emplace(std::move(members[run]), num_classes_);
      if (fresh) ++num_classes_;
      id = found->second;
    }
    if (!classes_.empty() && classes_.back() == id) continue;
    starts_.push_back(cuts[run]);
    classes_.push_back(id);
  }
  index_ascii();
}

void Alphabet::index_ascii() {
  std::size_t run = 0;
  for (char32_t c = 0; c < 128; ++c) {
    while (run + 1 < starts_.size() && starts_[run + 1] <= c)
      ++run;
    ascii_[c] = classes_[run];
  }
}

std::uint32_t Alphabet::class_of(char32_t c) const {
  if (c < 128) return ascii_[c];
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), c);
  return classes_[static_cast<std::size_t>(after - starts_.begin()) - 1];
}

std::vector<std::uint32_t> Alphabet::classes_in(const CharSet& set) const {
  std::vector<std::uint32_t> result;
  for (const CodeRange& range : set.ranges()) {
    auto run =
        static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), range.lo) - starts_.begin()) - 1;
    for (; run < starts_.size() && starts_[run] <= range.hi; ++run)
      result.push_back(classes_[run]);
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

Alphabet Alphabet::refine(const Alphabet& a, const Alphabet& b,
                          std::vector<std::pair<std::uint32_t, std::uint32_t>>& pairs) {
  Alphabet result;
  result.starts_.clear();
  result.classes_.clear();
  pairs.assign(1, {0, 0});
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> known{{{0, 0}, 0}};
  std::size_t i = 0;
  std::size_t j = 0;
  char32_t at = 0;
  while (true) {
    const std::pair key{a.classes_[i], b.classes_[j]};
    const auto [found, fresh] = known.try_emplace(key, static_cast<std::uint32_t>(pairs.size()));
    if (fresh) pairs.push_back(key);
    if (result.classes_.empty() || result.classes_.back() != found->second) {
      result.starts_.push_back(at);
      result.classes_.push_back(found->second);
    }
    const char32_t next_a = i + 1 < a.starts_.size() ? a.starts_[i + 1] : kMaxCodePoint + 1;
    const char32_t next_b = j + 1 < b.starts_.size() ? b.starts_[j + 1] : kMaxCodePoint + 1;
    at = std::min(next_a, next_b);
    if (at > kMaxCodePoint) break;
    if (next_a == at) ++i;
    if (next_b == at) ++j;
  }
  result.num_classes_ = static_cast<std::uint32_t>(pairs.size());
  result.index_ascii();
  return result;
}

}  // namespace quire::grammar
