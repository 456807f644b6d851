#include "core/grammar/cfg/arguments.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "core/grammar/cfg/argument_members.h"
#include "core/grammar/cfg/argument_texts.h"
#include "core/grammar/json_schema/builder.h"
#include "core/grammar/json_schema/number.h"
#include "core/grammar/regex/regex.h"

namespace quire::grammar {

namespace {

constexpr std::uint32_t kMostItems = 1000;  // most items of an array that are counted
// Numbers as Python reads them, also with signs, points without digits before them, leading zeros and underscores.
constexpr const char* kPythonNumber =
    R"(\+?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?|[0-9]+(_[0-9]+)*(\.[0-9]+)?[eE][+-]?[0-9]+))"
    R"(|-[0-9]+(_[0-9]+)*(\.[0-9]*|(\.[0-9]+)?[eE][+-]?[0-9]+)?)";

class NestedArguments {
 public:
  NestedArguments(const ArgumentRule& rule, Lexicon& lexicon, Budget& budget, Program& program, Bodies& bodies)
      : rule_(rule),
        form_(rule.form),
        lexicon_(lexicon),
        budget_(budget),
        bodies_(bodies),
        parts_(rule.schema, lexicon, budget, program) {}

  Expr run(const std::vector<std::u32string>& order) {
    const Goal root = parts_.root();
    std::vector<Expr> all;
    for (const ObjectAlternative& object : parts_.shapes(root).objects)
      all.push_back(object_of(members_of(object, order, root), true));
    if (all.empty()) throw Refusal("no object satisfies the schema", "#");
    return make_alternate(std::move(all));
  }

 private:
  using Kind = ArgumentForm::Kind;

  ObjectMembers members_of(const ObjectAlternative& object, const std::vector<std::u32string>& order,
                           const Goal& goal) {
    return ObjectMembers::of(object, order, rule_.exact, parts_.pointer(goal));
  }

  static Expr mark(const char* text) { return make_concat({any_space(), make_literal(text), any_space()}); }

  // A value and, in tags, the mark that closes it.
  Expr value(const Goal& goal) {
    if (const auto known = values_.find(goal); known != values_.end()) return Bodies::call(known->second);
    const std::uint32_t place = bodies_.reserve();
    values_[goal] = place;
    const Shapes shapes = parts_.shapes(goal);
    std::vector<Expr> all;
    add_words(shapes.words, all);
    add_numbers(shapes.numbers, all);
    for (const StringAlternative& string : shapes.strings)
      add_text(string, all);
    for (const ArrayAlternative& array : shapes.arrays)
      add_array(array, goal, all);
    for (const ObjectAlternative& object : shapes.objects)
      all.push_back(object_of(members_of(object, {}, goal), false));
    bodies_.bodies[place] = all.empty() ? make_set(CharSet()) : make_alternate(std::move(all));
    return Bodies::call(place);
  }

  // A value without parts; in tags white space may surround it.
  Expr scalar(const Expr& text) const {
    if (form_.kind != Kind::kXml) return text;
    return make_concat({any_space(), text, any_space(), make_literal(form_.mark)});
  }

  void add_words(std::uint8_t words, std::vector<Expr>& all) const {
    struct Word {
      std::uint8_t word;
      const char *json, *python;
    };
    for (const Word& each : {Word{Shapes::kTrue, "true", "True"}, Word{Shapes::kFalse, "false", "False"},
                             Word{Shapes::kNull, "null", "None"}}) {
      if ((words & each.word) == 0) continue;
      all.push_back(scalar(make_literal(each.json)));
      if (form_.kind != Kind::kBraced) all.push_back(scalar(make_literal(each.python)));
    }
  }

  void add_numbers(const NumberSet& numbers, std::vector<Expr>& all) {
    DfaPtr dfa = numbers.language;
    if (numbers.any) {
      const bool python = form_.kind == Kind::kPython;
      dfa = lexicon_.dfa(python ? "python number" : "json number", [&]() -> DfaPtr {
        if (!python) return json_numbers(budget_);
        return std::make_shared<Dfa>(build_full(parse_regex(kPythonNumber, budget_), budget_));
      });
    }
    if (dfa == nullptr) return;
    if (numbers.integral) {
      const DfaPtr digits = lexicon_.dfa("tidy integers", [&] { return spelled_integers(budget_); });
      dfa = std::make_shared<Dfa>(minimise(intersect(*dfa, *digits, budget_)));
    }
    if (!dfa->empty()) all.push_back(scalar(make_automaton(dfa)));
  }

