#include "core/grammar/cfg/structural.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/grammar/cfg/rules.h"
#include "core/grammar/cfg/tagged_calls.h"
#include "core/grammar/json_schema/builder.h"
#include "core/grammar/regex/build.h"
#include "core/grammar/regex/parser.h"

namespace quire::grammar {

namespace {

class Structure {
 public:
  Structure(const GrammarSpec& spec, Lexicon& lexicon, Budget& budget, Program& program)
      : spec_(spec), budget_(budget), triggers_(spec.triggers) {
    if (spec.tags.empty() && spec.opening.empty()) throw Refusal("a structural grammar needs a tag");
    // Body 0 is the whole text; those of rules follow, and then, as symbols, the JSON values.
    bodies_.emplace_back();
    if (!spec.opening.empty()) opening_ = {parse_regex(spec.opening, budget), make_call(add_rules(spec.opening_rules))};
    for (const StructuralTag& tag : spec.tags) {
      if (!tag.rules.empty()) contents_.push_back(make_call(add_rules(tag.rules)));
      if (tag.calls) contents_.push_back(tagged_calls(*tag.calls, budget));
      if (contents_.size() > values_of_.size()) {
        values_of_.push_back(kNoIndex);
        continue;
      }
      values_of_.push_back(static_cast<std::uint32_t>(values_.size()));
      values_.push_back({true, build_schema(tag.schema, lexicon, budget, program)});
      contents_.emplace_back();
    }
    for (std::size_t i = 0; i < contents_.size(); ++i) {
      if (values_of_[i] != kNoIndex)
        contents_[i] = make_call(static_cast<std::uint32_t>(bodies_.size()) + values_of_[i]);
    }
    if (triggers_.empty()) {
      for (const StructuralTag& tag : spec.tags)
        triggers_.push_back(tag.begin);
    }
    std::sort(triggers_.begin(), triggers_.end());
    triggers_.erase(std::unique(triggers_.begin(), triggers_.end()), triggers_.end());
  }

  void build(Program& program) {
    bodies_[0] = spec_.free_text ? free() : bound();
    build_bodies(bodies_, values_, budget_, program);
  }

 private:
  // The tag from the given place of its opening text on.
  Expr tag(std::size_t index, std::size_t from) const {
    const StructuralTag& tag = spec_.tags[index];
    budget_.take_nodes(tag.begin.size() + tag.end.size());
    return make_concat({make_literal(tag.begin.substr(from)), contents_[index], make_literal(tag.end)});
  }

  // The place of their root among the bodies.
  std::uint32_t add_rules(const std::string& source) {
    const std::vector<Rule> rules = parse_rules(source, true, budget_);
    const auto first = static_cast<std::uint32_t>(bodies_.size());
    std::uint32_t root = 0;
    while (root < rules.size() && rules[root].name != "root")
      ++root;
    if (root == rules.size()) throw Refusal("the rules have no rule named root");
    for (const Rule& rule : rules)
      bodies_.push_back(with_calls_moved(rule.body, first, budget_));
    return first + root;
  }

  Expr bound() const {
    std::vector<Expr> any;
    for (std::size_t i = 0; i < spec_.tags.size(); ++i)
      any.push_back(tag(i, 0));
    const Expr one = make_alternate(any);
    const Expr more =
        make_repeat(make_concat({make_literal(spec_.separator), one}), 0, spec_.parallel ? kUnbounded : 0);
    const Expr all = make_concat({make_literal(spec_.prefix), one, more, make_literal(spec_.suffix)});
    return spec_.required ? all : make_repeat(all, 0, 1);
  }

  // What ends free text, and all that may follow it.
  struct Trigger {
    Expr text;
    Expr after;
  };

  // A text that opens as calls do is calls; any other one is free until its first trigger.
  Expr free() const {
    if (spec_.opening.empty() || spec_.opening_anywhere) return free_from(nullptr);
    const Dfa unopened = complement(build_full(make_concat({opening_.front(), make_everything()}), budget_));
    const Expr other = triggers_.empty() ? make_automaton(std::make_shared<Dfa>(unopened)) : free_from(&unopened);
    return make_alternate({make_concat(opening_), other});
  }

