#include "core/grammar/json_schema/expander.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/json/json_memory.h"

namespace quire::grammar {

namespace {

constexpr std::size_t kPruneLevels = 4;
constexpr std::size_t kMaxExpanding = 100;  // subschemas being expanded, each with its share of the stack

struct Since {
  std::string_view keyword;
  Draft first;
  Draft last;
};

// Keywords that only later drafts have; earlier ones take them for annotations.
constexpr Since kSince[] = {
    {"const", Draft::k6, Draft::k2020},
    {"contains", Draft::k6, Draft::k2020},
    {"propertyNames", Draft::k6, Draft::k2020},
    {"if", Draft::k7, Draft::k2020},
    {"prefixItems", Draft::k2020, Draft::k2020},
    {"minContains", Draft::k2019, Draft::k2020},
    {"maxContains", Draft::k2019, Draft::k2020},
    {"dependentRequired", Draft::k2019, Draft::k2020},
    {"dependentSchemas", Draft::k2019, Draft::k2020},
    {"unevaluatedItems", Draft::k2019, Draft::k2020},
    {"unevaluatedProperties", Draft::k2019, Draft::k2020},
    {"$recursiveRef", Draft::k2019, Draft::k2019},
    {"$dynamicRef", Draft::k2020, Draft::k2020},
    {"extends", Draft::k3, Draft::k3},
    {"disallow", Draft::k3, Draft::k3},
    {"divisibleBy", Draft::k3, Draft::k3},
    {"allOf", Draft::k4, Draft::k2020},
    {"anyOf", Draft::k4, Draft::k2020},
    {"oneOf", Draft::k4, Draft::k2020},
    {"not", Draft::k4, Draft::k2020},
};

}  // namespace

Expander::Expander(Document& document, Lexicon& lexicon, Budget& budget)
    : document_(document),
      lexicon_(lexicon),
      budget_(budget),
      with_exponents_(!document.has_keyword("multipleOf")),
      all_numbers_(number_set("all", [&] { return grammar::all_numbers(with_exponents_, budget); }).language),
      algebra_(budget, all_numbers_) {}

NumberSet Expander::number_set(const std::string& name, const std::function<DfaPtr()>& make) {
  NumberSet set;
  set.name = (with_exponents_ ? "number " : "plain number ") + name;
  set.language = lexicon_.dfa(set.name, make);
  return set;
}

bool Expander::known(const Json& schema, Keyword keyword) const {
  const auto* found =
      std::find_if(std::begin(kSince), std::end(kSince), [&](const Since& s) { return s.keyword == keyword; });
  if (found == std::end(kSince)) return true;
  const Draft draft = document_.draft(schema);
  return draft >= found->first && draft <= found->last;
}

const Json* Expander::member(const Json& schema, Keyword keyword) const {
  const auto found = schema.find(keyword);
  return found == schema.end() || !known(schema, keyword) ? nullptr : &*found;
}

void Expander::refuse(const Json& schema, Keyword keyword, const std::string& message) const {
  throw Refusal(message, document_.pointer(schema) + "/" + keyword);
}

std::uint32_t Expander::count(const Json& schema, Keyword keyword, std::uint32_t otherwise) const {
  const Json* value = member(schema, keyword);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) refuse(schema, keyword, std::string(keyword) + " must be a number");
  const double number = value->get<double>();
  if (number < 0 || number != static_cast<double>(static_cast<std::int64_t>(std::min(number, 1e15)))) {
    refuse(schema, keyword, std::string(keyword) + " must be a whole number");
  }
  return number >= kUnbounded ? kUnbounded - 1 : static_cast<std::uint32_t>(number);
}

// A subschema as a condition; a schema that is only a reference is replaced by its target.
Literal Expander::child(const Json& schema, bool negated) const {
  const Json* at = &schema;
  for (int hops = 0; hops < 64 && at->is_object() && at->contains("$ref") && (*at)["$ref"].is_string(); ++hops) {
    if (at->size() > 1 && document_.draft(*at) > Draft::k7) break;
    at = &document_.resolve(*at, (*at)["$ref"].get<std::string>(), "$ref");
  }
  if (at->is_boolean()) return Literal{nullptr, false, at->get<bool>() == negated};
  if (at->is_object() && at->empty()) return Literal{nullptr, false, negated};
  return Literal{at, false, negated};
}

