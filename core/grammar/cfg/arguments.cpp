#include "core/grammar/cfg/arguments.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "core/base/json/json.h"
#include "core/grammar/cfg/argument_members.h"
#include "core/grammar/cfg/argument_texts.h"
#include "core/grammar/json_schema/builder.h"
#include "core/grammar/regex/regex.h"

namespace quire::grammar {

namespace {

constexpr std::uint32_t kValueCalls = 1u << 30;

Expr renumbered(const Expr& expression, std::uint32_t first, Budget& budget) {
  budget.spend(1);
  const bool is_value = expression->kind == Expression::Kind::kCall && expression->call >= kValueCalls;
  if (is_value) return make_call(first + expression->call - kValueCalls);
  if (expression->children.empty()) return expression;
  auto copy = std::make_shared<Expression>(*expression);
  for (Expr& child : copy->children)
    child = renumbered(child, first, budget);
  return copy;
}

bool has_values(const ValueNode& node) {
  return node.bare != nullptr || !node.strings.empty() || !node.arrays.empty() || !node.objects.empty();
}

// Names of the schema's properties in the schema's order.
std::vector<std::u32string> order_of(const std::string& schema) {
  std::vector<std::u32string> names;
  const auto json = Json::parse(schema, nullptr, false);
  if (!json.is_object() || !json.contains("properties") || !json["properties"].is_object()) return names;
  for (const auto& [name, property] : json["properties"].items()) {
    std::u32string text;
    if (decode_utf8(name, text)) names.push_back(std::move(text));
  }
  return names;
}

// Arguments in tags: plain text, other values as JSON.
class TaggedArguments {
 public:
  TaggedArguments(const ArgumentRule& rule, Lexicon& lexicon, Budget& budget, Program& program, Bodies& bodies)
      : rule_(rule),
        form_(rule.form),
        lexicon_(lexicon),
        budget_(budget),
        program_(program),
        bodies_(bodies),
        parts_(rule.schema, lexicon, budget, program) {}

  Expr run() {
    std::vector<ObjectMembers> all;
    const auto order = order_of(rule_.schema);
    for (const ObjectAlternative& object : parts_.shapes(parts_.root()).objects)
      all.push_back(ObjectMembers::of(object, order, rule_.exact, parts_.pointer(parts_.root())));
    if (all.empty()) throw Refusal("no object satisfies the schema", "#");
    for (const ObjectMembers& members : all)
      ask_for_nodes(members);
    parts_.finish();
    std::vector<Expr> alternatives;
    for (const ObjectMembers& members : all)
      alternatives.push_back(arguments(members));
    return make_alternate(std::move(alternatives));
  }

 private:
  // Requests all nodes, since none exists before finish().
  void ask_for_nodes(const ObjectMembers& members) {
    for (const Member& member : members.named)
      nodes_[member.goal] = parts_.node(member.goal);
    if (members.open) nodes_[members.other.goal] = parts_.node(members.other.goal);
  }

  Expr arguments(const ObjectMembers& members) {
    for (const Member& member : members.named)
      names_.push_back(member.name);
    const Expr key_begin = make_literal(form_.key_begin);
    const Expr call_end = make_literal(form_.call_end);
    MemberForm form;
    form.none = make_concat({any_space(), call_end});
    form.first = make_concat({any_space(), key_begin});
    form.followed = [&](const Member& member) { return argument(member, key_begin, form_.key_begin); };
    form.last = [&](const Member& member) { return argument(member, call_end, form_.call_end); };
    return make_members(members, form, bodies_);
  }

  // A key, its value and `next`, which tells the value's end from the same text inside the value.
  Expr argument(const Member& member, const Expr& next, const std::string& next_text) {
    const Expr value_begin =
        form_.value_begin.empty() ? make_empty() : make_concat({any_space(), make_literal(form_.value_begin)});
    const Expr begin = make_concat({make_literal(form_.key_end), value_begin});
    const Expr text = text_value(member.goal, next, next_text);
    const Expr any = either(text, json_value(member.goal, next, false));
    std::vector<Expr> ways{make_concat({begin, any})};
    if (!form_.attribute.empty()) {
      const Expr attribute = make_literal(" " + form_.attribute);
      const Expr other = make_repeat(make_set(CharSet(U'a', U'z')), 1, 16);
      const Expr whole = is_free(member.goal) ? text : json_value(member.goal, next, true);
      const Expr quote = make_literal("\"");
      ways = {make_concat({quote, begin, any})};
      if (text != nullptr) {
        ways.push_back(make_concat({quote, attribute, make_literal(form_.text_word), quote, begin, text}));
      }
      if (whole != nullptr) ways.push_back(make_concat({quote, attribute, other, quote, begin, whole}));
    }
    return make_concat({key(member), make_alternate(std::move(ways))});
  }

  static Expr either(const Expr& a, const Expr& b) {
    if (a == nullptr && b == nullptr) return make_set(CharSet());
    if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
    return make_alternate({a, b});
  }

