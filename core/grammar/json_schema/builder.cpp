#include "core/grammar/json_schema/builder.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/grammar/json_schema/expander.h"
#include "core/grammar/json_schema/key_automaton.h"
#include "core/grammar/regex/regex.h"

namespace quire::grammar {

namespace {

const std::string kNotUnique;
constexpr std::size_t kMaxMarks = 62;
constexpr std::size_t kMaxSubsets = 6;  // most conditions on a property or item that may hold in any combination

}  // namespace

class SchemaParts::Builder {
 public:
  Builder(std::string_view schema, Lexicon& lexicon, Budget& budget, Program& program)
      : lexicon_(lexicon),
        budget_(budget),
        program_(program),
        document_(schema, budget),
        expander_(document_, lexicon, budget),
        first_node_(program.nodes.size()),
        first_array_(program.arrays.size()),
        first_object_(program.objects.size()) {}

  Goal root() const { return {Literal{&document_.root(), false, false}}; }
  Expander& expander() { return expander_; }
  std::uint32_t wanted(const Goal& goal) { return node(goal); }

  void finish() {
    while (!queue_.empty()) {
      const Wanted wanted = std::move(queue_.front());
      queue_.pop_front();
      const Goal& goal = wanted.goal;
      try {
        build(wanted);
      } catch (const Refusal& refusal) {
        if (!refusal.pointer.empty()) throw;
        throw Refusal(refusal.what(), expander_.pointer(goal));
      }
    }
    keep_productive(program_, first_node_, first_array_, first_object_, keys_, budget_);
    const LexerPtr any_text = lexicon_.lexer(lexicon_.any_text(), ByteLexer::Encoding::kJsonString);
    for (std::size_t i = first_object_; i < program_.objects.size(); ++i) {
      if (program_.objects[i].all_open) program_.objects[i].any_text = any_text;
    }
  }

 private:
  struct Wanted {
    Goal goal;
    std::string unique_at;
    std::uint32_t index;
  };

  // unique_at: pointer of the uniqueItems that applies to the value; empty: none.
  std::uint32_t node(const Goal& goal, const std::string& unique_at = kNotUnique) {
    const auto [found, fresh] =
        nodes_.try_emplace({goal, unique_at}, static_cast<std::uint32_t>(program_.nodes.size()));
    if (fresh) {
      if (program_.nodes.size() >= budget_.limits().max_nodes) throw Refusal("the schema has too many value positions");
      program_.nodes.emplace_back();
      queue_.push_back({goal, unique_at, found->second});
    }
    return found->second;
  }

  void build(const Wanted& wanted) {
    budget_.spend(100);
    const Shapes& shapes = expander_.shapes(wanted.goal);
    if (!wanted.unique_at.empty()) {
      program_.nodes[wanted.index] = make_unique_item(shapes, wanted.unique_at, lexicon_, budget_);
      return;
    }
    if (shapes.strings.size() + shapes.arrays.size() + shapes.objects.size() > budget_.limits().max_alternatives) {
      throw Refusal("a value has too many alternatives");
    }
    ValueNode made;
    made.bare = bare(shapes);
    for (const StringAlternative& string : shapes.strings)
      add_string(string, made);
    for (const ArrayAlternative& array : shapes.arrays) {
      made.arrays.push_back(static_cast<std::uint32_t>(program_.arrays.size()));
      program_.arrays.push_back(this->array(array));
    }
    for (const ObjectAlternative& object : shapes.objects) {
      made.objects.push_back(static_cast<std::uint32_t>(program_.objects.size()));
      program_.objects.push_back(this->object(object));
    }
    program_.nodes[wanted.index] = std::move(made);
  }

  LexerPtr bare(const Shapes& shapes) {
    if (shapes.words == 0 && !shapes.numbers.any && shapes.numbers.language == nullptr) return nullptr;
    const auto make = [&] { return bare_automaton(shapes); };
    const std::string numbers = shapes.numbers.any                   ? "any"
                                : shapes.numbers.language == nullptr ? "none"
                                                                     : shapes.numbers.name;
    const DfaPtr dfa =
        numbers.empty() ? make() : lexicon_.dfa("bare " + std::to_string(shapes.words) + " " + numbers, make);
    return dfa->empty() ? nullptr : lexicon_.lexer(dfa, ByteLexer::Encoding::kUtf8);
  }