std::string Expander::pointer(const Goal& goal) const {
  for (const Literal& literal : goal) {
    if (literal.json != nullptr && !literal.equals) return document_.pointer(*literal.json);
  }
  return "#";
}

const Shapes& Expander::shapes(const Goal& goal) {
  const auto found = goals_.find(goal);
  if (found != goals_.end()) return found->second;
  Shapes result = meet(goal);
  prune(result);
  return goals_.emplace(goal, std::move(result)).first->second;
}

// All conditions at once; negated ones are subtracted last, since they are often disjoint from the rest.
Shapes Expander::meet(const Goal& goal) {
  Shapes result = Shapes::everything();
  for (const Literal& literal : goal) {
    if (!literal.negated) result = algebra_.intersect(result, expand(literal));
  }
  for (const Literal& literal : goal) {
    if (!literal.negated) continue;
    result =
        literal.json == nullptr ? Shapes{} : subtract(result, expand(Literal{literal.json, literal.equals, false}));
  }
  return result;
}

Shapes Expander::subtract(const Shapes& from, const Shapes& taken) {
  return algebra_.subtract(from, taken, [this](Shapes common) {
    prune(common);
    return common.empty();
  });
}

const Shapes& Expander::expand(const Literal& literal) {
  const auto found = expanded_.find(literal);
  if (found != expanded_.end()) return found->second;
  budget_.spend(50);
  if (expanding_.size() >= kMaxExpanding)
    throw Refusal("the schema nests too deeply", document_.pointer(*literal.json));
  if (!expanding_.insert(literal).second) {
    throw Refusal("the schema refers to itself without end", document_.pointer(*literal.json));
  }
  struct Leave {
    std::set<Literal>& set;
    const Literal& literal;
    ~Leave() { set.erase(literal); }
  } const leave{expanding_, literal};
  Shapes result;
  if (literal.negated) {
    result =
        literal.json == nullptr ? Shapes{} : algebra_.complement(expand(Literal{literal.json, literal.equals, false}));
  } else if (literal.json == nullptr) {
    result = Shapes::everything();
  } else {
    result = literal.equals ? expand_value(*literal.json) : expand_schema(*literal.json);
  }
  return expanded_.emplace(literal, std::move(result)).first->second;
}

// Looks a few levels down for a proof. A finding at one level holds at that level and below.
bool Expander::no_value(const Goal& goal) {
  const auto found = without_value_.find(goal);
  if (found != without_value_.end() && (found->second.proven || found->second.level <= level_))
    return found->second.proven;
  if (level_ >= kPruneLevels) return false;
  struct Deeper {
    std::size_t& level;
    explicit Deeper(std::size_t& at) : level(at) { ++level; }
    ~Deeper() { --level; }
  };
  bool proven = false;
  try {
    const Deeper deeper(level_);
    Shapes result = meet(goal);
    prune(result);
    proven = result.empty();
  } catch (const Refusal&) {
    return false;  // unknown: it is being expanded further up, or is refused elsewhere
  }
  without_value_[goal] = Looked{proven, level_};
  return proven;
}

// Removes objects and arrays that need a member or an item without possible values.
void Expander::prune(Shapes& shapes) {
  if (level_ >= kPruneLevels) return;
  const auto hopeless = [&](const Goal& goal) {
    const bool refuted =
        std::any_of(goal.begin(), goal.end(), [](const Literal& l) { return l.json == nullptr && l.negated; });
    return refuted || (goal.size() > 1 && no_value(goal));
  };
  std::erase_if(shapes.objects, [&](const ObjectAlternative& object) {
    budget_.spend(1 + object.every.size() * object.required.size() / 4);
    return std::any_of(object.required.begin(), object.required.end(),
                       [&](const std::u32string& name) { return hopeless(object.goal_of(name)); });
  });
  std::erase_if(shapes.arrays, [&](const ArrayAlternative& array) {
    for (std::size_t i = 0; i < array.prefix.size() && i < array.min; ++i) {
      if (hopeless(array.prefix[i])) return true;
    }
    return array.min > array.prefix.size() && hopeless(array.rest);
  });
}