  void add_text(const StringAlternative& string, std::vector<Expr>& all) {
    const DfaPtr texts = texts_of(string, budget_);
    if (form_.kind == Kind::kPython) return add_literals(texts, all);
    const bool braced = form_.kind == Kind::kBraced;
    const Expr end = make_literal(braced ? form_.quote : form_.mark);
    const Expr rest = text_up_to(texts == nullptr ? nullptr : make_automaton(texts), end, end,
                                 braced ? form_.quote : form_.mark, lexicon_, budget_);
    all.push_back(braced ? make_concat({end, rest}) : rest);
  }

  // Adds literals in quotes of either kind; if not every text is allowed, literals without escapes.
  void add_literals(const DfaPtr& texts, std::vector<Expr>& all) {
    for (const char32_t quote : {U'"', U'\''}) {
      const Expr mark = make_set(CharSet(quote, quote));
      CharSet special(quote, quote);
      special.add(U'\\', U'\\');
      if (texts == nullptr) {
        const Expr escape = make_concat({make_literal("\\"), make_set(CharSet::any())});
        const Expr character = make_alternate({make_set(special.complement()), escape});
        all.push_back(make_concat({mark, make_repeat(character, 0, kUnbounded), mark}));
      } else {
        all.push_back(make_concat({mark, make_automaton(without(texts, special, budget_)), mark}));
      }
    }
  }

  void add_array(const ArrayAlternative& array, const Goal& goal, std::vector<Expr>& all) {
    if (rule_.exact && (!array.contains.empty() || !array.unique_at.empty()))
      throw Refusal("in calls of this model an array cannot be held to items that differ or are counted by kind",
                    array.unique_at.empty() ? parts_.pointer(goal) : array.unique_at);
    if (rule_.exact && (array.min > kMostItems || (array.max != kUnbounded && array.max > kMostItems)))
      throw Refusal("an array's number of items is too large for a call of this model", parts_.pointer(goal));
    const auto item = [&](std::size_t index) {
      const Expr inside = value(index < array.prefix.size() ? array.prefix[index] : array.rest);
      if (form_.kind != Kind::kXml) return inside;
      return make_concat({any_space(), make_literal(form_.mark + "<item>"), inside, make_literal("</item>")});
    };
    const auto after = [&](std::size_t index) {
      if (form_.kind == Kind::kXml || index == 0) return item(index);
      return make_concat({mark(","), item(index)});
    };
    const std::uint32_t min = std::min(array.min, kMostItems);
    const auto counted = std::max<std::size_t>({array.prefix.size(), 1});
    // A comma may follow the last item of Python's lists.
    const Expr trailing =
        form_.kind == Kind::kPython ? make_repeat(make_concat({any_space(), make_literal(",")}), 0, 1) : make_empty();
    Expr items = make_empty();
    // Built from the last item to the first: an item may be followed by others only if it is there.
    if (array.max == kUnbounded || array.max > counted) {
      const auto left = static_cast<std::uint32_t>(counted);
      items = make_repeat(after(counted), min > left ? min - left : 0,
                          array.max == kUnbounded || array.max > kMostItems ? kUnbounded : array.max - left);
    }
    for (std::size_t i = std::min<std::size_t>(counted, array.max); i-- > 0;) {
      items = make_concat({after(i), items});
      if (i == 0) items = make_concat({items, trailing});
      if (i >= min) items = make_repeat(items, 0, 1);
    }
    if (form_.kind == Kind::kXml) {
      all.push_back(make_concat({items, any_space(), make_literal(form_.mark)}));
      return;
    }
    const auto bracketed = [&](const char* open, const char* close) {
      return make_concat({make_literal(open), any_space(), items, any_space(), make_literal(close)});
    };
    all.push_back(bracketed("[", "]"));
    if (form_.kind == Kind::kPython) all.push_back(bracketed("(", ")"));
  }

  Expr object_of(const ObjectMembers& members, bool outermost) {
    std::vector<std::u32string> names;
    for (const Member& member : members.named)
      names.push_back(member.name);
    const auto key = [&](const Member& member) { return key_of(member, names, outermost); };
    switch (form_.kind) {
      case Kind::kXml: return tags_of(members, names, outermost);
      case Kind::kPython:
        return list_of(members, key, outermost ? "" : "{", outermost ? ")" : "}", outermost ? "=" : ":");
      default: return list_of(members, key, "{", "}", ":");
    }
  }

  template <class Key>
  Expr list_of(const ObjectMembers& members, const Key& key, const char* open, const char* close, const char* colon) {
    const bool python = form_.kind == Kind::kPython;
    const Expr between = python ? mark(colon) : make_concat({make_literal(colon), any_space()});
    const Expr comma = make_concat({any_space(), make_literal(",")});
    const Expr end = make_concat({any_space(), make_literal(close)});
    MemberForm form;
    form.none = make_concat({make_literal(open), end});
    form.first = make_concat({make_literal(open), any_space()});
    const auto written = [&](const Member& member) { return make_concat({key(member), between, value(member.goal)}); };
    form.followed = [&](const Member& member) { return make_concat({written(member), comma, any_space()}); };
    form.last = [&](const Member& member) {
      return make_concat({written(member), python ? make_repeat(comma, 0, 1) : make_empty(), end});
    };
    return make_members(members, form, bodies_);
  }

