#include "core/grammar/json_schema/key_automaton.h"

#include <algorithm>
#include <map>

namespace quire::grammar {

namespace {

constexpr std::uint64_t kMany = std::uint64_t{1} << 40;
constexpr std::uint64_t kPlenty = std::uint64_t{1} << 32;

// Reads names and patterns at once; a state is what each of them makes of the text so far.
class Product {
 public:
  Product(const std::vector<std::u32string>& names, const std::vector<DfaPtr>& patterns, Budget& budget)
      : names_(names), patterns_(patterns), budget_(budget) {
    parts_.push_back(std::make_shared<Dfa>(from_texts(names, budget)));
    parts_.insert(parts_.end(), patterns.begin(), patterns.end());
    classes_.assign(parts_.front()->alphabet.num_classes(), {});
    for (std::uint32_t k = 0; k < classes_.size(); ++k) classes_[k] = {k};
    result_.dfa.alphabet = parts_.front()->alphabet;
    for (std::size_t i = 1; i < parts_.size(); ++i) refine(parts_[i]->alphabet);
  }

  KeyAutomaton run() {
    const std::size_t width = classes_.size();
    std::vector<std::uint32_t> start;
    for (const DfaPtr& part : parts_) start.push_back(part->start);
    states_.emplace_back();
    result_.dfa.start = intern(start);
    result_.dfa.accept.push_back(0);
    result_.dfa.next.assign(width, 0);
    for (std::size_t i = 1; i < states_.size(); ++i) {
      const std::vector<std::uint32_t> state = states_[i];
      budget_.spend(width * state.size());
      if (states_.size() > budget_.limits().max_automaton_states || states_.size() * width > budget_.limits().max_automaton_cells) {
        throw Refusal("the names of the properties are too complex together");
      }
      result_.dfa.accept.push_back(1 + kind(state));
      result_.dfa.next.push_back(0);
      for (std::size_t k = 1; k < width; ++k) {
        std::vector<std::uint32_t> next(state.size());
        for (std::size_t p = 0; p < state.size(); ++p) {
          next[p] = parts_[p]->next[state[p] * parts_[p]->alphabet.num_classes() + classes_[k][p]];
        }
        result_.dfa.next.push_back(intern(next));
      }
    }
    return std::move(result_);
  }

 private:
  void refine(const Alphabet& other) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
    result_.dfa.alphabet = Alphabet::refine(result_.dfa.alphabet, other, pairs);
    std::vector<std::vector<std::uint32_t>> classes;
    for (const auto& [left, right] : pairs) {
      classes.push_back(classes_[left]);
      classes.back().push_back(right);
    }
    classes_ = std::move(classes);
  }

  std::uint32_t intern(const std::vector<std::uint32_t>& state) {
    const auto [found, fresh] = known_.try_emplace(state, static_cast<std::uint32_t>(states_.size()));
    if (fresh) states_.push_back(state);
    return found->second;
  }

  std::uint32_t kind(const std::vector<std::uint32_t>& state) {
    std::vector<std::uint32_t> key{parts_.front()->accept[state.front()]};
    for (std::size_t p = 1; p < state.size(); ++p) key.push_back(parts_[p]->accept[state[p]] == 0 ? 0 : 1);
    const auto [found, fresh] = kinds_.try_emplace(key, static_cast<std::uint32_t>(result_.kinds.size()));
    if (!fresh) return found->second;
    KeyKind made;
    made.named = key.front() != 0;
    if (made.named) made.name = names_[key.front() - 1];
    for (std::size_t p = 1; p < key.size(); ++p) {
      if (key[p] != 0) made.patterns.push_back(patterns_[p - 1].get());
    }
    result_.kinds.push_back(std::move(made));
    return found->second;
  }

  const std::vector<std::u32string>& names_;
  const std::vector<DfaPtr>& patterns_;
  Budget& budget_;
  std::vector<DfaPtr> parts_;
  std::vector<std::vector<std::uint32_t>> classes_;  // of the product, per part
  std::map<std::vector<std::uint32_t>, std::uint32_t> known_;
  std::vector<std::vector<std::uint32_t>> states_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> kinds_;
  KeyAutomaton result_;
};

}  // namespace

