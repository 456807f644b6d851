#include "core/grammar/compile_steps.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/grammar/cfg/arguments.h"
#include "core/grammar/cfg/rules.h"
#include "core/grammar/compiler.h"
#include "core/grammar/json_schema/builder.h"
#include "core/grammar/regex/regex.h"

namespace quire::grammar {

namespace {

constexpr std::uint32_t kMostSpaces = 16;  // most white space between two tags

class Structure {
 public:
  Structure(const GrammarSpec& spec, Lexicon& lexicon, const TokenVocabulary& vocabulary, Budget& budget,
            Program& program)
      : spec_(spec), lexicon_(lexicon), vocabulary_(vocabulary), budget_(budget), triggers_(spec.triggers) {
    if (spec.tags.empty() && spec.openings.empty()) throw Refusal("a structural grammar needs a tag");
    // Body 0 is the whole text.
    bodies_.bodies.emplace_back();
    for (const ArgumentRule& rule : spec.arguments)
      arguments_.push_back({rule.name, make_arguments(rule, lexicon, budget, program, bodies_)});
    for (const TextOpening& opening : spec.openings)
      openings_.push_back({parse_regex(opening.text, budget), make_call(add_rules(opening.rules))});
    for (const StructuralTag& tag : spec.tags) {
      contents_.push_back(tag.rules.empty() ? bodies_.value(build_schema(tag.schema, lexicon, budget, program))
                                            : make_call(add_rules(tag.rules)));
    }
    if (spec.answer != nullptr) answer_ = answer(*spec.answer, program);
    if (triggers_.empty()) {
      for (const StructuralTag& tag : spec.tags)
        triggers_.push_back(tag.begin);
    }
    std::sort(triggers_.begin(), triggers_.end());
    triggers_.erase(std::unique(triggers_.begin(), triggers_.end()), triggers_.end());
  }

  void build(Program& program) {
    bodies_.bodies[0] = spec_.free_text ? free() : bound();
    bodies_.number_values(budget_);
    build_bodies(bodies_.bodies, bodies_.values, budget_, program);
  }

 private:
  // The tag without the first `from` bytes of its opening text.
  Expr tag(std::size_t index, std::size_t from) const {
    const StructuralTag& tag = spec_.tags[index];
    budget_.take_nodes(tag.begin.size() + tag.end.size());
    return make_concat({make_literal(tag.begin.substr(from)), contents_[index], make_literal(tag.end)});
  }

  // Adds the rules; returns the place of their root among the bodies.
  std::uint32_t add_rules(const std::string& source, const std::string& root = "root", bool gbnf = true) {
    const std::vector<Rule> rules = parse_rules(source, gbnf, {&vocabulary_, arguments_}, budget_);
    const auto first = static_cast<std::uint32_t>(bodies_.bodies.size());
    std::uint32_t place = 0;
    while (place < rules.size() && rules[place].name != root)
      ++place;
    if (place == rules.size()) throw Refusal("the rules have no rule named " + root);
    for (const Rule& rule : rules)
      bodies_.bodies.push_back(rule.is_given ? rule.body : with_calls_moved(rule.body, first, budget_));
    return first + place;
  }

  // The text that may replace the tags.
  Expr answer(const GrammarSpec& spec, Program& program) {
    using Kind = GrammarSpec::Kind;
    Expr text;
    switch (spec.kind) {
      case Kind::kJsonSchema: text = bodies_.value(build_schema(spec.text, lexicon_, budget_, program)); break;
      case Kind::kJsonObject:
        text = bodies_.value(build_schema(R"({"type":"object"})", lexicon_, budget_, program));
        break;
      case Kind::kRegex: text = parse_regex(spec.text, budget_); break;
      case Kind::kEbnf:
      case Kind::kGbnf: text = make_call(add_rules(spec.text, spec.root, spec.kind == Kind::kGbnf)); break;
      case Kind::kChoice: {
        std::vector<Expr> choices;
        for (const std::string& choice : spec.choices)
          choices.push_back(make_literal(choice));
        text = make_alternate(std::move(choices));
        break;
      }
      case Kind::kStructural: throw Refusal("a structural tag and tools constrain the text together");
    }
    if (spec_.answer_begin.empty()) return text;
    return make_concat({make_repeat(make_literal(spec_.answer_begin), 0, 1), text});
  }

  Expr bound() const {
    std::vector<Expr> any;
    for (std::size_t i = 0; i < spec_.tags.size(); ++i)
      any.push_back(tag(i, 0));
    for (const Trigger& opening : openings_)
      any.push_back(make_concat({opening.text, opening.after}));
    const Expr one = make_alternate(any);
    CharSet space;
    for (const char32_t c : {U' ', U'\n', U'\t', U'\r'})
      space.add(c, c);
    const Expr before = spec_.spaced ? make_repeat(make_set(space), 0, kMostSpaces) : make_empty();
    const Expr between = spec_.spaced ? before : make_literal(spec_.separator);
    const bool several = spec_.parallel && !spec_.stops;
    const Expr more = make_repeat(make_concat({between, one}), 0, several ? kUnbounded : 0);
    const Expr all = make_concat({before, one, more});
    if (answer_ != nullptr) return make_alternate({all, answer_});
    return spec_.required ? all : make_repeat(all, 0, 1);
  }

  // An end of free text, and all that may follow it.
  struct Trigger {
    Expr text;
    Expr after;
  };

  // Calls only, if the text opens like a call; else free text until its first trigger.
  Expr free() const {
    if (openings_.empty() || spec_.opening_anywhere) return free_from(nullptr);
    std::vector<Expr> texts;
    std::vector<Expr> all;
    for (const Trigger& opening : openings_) {
      texts.push_back(opening.text);
      all.push_back(make_concat({opening.text, opening.after}));
    }
    const Dfa unopened =
        complement(build_full(make_concat({make_alternate(std::move(texts)), make_everything()}), budget_));
    all.push_back(triggers_.empty() ? make_automaton(std::make_shared<Dfa>(unopened)) : free_from(&unopened));
    return make_alternate(std::move(all));
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
    if (spec_.opening_anywhere) all.insert(all.end(), openings_.begin(), openings_.end());
    return all;
  }

  // unopened: the texts allowed up to the first trigger; null: any.
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
  Lexicon& lexicon_;
  const TokenVocabulary& vocabulary_;
  Budget& budget_;
  std::vector<std::string> triggers_;
  std::vector<Trigger> openings_;
  Expr answer_;  // null: no answer
  Bodies bodies_;
  std::vector<Rule> arguments_;
  std::vector<Expr> contents_;  // by tag
};

}  // namespace

void build_structural(const GrammarSpec& spec, Lexicon& lexicon, const TokenVocabulary& vocabulary, Budget& budget,
                      Program& program) {
  Structure(spec, lexicon, vocabulary, budget, program).build(program);
}

}  // namespace quire::grammar