  Expr key(const Member& member) const {
    CharSet kept_out;
    std::u32string end;
    decode_utf8(form_.key_end, end);
    for (const char32_t c : {end.empty() ? U'>' : end.front(), U'"', U'\n', U'\r'})
      kept_out.add(c, c);
    if (member.name.empty()) return other_keys(names_, kept_out, budget_);
    const bool writable =
        std::none_of(member.name.begin(), member.name.end(), [&](char32_t c) { return kept_out.contains(c); });
    return writable ? make_literal(utf8(member.name)) : make_set(CharSet());
  }

  // Whether any text is a value.
  bool is_free(const Goal& goal) {
    const auto& strings = parts_.shapes(goal).strings;
    return std::any_of(strings.begin(), strings.end(), [](const StringAlternative& string) {
      return string.language == nullptr && string.min == 0 && string.max == kUnbounded;
    });
  }

  Expr text_value(const Goal& goal, const Expr& next, const std::string& next_text) {
    const auto& strings = parts_.shapes(goal).strings;
    if (strings.empty()) return nullptr;
    Expr text;
    if (!is_free(goal)) {
      std::vector<Expr> texts;
      for (const StringAlternative& string : strings)
        add_texts(texts_of(string, budget_), texts);
      text = make_alternate(std::move(texts));
    }
    std::vector<std::string> stops{form_.key_begin, form_.call_end};
    stops.insert(stops.end(), form_.ends.begin(), form_.ends.end());
    const Expr value_end = make_literal(form_.value_end);
    const Expr end = make_concat({value_end, any_space(), next});
    const Expr stop = make_concat({value_end, any_space(), make_words(stops)});
    std::string name = form_.value_end + "|" + next_text;
    for (const std::string& each : stops)
      name += "|" + each;
    return text_up_to(text, end, stop, name, lexicon_, budget_);
  }

  // A text on lines of its own does not include the line ends around it.
  void add_texts(const DfaPtr& dfa, std::vector<Expr>& texts) const {
    const Expr text = dfa == nullptr ? make_everything() : make_automaton(dfa);
    if (!form_.own_lines) return texts.push_back(text);
    const Expr line_end = make_literal("\n");
    texts.push_back(make_concat({line_end, text, line_end}));
    const Dfa begun = build_full(make_concat({line_end, make_everything()}), budget_);
    const Dfa inline_text = intersect(dfa == nullptr ? any_text() : *dfa, complement(begun), budget_);
    texts.push_back(make_automaton(std::make_shared<Dfa>(inline_text)));
  }

  // with_strings: texts may be written in JSON too.
  Expr json_value(const Goal& goal, const Expr& next, bool with_strings) {
    const std::uint32_t node = nodes_.at(goal);
    if (!with_strings && is_free(goal)) return nullptr;
    ValueNode kept = program_.nodes[node];
    if (!with_strings) kept.strings.clear();
    if (!has_values(kept)) return nullptr;
    std::uint32_t used = node;
    if (!with_strings && !program_.nodes[node].strings.empty()) {
      used = static_cast<std::uint32_t>(program_.nodes.size());
      program_.nodes.push_back(std::move(kept));
    }
    std::vector<Expr> values{bodies_.value(used)};
    const std::uint8_t words = parts_.shapes(goal).words;
    for (const auto& [word, text] :
         {std::pair{Shapes::kTrue, "True"}, {Shapes::kFalse, "False"}, {Shapes::kNull, "None"}}) {
      if ((words & word) != 0) values.push_back(make_literal(text));
    }
    return make_concat({any_space(), make_alternate(std::move(values)), any_space(), make_literal(form_.value_end),
                        any_space(), next});
  }

  const ArgumentRule& rule_;
  const ArgumentForm& form_;
  Lexicon& lexicon_;
  Budget& budget_;
  Program& program_;
  Bodies& bodies_;
  SchemaParts parts_;
  std::map<Goal, std::uint32_t> nodes_;
  std::vector<std::u32string> names_;
};

}  // namespace

Expr Bodies::add(Expr body) {
  bodies.push_back(std::move(body));
  return call(static_cast<std::uint32_t>(bodies.size() - 1));
}

std::uint32_t Bodies::reserve() {
  bodies.emplace_back();
  return static_cast<std::uint32_t>(bodies.size() - 1);
}

Expr Bodies::call(std::uint32_t body) {
  auto call = std::make_shared<Expression>(*make_call(body));
  call->stays = true;
  return call;
}

Expr Bodies::value(std::uint32_t node) {
  values.push_back({true, node});
  return make_call(kValueCalls + static_cast<std::uint32_t>(values.size() - 1));
}

void Bodies::number_values(Budget& budget) {
  for (Expr& body : bodies)
    body = renumbered(body, static_cast<std::uint32_t>(bodies.size()), budget);
}

Expr make_arguments(const ArgumentRule& rule, Lexicon& lexicon, Budget& budget, Program& program, Bodies& bodies) {
  switch (rule.form.kind) {
    case ArgumentForm::Kind::kJson: return bodies.value(build_schema(rule.schema, lexicon, budget, program));
    case ArgumentForm::Kind::kTagged: return TaggedArguments(rule, lexicon, budget, program, bodies).run();
    default: return make_nested_arguments(rule, order_of(rule.schema), lexicon, budget, program, bodies);
  }
}

}  // namespace quire::grammar