  Expr key_of(const Member& member, const std::vector<std::u32string>& names, bool outermost) {
    if (form_.kind == Kind::kBraced) {
      CharSet kept_out;
      for (const char32_t c : {U':', U'{', U'}', U'[', U']', U',', U'\n', U'\r'})
        kept_out.add(c, c);
      if (member.name.empty()) return bare_key(names, kept_out);
      const Expr quote = make_literal(form_.quote);
      const Expr name = make_literal(utf8(member.name));
      const bool plain = !has_any(member.name, kept_out);
      return plain ? name : make_concat({quote, name, quote});
    }
    if (outermost) {
      CharSet allowed(U'a', U'z');
      for (const auto& [lo, hi] : {std::pair{U'A', U'Z'}, {U'0', U'9'}, {U'_', U'_'}, {U'.', U'.'}, {U'-', U'-'}})
        allowed.add(lo, hi);
      if (member.name.empty()) return other_keys(names, allowed.complement(), budget_);
      const bool plain = !has_any(member.name, allowed.complement());
      return plain ? make_literal(utf8(member.name)) : make_set(CharSet());
    }
    std::vector<Expr> quoted;
    for (const char32_t quote : {U'"', U'\''}) {
      CharSet special(quote, quote);
      special.add(U'\\', U'\\');
      const Expr mark = make_set(CharSet(quote, quote));
      if (member.name.empty()) {
        quoted.push_back(make_concat({mark, other_keys(names, special, budget_), mark}));
      } else if (!has_any(member.name, special)) {
        quoted.push_back(make_concat({mark, make_literal(utf8(member.name)), mark}));
      }
    }
    return quoted.empty() ? make_set(CharSet()) : make_alternate(std::move(quoted));
  }

  // Keys that begin neither with white space nor with a mark.
  Expr bare_key(const std::vector<std::u32string>& names, const CharSet& kept_out) {
    CharSet first = kept_out;
    for (const char32_t c : {U' ', U'\t', U'<'})
      first.add(c, c);
    const Expr rest = make_repeat(make_set(kept_out.complement()), 0, kUnbounded);
    const Dfa begun = build_full(make_concat({make_set(first.complement()), rest}), budget_);
    if (names.empty()) return make_automaton(std::make_shared<Dfa>(begun));
    std::vector<std::u32string> sorted = names;
    std::sort(sorted.begin(), sorted.end());
    return make_automaton(std::make_shared<Dfa>(intersect(begun, complement(from_texts(sorted, budget_)), budget_)));
  }

  static bool has_any(const std::u32string& text, const CharSet& set) {
    return std::any_of(text.begin(), text.end(), [&](char32_t c) { return set.contains(c); });
  }

  Expr tags_of(const ObjectMembers& members, const std::vector<std::u32string>& names, bool outermost) {
    CharSet kept_out;
    for (const char32_t c : {U'<', U'>', U'/', U'"', U'\n', U'\r'})
      kept_out.add(c, c);
    const Expr next = make_concat({any_space(), make_literal(form_.mark)});
    const Expr end = outermost ? make_concat({next, make_literal(form_.call_end)}) : next;
    const auto tag = [&](const Member& member) {
      const auto key = [&] {
        return member.name.empty() ? other_keys(names, kept_out, budget_) : make_literal(utf8(member.name));
      };
      return make_concat({make_literal("<"), key(), make_literal(">"), value(member.goal), make_literal("</"), key(),
                          make_literal(">")});
    };
    MemberForm form;
    form.none = end;
    form.first = next;
    form.followed = [&](const Member& member) { return make_concat({tag(member), next}); };
    form.last = [&](const Member& member) { return make_concat({tag(member), end}); };
    return make_members(members, form, bodies_);
  }

  const ArgumentRule& rule_;
  const ArgumentForm& form_;
  Lexicon& lexicon_;
  Budget& budget_;
  Bodies& bodies_;
  SchemaParts parts_;
  std::map<Goal, std::uint32_t> values_;
};

}  // namespace

Expr make_nested_arguments(const ArgumentRule& rule, const std::vector<std::u32string>& order, Lexicon& lexicon,
                           Budget& budget, Program& program, Bodies& bodies) {
  return NestedArguments(rule, lexicon, budget, program, bodies).run(order);
}

}  // namespace quire::grammar