  DfaPtr bare_automaton(const Shapes& shapes) {
    std::vector<std::u32string> texts;
    if ((shapes.words & Shapes::kNull) != 0) texts.push_back(U"null");
    if ((shapes.words & Shapes::kTrue) != 0) texts.push_back(U"true");
    if ((shapes.words & Shapes::kFalse) != 0) texts.push_back(U"false");
    Dfa dfa = from_texts(texts, budget_);
    DfaPtr numbers = shapes.numbers.any ? lexicon_.dfa("json number", [&] { return json_numbers(budget_); })
                                        : shapes.numbers.language;
    if (numbers == nullptr) return std::make_shared<Dfa>(std::move(dfa));
    if (shapes.numbers.integral) {
      // Many readers do not take "7.0" and "1e2" for integers: only digits are offered.
      const DfaPtr tidy = lexicon_.dfa("tidy integers", [&] { return spelled_integers(budget_); });
      numbers = std::make_shared<Dfa>(minimise(intersect(*numbers, *tidy, budget_)));
    }
    return texts.empty() ? numbers : std::make_shared<Dfa>(unite(*numbers, dfa, budget_));
  }

  void add_string(const StringAlternative& string, ValueNode& made) {
    StringShape shape;
    const DfaPtr language = string.language == nullptr ? lexicon_.any_text() : string.language;
    if (language->empty()) return;
    shape.lexer = lexer_of(language);
    shape.min = string.min;
    shape.max = string.max;
    if (string.min > 0 || string.max != kUnbounded) {
      auto& known = lengths_[{language.get(), string.max}];
      if (known == nullptr)
        known =
            std::make_shared<Lengths>(*language, string.max == kUnbounded ? Lengths::kEndless : string.max, budget_);
      shape.lengths = known;
      if (string.max == kUnbounded && known->shortest(language->start) >= string.min) {
        shape.lengths = nullptr;
        shape.min = 0;
      }
      if (shape.bounded() && !shape.live(language->start, 0)) return;
    }
    made.strings.push_back(std::move(shape));
  }

  LexerPtr lexer_of(const DfaPtr& language) {
    LexerPtr& known = lexers_[language.get()];
    if (known == nullptr) known = lexicon_.lexer(language, ByteLexer::Encoding::kJsonString);
    keep_.push_back(language);
    return known;
  }

  ArrayShape array(const ArrayAlternative& alternative) {
    ArrayShape shape;
    shape.min = alternative.min;
    shape.max = alternative.max;
    const std::string& unique_at = alternative.max > 1 ? alternative.unique_at : kNotUnique;
    shape.unique = !unique_at.empty();
    if (shape.unique && !alternative.contains.empty()) {
      throw Refusal("uniqueItems beside conditions on how many items there are of a kind is not supported", unique_at);
    }
    if (alternative.contains.size() > kMaxSubsets)
      throw Refusal("too many conditions on how many items there are of a kind");
    std::size_t prefix = alternative.prefix.size();
    for (const ContainsAlternative& contains : alternative.contains)
      prefix = std::max<std::size_t>(prefix, contains.from);
    prefix = std::min<std::size_t>(prefix, alternative.max);
    for (std::size_t i = 0; i < prefix; ++i) {
      shape.prefix.push_back(
          items(i < alternative.prefix.size() ? alternative.prefix[i] : alternative.rest, alternative, i, unique_at));
    }
    shape.rest = items(alternative.rest, alternative, prefix, unique_at);
    for (const ContainsAlternative& contains : alternative.contains)
      shape.contains.push_back({contains.min, contains.max});
    return shape;
  }

  // The kinds of item at an index. For each condition, an item counts for it, or does not meet it (if too many must
  // not), or leaves it open.
  std::vector<ItemChoice> items(const Goal& goal, const ArrayAlternative& array, std::size_t index,
                                const std::string& unique_at) {
    std::vector<std::pair<Goal, std::uint32_t>> kinds{{goal, 0}};
    for (std::uint32_t i = 0; i < array.contains.size(); ++i) {
      const ContainsAlternative& contains = array.contains[i];
      if (index < contains.from) continue;
      std::vector<std::pair<Goal, std::uint32_t>> split;
      for (const auto& [base, counted] : kinds) {
        Goal with = base;
        add_literal(with, contains.value);
        split.emplace_back(std::move(with), counted | 1u << i);
        Goal without = base;
        Literal other = contains.value;
        other.negated = !other.negated;
        if (contains.max != kUnbounded) add_literal(without, other);
        split.emplace_back(std::move(without), counted);
      }
      kinds = std::move(split);
    }
    std::vector<ItemChoice> result;
    for (const auto& [kind, counted] : kinds)
      result.push_back({node(kind, unique_at), counted});
    return result;
  }

