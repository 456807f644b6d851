#include "core/grammar/json_schema/builder.h"

#include <algorithm>
#include <utility>

#include "core/grammar/json_schema/key_automaton.h"

namespace quire::grammar {

namespace {

class Pruner {
 public:
  Pruner(Program& program, std::size_t first_node, std::size_t first_array, std::size_t first_object,
         std::vector<Dfa>& keys, Budget& budget)
      : program_(program),
        first_node_(first_node),
        first_array_(first_array),
        first_object_(first_object),
        keys_(keys),
        budget_(budget),
        node_live_(program.nodes.size(), false),
        array_live_(program.arrays.size(), false),
        object_live_(program.objects.size(), false) {
    std::fill(node_live_.begin(), node_live_.begin() + static_cast<std::ptrdiff_t>(first_node), true);
  }

  void run() {
    // Grow the set of shapes known to have values until it is stable.
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = program_.nodes.size(); i-- > first_node_;)
        changed = visit_node(i) || changed;
    }
    for (std::size_t i = first_array_; i < program_.arrays.size(); ++i) {
      if (array_live_[i]) finish_array(program_.arrays[i]);
    }
    for (std::size_t i = first_object_; i < program_.objects.size(); ++i) {
      if (object_live_[i]) finish_object(program_.objects[i], keys_[i - first_object_]);
    }
    for (std::size_t i = first_node_; i < program_.nodes.size(); ++i) {
      std::erase_if(program_.nodes[i].arrays, [&](std::uint32_t shape) { return !array_live_[shape]; });
      std::erase_if(program_.nodes[i].objects, [&](std::uint32_t shape) { return !object_live_[shape]; });
    }
  }

 private:
  bool visit_node(std::size_t index) {
    const ValueNode& node = program_.nodes[index];
    bool changed = false;
    budget_.spend(1 + node.arrays.size() + node.objects.size());
    for (const std::uint32_t shape : node.arrays) {
      if (array_live_[shape] || !has_value(program_.arrays[shape])) continue;
      array_live_[shape] = changed = true;
    }
    for (const std::uint32_t shape : node.objects) {
      if (object_live_[shape] || !has_value(program_.objects[shape], keys_[shape - first_object_])) continue;
      object_live_[shape] = changed = true;
    }
    if (node_live_[index] || !(changed || node.bare != nullptr || !node.strings.empty())) return changed;
    return node_live_[index] = true;
  }

  template <class Choice>
  bool any_live(const std::vector<Choice>& choices) const {
    return std::any_of(choices.begin(), choices.end(), [&](const Choice& choice) { return node_live_[choice.node]; });
  }

  // Longest array: up to the first item without possible values.
  std::uint32_t longest(const ArrayShape& shape) const {
    for (std::uint32_t i = 0; i < shape.prefix.size() && i < shape.max; ++i) {
      if (!any_live(shape.prefix[i])) return i;
    }
    if (shape.max > shape.prefix.size() && !any_live(shape.rest))
      return static_cast<std::uint32_t>(shape.prefix.size());
    std::uint64_t max = shape.max;
    if (shape.unique) max = std::min(max, num_items(shape));
    return static_cast<std::uint32_t>(max);
  }

  // Number of different items; kUnbounded if they never run out.
  std::uint64_t num_items(const ArrayShape& shape) const {
    std::uint64_t most = 0;
    for (const ItemChoice& choice : shape.rest)
      most = std::max(most, num_items(program_.nodes[choice.node]));
    for (const auto& choices : shape.prefix) {
      for (const ItemChoice& choice : choices) {
        if (num_items(program_.nodes[choice.node]) != kUnbounded)
          throw Refusal("uniqueItems of few different items at given places is not supported");
      }
    }
    return most;
  }

  static std::uint64_t num_items(const ValueNode& node) {
    std::uint64_t sum = 0;
    const auto add = [&sum](const LexerPtr& lexer, const Supply& supply) {
      const KeyReach& reach = (*supply)[lexer->start()];
      sum = reach.endless ? kUnbounded : std::min<std::uint64_t>(kUnbounded, sum + reach.num_finite);
    };
    for (const StringShape& string : node.strings)
      add(string.lexer, string.supply);
    if (sum != kUnbounded && node.bare_supply != nullptr) add(node.bare, node.bare_supply);
    return sum;
  }

  // A plan for the conditions on the number of items, over items that are known to have values.
  std::shared_ptr<const CountPlan> count_plan(const ArrayShape& shape, std::uint32_t max) const {
    if (shape.contains.empty()) return nullptr;
    std::vector<std::vector<std::uint32_t>> kinds;
    for (std::size_t i = 0; i <= shape.prefix.size(); ++i) {
      kinds.emplace_back();
      for (const ItemChoice& choice : shape.choices(static_cast<std::uint32_t>(i))) {
        if (node_live_[choice.node]) kinds.back().push_back(choice.counted);
      }
    }
    return std::make_shared<CountPlan>(shape.contains, kinds, shape.min, max, budget_);
  }

  bool has_value(const ArrayShape& shape) const {
    const std::uint32_t max = longest(shape);
    if (max < shape.min) return false;
    const auto plan = count_plan(shape, max);
    return plan == nullptr || plan->live(0, std::vector<std::uint64_t>(shape.contains.size()).data());
  }