  std::vector<Trigger> all_triggers() const {
    std::vector<Trigger> all;
    std::vector<bool> reached(spec_.tags.size(), false);
    for (const std::string& trigger : triggers_) {
      if (trigger.empty()) throw Refusal("a trigger must not be empty");
      std::vector<Expr> after;
      for (std::size_t i = 0; i < spec_.tags.size(); ++i) {
        if (!spec_.tags[i].begin.starts_with(trigger)) continue;
        reached[i] = true;
        after.push_back(tag(i, trigger.size()));
      }
      if (after.empty()) throw Refusal("the trigger " + trigger + " begins no tag");
      all.push_back({make_literal(trigger), make_alternate(after)});
    }
    const auto lost = std::find(reached.begin(), reached.end(), false);
    if (lost != reached.end()) {
      throw Refusal("the tag " + spec_.tags[static_cast<std::size_t>(lost - reached.begin())].begin +
                    " has no trigger");
    }
    if (spec_.opening_anywhere) all.push_back({opening_.front(), opening_.back()});
    return all;
  }

  // unopened: the texts that may stand up to the first trigger; null: any.
  Expr free_from(const Dfa* unopened) const {
    const std::vector<Trigger> triggers = all_triggers();
    std::vector<Expr> texts;
    for (const Trigger& trigger : triggers)
      texts.push_back(trigger.text);
    const Expr any_trigger = make_alternate(texts);
    // Texts in which no trigger ends before the last character.
    const Dfa early =
        build_full(make_concat({make_everything(), any_trigger, make_set(CharSet::any()), make_everything()}), budget_);
    const Dfa untriggered =
        complement(build_full(make_concat({make_everything(), any_trigger, make_everything()}), budget_));
    std::vector<Expr> units;
    std::vector<Expr> first_units;
    for (const Trigger& trigger : triggers) {
      const Dfa ends = build_full(make_concat({make_everything(), trigger.text}), budget_);
      const Dfa until = intersect(ends, complement(early), budget_);
      units.push_back(make_concat({make_automaton(std::make_shared<Dfa>(until)), trigger.after}));
      if (unopened == nullptr) continue;
      const Expr first = make_automaton(std::make_shared<Dfa>(intersect(until, *unopened, budget_)));
      first_units.push_back(make_concat({first, trigger.after}));
    }
    const Expr unit = make_alternate(units);
    const Expr rest = make_automaton(std::make_shared<Dfa>(untriggered));
    if (unopened != nullptr) {
      const Expr first = make_alternate(first_units);
      const Expr only = make_automaton(std::make_shared<Dfa>(intersect(untriggered, *unopened, budget_)));
      if (spec_.stops) return make_alternate({first, only});
      const Expr more = make_repeat(unit, 0, spec_.parallel ? kUnbounded : 0);
      return make_alternate({only, make_concat({first, more, rest})});
    }
    if (spec_.stops) return spec_.required ? unit : make_alternate({unit, rest});
    const Expr repeated = make_repeat(unit, spec_.required ? 1 : 0, spec_.parallel ? kUnbounded : 1);
    return make_concat({repeated, rest});
  }

  const GrammarSpec& spec_;
  Budget& budget_;
  std::vector<std::string> triggers_;
  std::vector<Expr> opening_;  // the beginning and what follows it; empty: there is none
  std::vector<Expr> bodies_;
  std::vector<Symbol> values_;
  std::vector<Expr> contents_;            // by tag
  std::vector<std::uint32_t> values_of_;  // by tag; kNoIndex: it has other content
};

}  // namespace

void build_structural(const GrammarSpec& spec, Lexicon& lexicon, Budget& budget, Program& program) {
  Structure(spec, lexicon, budget, program).build(program);
}

}  // namespace quire::grammar
