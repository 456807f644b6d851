#include "core/grammar/json_schema/key_automaton.h"

#include <algorithm>
#include <map>

namespace quire::grammar {

namespace {

constexpr std::uint64_t kMany = std::uint64_t{1} << 40;
constexpr std::uint64_t kPlenty = std::uint64_t{1} << 32;

// Reads names and patterns at once; a state is the tuple of their states.
class Product {
 public:
  Product(const std::vector<std::u32string>& names, const std::vector<DfaPtr>& patterns, Budget& budget)
      : names_(names), patterns_(patterns), budget_(budget) {
    parts_.push_back(std::make_shared<Dfa>(from_texts(names, budget)));
    parts_.insert(parts_.end(), patterns.begin(), patterns.end());
    classes_.assign(parts_.front()->alphabet.num_classes(), {});
    for (std::uint32_t k = 0; k < classes_.size(); ++k)
      classes_[k] = {k};
    result_.dfa.alphabet = parts_.front()->alphabet;
    for (std::size_t i = 1; i < parts_.size(); ++i)
      refine(parts_[i]->alphabet);
  }

  KeyAutomaton run() {
    const std::size_t width = classes_.size();
    std::vector<std::uint32_t> start;
    for (const DfaPtr& part : parts_)
      start.push_back(part->start);
    states_.emplace_back();
    result_.dfa.start = intern(start);
    result_.dfa.accept.push_back(0);
    result_.dfa.next.assign(width, 0);
    for (std::size_t i = 1; i < states_.size(); ++i) {
      const std::vector<std::uint32_t> state = states_[i];
      budget_.spend(width * state.size());
      if (states_.size() > budget_.limits().max_automaton_states ||
          states_.size() * width > budget_.limits().max_automaton_cells) {
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
    for (std::size_t p = 1; p < state.size(); ++p)
      key.push_back(parts_[p]->accept[state[p]] == 0 ? 0 : 1);
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
  std::vector<std::vector<std::uint32_t>> classes_;  // classes in each part, by class of the product
  std::map<std::vector<std::uint32_t>, std::uint32_t> known_;
  std::vector<std::vector<std::uint32_t>> states_;
  std::map<std::vector<std::uint32_t>, std::uint32_t> kinds_;
  KeyAutomaton result_;
};

class Reach {
 public:
  Reach(const Dfa& dfa, const std::vector<std::uint32_t>& named)
      : dfa_(dfa),
        named_(named),
        width_(dfa.alphabet.num_classes()),
        sizes_(width_, 0),
        reach_(dfa.num_states()),
        circular_(dfa.num_states(), false) {
    const auto& starts = dfa.alphabet.starts();
    for (std::size_t run = 0; run < starts.size(); ++run) {
      const char32_t end = run + 1 < starts.size() ? starts[run + 1] : kMaxCodePoint + 1;
      sizes_[dfa.alphabet.run_classes()[run]] += end - starts[run];
    }
  }

  std::vector<KeyReach> run() {
    find_circles();
    // States on cycles need several passes until the result is stable.
    for (bool changed = true; changed;) {
      changed = false;
      for (const std::uint32_t state : order_)
        changed = merge(state) || changed;
    }
    return std::move(reach_);
  }

 private:
  // Depth-first search; a state met again while it is open lies on a cycle. Cycles from which unnamed keys are
  // reachable make their number endless.
  void find_circles() {
    enum class Mark : std::uint8_t { kNew, kOpen, kClosed };
    std::vector<Mark> marks(dfa_.num_states(), Mark::kNew);
    std::vector<std::pair<std::uint32_t, std::size_t>> open{{dfa_.start, 1}};
    marks[dfa_.start] = Mark::kOpen;
    while (!open.empty()) {
      auto& [state, k] = open.back();
      if (k == width_) {
        marks[state] = Mark::kClosed;
        order_.push_back(state);
        open.pop_back();
        continue;
      }
      const std::uint32_t target = dfa_.next[state * width_ + k++];
      if (target == 0) continue;
      if (marks[target] == Mark::kOpen) circular_[target] = true;
      if (marks[target] != Mark::kNew) continue;
      marks[target] = Mark::kOpen;
      open.emplace_back(target, 1);
    }
  }

  static void add_names(KeyReach& reach, std::uint32_t first, std::uint32_t last) {
    if (first == last) return;
    reach.first_named = reach.first_named == reach.last_named ? first : std::min(reach.first_named, first);
    reach.last_named = std::max(reach.last_named, last);
  }

  // Merges the successors' reach into the state's; true if it changed.
  bool merge(std::uint32_t state) {
    KeyReach sum;
    if (dfa_.accept[state] != 0) {
      const std::uint32_t own = named_[dfa_.accept[state] - 1];
      if (own == kNoIndex) sum.num_finite = 1;
      if (own != kNoIndex) add_names(sum, own, own + 1);
    }
    for (std::size_t c = 1; c < width_; ++c) {
      const std::uint32_t target = dfa_.next[state * width_ + c];
      if (target == 0) continue;
      sum.num_finite = std::min(kMany, sum.num_finite + sizes_[c] * reach_[target].num_finite);
      sum.endless = sum.endless || reach_[target].endless;
      add_names(sum, reach_[target].first_named, reach_[target].last_named);
    }
    // A supply of billions of keys is as good as endless.
    if ((circular_[state] && sum.num_finite > 0) || sum.num_finite >= kPlenty) sum.endless = true;
    const KeyReach& before = reach_[state];
    const bool changed = sum.endless != before.endless || (sum.num_finite > 0) != (before.num_finite > 0) ||
                         sum.first_named != before.first_named || sum.last_named != before.last_named;
    reach_[state] = sum;
    return changed;
  }

  const Dfa& dfa_;
  const std::vector<std::uint32_t>& named_;
  std::size_t width_;
  std::vector<std::uint64_t> sizes_;  // code points per class
  std::vector<KeyReach> reach_;
  std::vector<bool> circular_;
  std::vector<std::uint32_t> order_;
};

}  // namespace

bool KeyKind::in(const NameSet& names) const {
  bool member = named && std::binary_search(names.texts.begin(), names.texts.end(), name);
  for (const DfaPtr& pattern : names.patterns) {
    member = member || std::find(patterns.begin(), patterns.end(), pattern.get()) != patterns.end();
  }
  return member != names.negated;
}

KeyAutomaton make_key_automaton(const std::vector<std::u32string>& names, const std::vector<DfaPtr>& patterns,
                                Budget& budget) {
  return Product(names, patterns, budget).run();
}

std::vector<KeyReach> key_reach(const Dfa& dfa, const std::vector<std::uint32_t>& named) {
  return Reach(dfa, named).run();
}

}  // namespace quire::grammar