  bool has_value(const ObjectShape& shape, const Dfa& keys) const {
    std::uint64_t marks = 0;
    std::uint32_t required = 0;
    std::uint32_t named = 0;
    bool unnamed = false;
    for (const KeyClass& key : shape.classes) {
      if (!any_live(key.choices)) continue;
      named += key.is_named ? 1 : 0;
      required += key.required ? 1 : 0;
      unnamed = unnamed || !key.is_named;
      for (const Choice& choice : key.choices)
        marks |= node_live_[choice.node] ? choice.marks : 0;
    }
    if (required < shape.num_required || shape.num_required > shape.max) return false;
    if (marks != (std::uint64_t{1} << shape.num_marks) - 1) return false;
    if (named >= shape.min) return true;
    if (!unnamed) return false;
    // Rare: the least number of properties requires keys without a name of their own, which may be few.
    const KeyReach reach = reach_of(shape, keys);
    return reach.endless || named + reach.num_finite >= shape.min;
  }

  KeyReach reach_of(const ObjectShape& shape, Dfa keys) const {
    std::vector<std::uint32_t> named;
    for (const KeyClass& key : shape.classes)
      named.push_back(key.is_named ? 0 : kNoIndex);
    for (std::uint32_t& label : keys.accept) {
      if (label != 0 && !any_live(shape.classes[label - 1].choices)) label = 0;
    }
    keys = trim(std::move(keys));
    budget_.spend(keys.next.size());
    return key_reach(keys, named)[keys.start];
  }

  void finish_array(ArrayShape& shape) {
    shape.max = longest(shape);
    if (shape.prefix.size() > shape.max) shape.prefix.resize(shape.max);
    const auto clean = [&](std::vector<ItemChoice>& choices) {
      std::erase_if(choices, [&](const ItemChoice& choice) { return !node_live_[choice.node]; });
    };
    shape.counts = count_plan(shape, shape.max);
    for (auto& choices : shape.prefix)
      clean(choices);
    clean(shape.rest);
  }

  void finish_object(ObjectShape& shape, Dfa& keys) {
    std::vector<std::uint32_t> named(shape.classes.size(), kNoIndex);
    for (KeyClass& key : shape.classes) {
      std::erase_if(key.choices, [&](const Choice& choice) { return !node_live_[choice.node]; });
    }
    for (std::uint32_t& label : keys.accept) {
      if (label != 0 && shape.classes[label - 1].choices.empty()) label = 0;
    }
    keys = trim(std::move(keys));
    number_named(keys, shape, named);
    shape.required.assign(shape.num_named / 64 + 1, 0);
    for (std::size_t i = 0; i < shape.classes.size(); ++i) {
      shape.classes[i].named = named[i];
      if (shape.classes[i].required) shape.required[named[i] / 64] |= std::uint64_t{1} << named[i] % 64;
    }
    if (keys.empty()) return;
    budget_.spend(keys.next.size());
    shape.reach = key_reach(keys, named);
    shape.all_open = all_open(keys, shape.reach);
    const bool finite = !shape.reach[keys.start].endless;
    check_marks(shape, finite);
    shape.keys = std::make_shared<ByteLexer>(std::make_shared<Dfa>(std::move(keys)), ByteLexer::Encoding::kJsonString);
  }

  // Numbers named classes in order of their names: depth-first over the automaton, whose classes are in code point
  // order as far as the names need.
  void number_named(const Dfa& keys, ObjectShape& shape, std::vector<std::uint32_t>& named) const {
    std::vector<bool> seen(keys.num_states(), false);
    std::vector<std::uint32_t> work{keys.start};
    const std::size_t width = keys.alphabet.num_classes();
    while (!work.empty()) {
      const std::uint32_t state = work.back();
      work.pop_back();
      if (state == 0 || seen[state]) continue;
      seen[state] = true;
      const std::uint32_t label = keys.accept[state];
      if (label != 0 && shape.classes[label - 1].is_named && named[label - 1] == kNoIndex)
        named[label - 1] = shape.num_named++;
      for (std::size_t k = width; k-- > 1;)
        work.push_back(keys.next[state * width + k]);
    }
  }

  static bool all_open(const Dfa& keys, const std::vector<KeyReach>& reach) {
    const std::size_t width = keys.alphabet.num_classes();
    for (std::size_t state = 1; state < keys.num_states(); ++state) {
      if (!reach[state].endless) return false;
      for (std::size_t k = 1; k < width; ++k) {
        if (keys.next[state * width + k] == 0) return false;
      }
    }
    return true;
  }

  // A condition that some property must meet requires a supply of keys that cannot run out.
  void check_marks(const ObjectShape& shape, bool finite) const {
    for (std::uint32_t mark = 0; mark < shape.num_marks; ++mark) {
      const bool unnamed = std::any_of(shape.classes.begin(), shape.classes.end(), [&](const KeyClass& key) {
        return !key.is_named && std::any_of(key.choices.begin(), key.choices.end(),
                                            [&](const Choice& choice) { return (choice.marks >> mark & 1) != 0; });
      });
      if (finite || !unnamed) throw Refusal("a condition that some property must meet is not supported here");
    }
  }

  Program& program_;
  std::size_t first_node_;
  std::size_t first_array_;
  std::size_t first_object_;
  std::vector<Dfa>& keys_;
  Budget& budget_;
  std::vector<bool> node_live_;
  std::vector<bool> array_live_;
  std::vector<bool> object_live_;
};

}  // namespace

void keep_productive(Program& program, std::size_t first_node, std::size_t first_array, std::size_t first_object,
                     std::vector<Dfa>& keys, Budget& budget) {
  Pruner(program, first_node, first_array, first_object, keys, budget).run();
}

}  // namespace quire::grammar