  ObjectShape object(const ObjectAlternative& alternative) {
    std::set<std::u32string> names = alternative.required;
    std::vector<DfaPtr> patterns;
    for (const auto* rules : {&alternative.every, &alternative.some}) {
      for (const NameRule& rule : *rules) {
        names.insert(rule.names->texts.begin(), rule.names->texts.end());
        for (const DfaPtr& pattern : rule.names->patterns) {
          if (std::find(patterns.begin(), patterns.end(), pattern) == patterns.end()) patterns.push_back(pattern);
        }
      }
    }
    if (alternative.some.size() > kMaxMarks) throw Refusal("too many conditions that some property must meet");
    if (!alternative.some.empty() && alternative.max != kUnbounded) {
      throw Refusal(
          "a condition that some property must meet, and a limit on the properties, are not supported together");
    }
    const std::vector<std::u32string> sorted(names.begin(), names.end());
    KeyAutomaton automaton = make_key_automaton(sorted, patterns, budget_);
    ObjectShape shape;
    shape.min = alternative.min;
    shape.max = alternative.max;
    shape.num_marks = static_cast<std::uint32_t>(alternative.some.size());
    shape.num_required = static_cast<std::uint32_t>(alternative.required.size());
    for (const KeyKind& kind : automaton.kinds) {
      KeyClass made;
      made.is_named = kind.named;
      made.required = kind.named && alternative.required.contains(kind.name);
      made.choices = values(kind, alternative);
      shape.classes.push_back(std::move(made));
    }
    keys_.push_back(std::move(automaton.dfa));
    return shape;
  }

  std::vector<Choice> values(const KeyKind& kind, const ObjectAlternative& object) {
    Goal goal;
    budget_.spend(object.every.size());
    for (const NameRule& rule : object.every) {
      if (kind.in(*rule.names)) add_literal(goal, rule.value);
    }
    std::vector<std::pair<Goal, std::uint64_t>> kinds{{goal, 0}};
    std::size_t matched = 0;
    for (std::size_t i = 0; i < object.some.size(); ++i) {
      if (!kind.in(*object.some[i].names)) continue;
      if (++matched > kMaxSubsets) throw Refusal("too many conditions that some property must meet");
      const std::size_t before = kinds.size();
      for (std::size_t k = 0; k < before; ++k) {
        Goal with = kinds[k].first;
        add_literal(with, object.some[i].value);
        kinds.emplace_back(std::move(with), kinds[k].second | std::uint64_t{1} << i);
      }
    }
    std::vector<Choice> result;
    for (const auto& [wanted, marks] : kinds) {
      const bool never =
          std::any_of(wanted.begin(), wanted.end(), [](const Literal& l) { return l.json == nullptr && l.negated; });
      if (!never) result.push_back({node(wanted), marks});
    }
    return result;
  }

  Lexicon& lexicon_;
  Budget& budget_;
  Program& program_;
  Document document_;
  Expander expander_;
  const std::size_t first_node_;
  const std::size_t first_array_;
  const std::size_t first_object_;
  std::map<std::pair<Goal, std::string>, std::uint32_t> nodes_;
  std::deque<Wanted> queue_;
  std::vector<Dfa> keys_;  // by object shape, in order
  std::map<const Dfa*, LexerPtr> lexers_;
  std::map<std::pair<const Dfa*, std::uint32_t>, std::shared_ptr<const Lengths>> lengths_;
  std::vector<DfaPtr> keep_;  // keeps the addresses above from being reused
};

SchemaParts::SchemaParts(std::string_view schema, Lexicon& lexicon, Budget& budget, Program& program)
    : builder_(std::make_unique<Builder>(schema, lexicon, budget, program)) {}
SchemaParts::~SchemaParts() = default;

Goal SchemaParts::root() const {
  return builder_->root();
}

const Shapes& SchemaParts::shapes(const Goal& goal) {
  return builder_->expander().shapes(goal);
}

std::string SchemaParts::pointer(const Goal& goal) const {
  return builder_->expander().pointer(goal);
}

std::uint32_t SchemaParts::node(const Goal& goal) {
  return builder_->wanted(goal);
}

void SchemaParts::finish() {
  builder_->finish();
}

std::uint32_t build_schema(std::string_view schema, Lexicon& lexicon, Budget& budget, Program& program) {
  SchemaParts parts(schema, lexicon, budget, program);
  const std::uint32_t root = parts.node(parts.root());
  parts.finish();
  const ValueNode& top = program.nodes[root];
  if (top.bare == nullptr && top.strings.empty() && top.arrays.empty() && top.objects.empty()) {
    throw Refusal("no value satisfies the schema", "#");
  }
  return root;
}

}  // namespace quire::grammar