bool KeyKind::in(const NameSet& names) const {
  bool member = named && std::binary_search(names.texts.begin(), names.texts.end(), name);
  for (const DfaPtr& pattern : names.patterns) {
    member = member || std::find(patterns.begin(), patterns.end(), pattern.get()) != patterns.end();
  }
  return member != names.negated;
}

KeyAutomaton make_key_automaton(const std::vector<std::u32string>& names, const std::vector<DfaPtr>& patterns, Budget& budget) {
  return Product(names, patterns, budget).run();
}

std::vector<KeyReach> key_reach(const Dfa& dfa, const std::vector<std::uint32_t>& named) {
  const std::size_t width = dfa.alphabet.num_classes();
  std::vector<std::uint64_t> class_sizes(width, 0);
  const auto& starts = dfa.alphabet.starts();
  for (std::size_t run = 0; run < starts.size(); ++run) {
    class_sizes[dfa.alphabet.run_classes()[run]] += (run + 1 < starts.size() ? starts[run + 1] : kMaxCodePoint + 1) - starts[run];
  }
  std::vector<KeyReach> reach(dfa.num_states());
  // Depth first; a state met again while it is open lies on a circle. Circles that lead to unnamed keys make them endless.
  enum class Mark : std::uint8_t { kNew, kOpen, kClosed };
  std::vector<Mark> marks(dfa.num_states(), Mark::kNew);
  std::vector<bool> circular(dfa.num_states(), false);
  std::vector<std::uint32_t> order;
  std::vector<std::pair<std::uint32_t, std::size_t>> open{{dfa.start, 1}};
  marks[dfa.start] = Mark::kOpen;
  while (!open.empty()) {
    auto& [state, k] = open.back();
    if (k == width) {
      marks[state] = Mark::kClosed;
      order.push_back(state);
      open.pop_back();
      continue;
    }
    const std::uint32_t target = dfa.next[state * width + k++];
    if (target == 0) continue;
    if (marks[target] == Mark::kOpen) circular[target] = true;
    if (marks[target] != Mark::kNew) continue;
    marks[target] = Mark::kOpen;
    open.emplace_back(target, 1);
  }
  const auto merge = [&](std::uint32_t state) {
    KeyReach sum;
    const auto name = [&](std::uint32_t first, std::uint32_t last) {
      if (first == last) return;
      sum.first_named = sum.first_named == sum.last_named ? first : std::min(sum.first_named, first);
      sum.last_named = std::max(sum.last_named, last);
    };
    if (dfa.accept[state] != 0) {
      const std::uint32_t own = named[dfa.accept[state] - 1];
      if (own == kNoIndex) sum.num_finite = 1;
      if (own != kNoIndex) name(own, own + 1);
    }
    for (std::size_t c = 1; c < width; ++c) {
      const std::uint32_t target = dfa.next[state * width + c];
      if (target == 0) continue;
      sum.num_finite = std::min(kMany, sum.num_finite + class_sizes[c] * reach[target].num_finite);
      sum.endless = sum.endless || reach[target].endless;
      name(reach[target].first_named, reach[target].last_named);
    }
    // Billions of keys never run out either.
    if ((circular[state] && sum.num_finite > 0) || sum.num_finite >= kPlenty) sum.endless = true;
    const KeyReach& before = reach[state];
    const bool changed = sum.endless != before.endless || (sum.num_finite > 0) != (before.num_finite > 0) ||
                         sum.first_named != before.first_named || sum.last_named != before.last_named;
    reach[state] = sum;
    return changed;
  };
  // Circles need more than one pass until what they reach has gone round.
  for (bool changed = true; changed;) {
    changed = false;
    for (const std::uint32_t state : order) changed = merge(state) || changed;
  }
  return reach;
}

}  // namespace quire::grammar