Shapes Expander::expand_schema(const Json& schema) {
  if (schema.is_boolean()) return schema.get<bool>() ? Shapes::everything() : Shapes{};
  if (!schema.is_object()) throw Refusal("a schema is an object or a boolean", document_.pointer(schema));
  if (schema.contains("$ref") && schema["$ref"].is_string() && document_.draft(schema) <= Draft::k7) {
    return apply_references(schema, Shapes::everything());
  }
  for (const Keyword keyword : {"extends", "disallow", "divisibleBy"}) {
    if (member(schema, keyword) != nullptr) refuse(schema, keyword, "the keyword is not supported");
  }
  Shapes shapes;
  shapes.words = Shapes::kNull | Shapes::kTrue | Shapes::kFalse;
  shapes.numbers = numbers(schema);
  shapes.strings = {string(schema)};
  shapes.arrays = {array(schema)};
  shapes.objects = {object(schema)};
  // Intersecting with all values removes impossible alternatives.
  shapes = algebra_.intersect(apply_types(schema, std::move(shapes)), Shapes::everything());
  if (const Json* value = member(schema, "const")) {
    shapes = located(schema, "const", [&] { return algebra_.intersect(shapes, expand_value(*value)); });
  }
  if (const Json* values = member(schema, "enum")) {
    if (!values->is_array()) refuse(schema, "enum", "enum must be an array");
    shapes = located(schema, "enum", [&] { return algebra_.intersect(shapes, expand_values(*values)); });
  }
  shapes = apply_references(schema, std::move(shapes));
  shapes = apply_combinations(schema, std::move(shapes));
  unevaluated(schema, shapes);
  return shapes;
}

Shapes Expander::apply_types(const Json& schema, Shapes shapes) {
  const Json* type = member(schema, "type");
  if (type == nullptr) return shapes;
  std::vector<std::string> names;
  if (type->is_string()) names.push_back(type->get<std::string>());
  if (type->is_array()) {
    for (const Json& name : *type) {
      if (!name.is_string()) refuse(schema, "type", "a list of types must hold strings");
      names.push_back(name.get<std::string>());
    }
  }
  if (names.empty() && !type->is_array()) refuse(schema, "type", "type must be a string or a list of strings");
  Shapes result;
  bool integer_only = false;
  for (const std::string& name : names) {
    if (name == "null")
      result.words |= Shapes::kNull;
    else if (name == "boolean")
      result.words |= Shapes::kTrue | Shapes::kFalse;
    else if (name == "string")
      result.strings = shapes.strings;
    else if (name == "array")
      result.arrays = shapes.arrays;
    else if (name == "object")
      result.objects = shapes.objects;
    else if (name == "number")
      result.numbers = shapes.numbers;
    else if (name == "integer")
      integer_only = true;
    else if (name == "any" && document_.draft(schema) == Draft::k3)
      return shapes;
    else
      refuse(schema, "type", "the type " + name + " is unknown");
  }
  if (integer_only && !result.numbers.any && result.numbers.language == nullptr) {
    Shapes integers;
    // Before draft 6, 1.0 is not an integer.
    const bool spelled = document_.draft(schema) <= Draft::k4;
    integers.numbers = spelled ? number_set("spelled integers", [&] { return spelled_integers(budget_); })
                               : number_set("integers", [&] { return grammar::integers(with_exponents_, budget_); });
    integers.numbers.integral = true;
    result.numbers = algebra_.intersect(shapes, integers).numbers;
  }
  return result;
}

Shapes Expander::apply_references(const Json& schema, Shapes shapes) {
  for (const Keyword keyword : {"$ref", "$dynamicRef", "$recursiveRef"}) {
    const Json* reference = member(schema, keyword);
    if (reference == nullptr) continue;
    if (!reference->is_string()) refuse(schema, keyword, std::string(keyword) + " must be a string");
    const std::string text = reference->get<std::string>();
    const Json& target = document_.resolve(schema, text, keyword);
    if (keyword != std::string_view("$ref")) {
      const std::string anchor =
          keyword == std::string_view("$recursiveRef") ? "" : text.substr(std::min(text.find('#') + 1, text.size()));
      if (document_.num_dynamic_anchors(anchor) > 1)
        refuse(schema, keyword, "a reference that depends on the path taken is not supported");
    }
    const Literal literal = child(target);
    shapes = located(schema, keyword, [&] { return algebra_.intersect(shapes, expand(literal)); });
  }
  return shapes;
}

Shapes Expander::apply_combinations(const Json& schema, Shapes shapes) {
  const auto list = [&](Keyword keyword) -> const Json* {
    const Json* found = member(schema, keyword);
    if (found != nullptr && !found->is_array()) refuse(schema, keyword, std::string(keyword) + " must be an array");
    return found;
  };
  if (const Json* all = list("allOf")) {
    for (const Json& part : *all) {
      const Literal literal = child(part);
      shapes = located(schema, "allOf", [&] { return algebra_.intersect(shapes, expand(literal)); });
    }
  }
  if (const Json* any = list("anyOf")) {
    Shapes either;
    for (const Json& part : *any) {
      const Literal literal = child(part);
      either = located(schema, "anyOf", [&] { return algebra_.unite(std::move(either), expand(literal)); });
    }
    shapes = located(schema, "anyOf", [&] { return algebra_.intersect(shapes, either); });
  }
  if (const Json* one = list("oneOf")) {
    shapes = located(schema, "oneOf", [&] { return one_of(shapes, *one); });
  }
  if (const Json* no = member(schema, "not")) {
    shapes = located(schema, "not", [&] { return subtract(shapes, expand(child(*no))); });
  }
  if (member(schema, "if") != nullptr) {
    shapes = located(schema, "if", [&] { return conditional(shapes, schema); });
  }
  for (const Keyword keyword : {"dependencies", "dependentRequired", "dependentSchemas"}) {
    const Json* map = member(schema, keyword);
    if (map == nullptr) continue;
    if (!map->is_object()) refuse(schema, keyword, std::string(keyword) + " must be an object");
    shapes = located(schema, keyword, [&] { return algebra_.intersect(shapes, dependencies(*map, keyword, schema)); });
  }
  return shapes;
}

// Exactly one of them: each branch without the others, type by type.
Shapes Expander::one_of(const Shapes& shapes, const Json& list) {
  std::vector<Shapes> branches;
  for (const Json& part : list) {
    branches.push_back(algebra_.intersect(shapes, expand(child(part))));
    prune(branches.back());
  }
  Shapes result;
  for (std::size_t i = 0; i < branches.size(); ++i) {
    Shapes only = branches[i];
    for (std::size_t k = 0; k < branches.size(); ++k) {
      if (i != k && !only.empty()) only = subtract(only, branches[k]);
    }
    result = algebra_.unite(std::move(result), only);
  }
  return result;
}

Shapes Expander::conditional(const Shapes& shapes, const Json& schema) {
  const Shapes condition = expand(child(schema["if"]));
  Shapes yes = algebra_.intersect(shapes, condition);
  if (schema.contains("then")) yes = algebra_.intersect(yes, expand(child(schema["then"])));
  Shapes no = shapes;
  if (schema.contains("else")) no = algebra_.intersect(no, expand(child(schema["else"])));
  return algebra_.unite(std::move(yes), subtract(no, condition));
}

Shapes Expander::only_objects(std::vector<ObjectAlternative> objects) const {
  Shapes shapes = Shapes::everything();
  shapes.objects = std::move(objects);
  return shapes;
}

Shapes Expander::dependencies(const Json& map, Keyword keyword, const Json& schema) {
  Shapes result = Shapes::everything();
  if (std::string_view(keyword) == "dependencies" && document_.draft(schema) > Draft::k7) return result;
  for (const auto& [name, demand] : map.items()) {
    std::u32string property;
    decode_utf8(name, property);
    ObjectAlternative absent;
    absent.every.push_back({std::make_shared<NameSet>(NameSet{{property}, {}, false}), Literal{nullptr, false, true}});
    ObjectAlternative present;
    present.required.insert(property);
    if (demand.is_array() || demand.is_string()) {
      for (const Json& other : demand.is_array() ? demand : Json::array({demand})) {
        if (!other.is_string()) refuse(schema, keyword, "a dependency must name properties");
        std::u32string needed;
        decode_utf8(other.get<std::string>(), needed);
        present.required.insert(needed);
      }
      result = algebra_.intersect(result, only_objects({absent, present}));
    } else {
      Shapes with = only_objects({present});
      with = algebra_.intersect(with, expand(child(demand)));
      // Values that are not objects have no such property.
      Shapes without = only_objects({absent});
      Shapes objects_with;
      objects_with.objects = with.objects;
      result = algebra_.intersect(result, algebra_.unite(std::move(without), objects_with));
    }
  }
  return result;
}

}  // namespace quire::grammar
