// The keywords of Expander for a single type (numbers, strings, arrays, objects), and given values.
#include <algorithm>
#include <utility>

#include "core/base/json/json_memory.h"
#include "core/grammar/json_schema/expander.h"
#include "core/grammar/json_schema/formats.h"
#include "core/grammar/regex/regex.h"

namespace quire::grammar {

namespace {

std::u32string name_of(const std::string& text) {
  std::u32string result;
  decode_utf8(text, result);
  return result;
}

Names one_name(const std::u32string& name) {
  return std::make_shared<NameSet>(NameSet{{name}, {}, false});
}

const Literal kNever{nullptr, false, true};

}  // namespace

DfaPtr Expander::pattern(const std::string& source) {
  return lexicon_.dfa("pattern " + source,
                      [&] { return std::make_shared<Dfa>(build_search(parse_regex(source, budget_), budget_)); });
}

NumberSet Expander::numbers(const Json& schema) {
  NumberSet set;
  set.any = true;
  return bounded(schema, set);
}

NumberSet Expander::bounded(const Json& schema, NumberSet set) {
  const auto limit = [&](Keyword keyword, const Json& value, Order side, bool inclusive) {
    const auto decimal = Decimal::parse(value.dump());
    if (!value.is_number() || !decimal) refuse(schema, keyword, std::string(keyword) + " must be a number");
    const std::string name =
        (side == Order::kGreater ? "above " : "below ") + std::string(inclusive ? "or at " : "") + decimal->text();
    Shapes bound;
    bound.numbers = located(schema, keyword, [&] {
      return number_set(name, [&] { return bounded_numbers(*decimal, side, inclusive, with_exponents_, budget_); });
    });
    Shapes current;
    current.numbers = set;
    set = algebra_.intersect(current, bound).numbers;
  };
  const auto side = [&](Keyword inclusive, Keyword exclusive, Order order) {
    const Json* open = member(schema, exclusive);
    const bool flag = open != nullptr && open->is_boolean();  // draft 4: whether the bound itself is excluded
    if (const Json* value = member(schema, inclusive)) limit(inclusive, *value, order, !(flag && open->get<bool>()));
    if (open != nullptr && !flag) limit(exclusive, *open, order, false);
  };
  side("minimum", "exclusiveMinimum", Order::kGreater);
  side("maximum", "exclusiveMaximum", Order::kLess);
  if (const Json* divisor = member(schema, "multipleOf")) {
    const auto decimal = Decimal::parse(divisor->dump());
    if (!divisor->is_number() || !decimal || decimal->negative || decimal->zero()) {
      refuse(schema, "multipleOf", "multipleOf must be a positive number");
    }
    Shapes current;
    current.numbers = set;
    Shapes some;
    some.numbers = located(schema, "multipleOf", [&] {
      return number_set("multiples " + decimal->text(), [&] { return multiples(*decimal, budget_); });
    });
    set = algebra_.intersect(current, some).numbers;
  }
  return set;
}

StringAlternative Expander::string(const Json& schema) {
  StringAlternative result;
  result.min = count(schema, "minLength", 0);
  result.max = count(schema, "maxLength", kUnbounded);
  const auto add = [&](const DfaPtr& language) {
    result.language =
        result.language == nullptr ? language : std::make_shared<Dfa>(intersect(*result.language, *language, budget_));
  };
  if (const Json* source = member(schema, "pattern")) {
    if (!source->is_string()) refuse(schema, "pattern", "pattern must be a string");
    add(located(schema, "pattern", [&] { return pattern(source->get<std::string>()); }));
  }
  if (const Json* name = member(schema, "format"); name != nullptr && name->is_string()) {
    const auto format = located(schema, "format", [&] { return find_format(name->get<std::string>()); });
    if (format) {
      result.max = std::min(result.max, format->max_length);
      add(located(schema, "format", [&] {
        return lexicon_.dfa("format " + name->get<std::string>(), [&] {
          return std::make_shared<Dfa>(build_full(parse_regex(format->regex, budget_), budget_));
        });
      }));
    }
  }
  return result;
}

ArrayAlternative Expander::array(const Json& schema) {
  ArrayAlternative result;
  result.min = count(schema, "minItems", 0);
  result.max = count(schema, "maxItems", kUnbounded);
  const auto goal = [&](const Json& item) {
    Goal one;
    const Literal literal = child(item);
    if (literal.json != nullptr || literal.negated) one.push_back(literal);
    return one;
  };
  const Json* prefix = member(schema, "prefixItems");
  const Json* items = member(schema, "items");
  const Json* rest = items;
  if (items != nullptr && items->is_array()) {
    prefix = items;  // the keyword before draft 2020-12
    rest = member(schema, "additionalItems");
  }
  if (prefix != nullptr) {
    if (!prefix->is_array()) refuse(schema, "prefixItems", "prefixItems must be an array");
    for (const Json& item : *prefix)
      result.prefix.push_back(goal(item));
  }
  if (rest != nullptr) result.rest = goal(*rest);
  array_contains(schema, result);
  if (const Json* unique = member(schema, "uniqueItems");
      unique != nullptr && unique->is_boolean() && unique->get<bool>()) {
    result.unique_at = document_.pointer(schema) + "/uniqueItems";
  }
  return result;
}

void Expander::array_contains(const Json& schema, ArrayAlternative& array) {
  const Json* contains = member(schema, "contains");
  if (contains == nullptr) return;
  ContainsAlternative rule;
  rule.value = child(*contains);
  rule.min = count(schema, "minContains", 1);
  rule.max = count(schema, "maxContains", kUnbounded);
  if (rule.min > 0 || rule.max != kUnbounded) array.contains.push_back(rule);
}

Names Expander::property_names_outside(const Json& schema) {
  NameSet outside;
  outside.negated = true;
  if (const Json* properties = member(schema, "properties"); properties != nullptr && properties->is_object()) {
    for (const auto& [name, value] : properties->items())
      outside.texts.push_back(name_of(name));
  }
  if (const Json* patterns = member(schema, "patternProperties"); patterns != nullptr && patterns->is_object()) {
    for (const auto& [source, value] : patterns->items()) {
      outside.patterns.push_back(
          located(schema, "patternProperties/" + pointer_token(source), [&] { return pattern(source); }));
    }
  }
  std::sort(outside.texts.begin(), outside.texts.end());
  return std::make_shared<NameSet>(std::move(outside));
}

ObjectAlternative Expander::object(const Json& schema) {
  ObjectAlternative result;
  result.min = count(schema, "minProperties", 0);
  result.max = count(schema, "maxProperties", kUnbounded);
  const auto add = [&](Names names, const Json& value) {
    const Literal literal = child(value);
    if (literal.json != nullptr || literal.negated) result.every.push_back({std::move(names), literal});
  };
  if (const Json* properties = member(schema, "properties")) {
    if (!properties->is_object()) refuse(schema, "properties", "properties must be an object");
    for (const auto& [name, value] : properties->items())
      add(one_name(name_of(name)), value);
    for (const auto& [name, value] : properties->items()) {
      const bool required =
          document_.draft(schema) == Draft::k3 && value.is_object() && value.value("required", Json()) == Json(true);
      if (required) result.required.insert(name_of(name));
    }
  }
  if (const Json* patterns = member(schema, "patternProperties")) {
    if (!patterns->is_object()) refuse(schema, "patternProperties", "patternProperties must be an object");
    for (const auto& [source, value] : patterns->items()) {
      NameSet names;
      names.patterns.push_back(
          located(schema, "patternProperties/" + pointer_token(source), [&] { return pattern(source); }));
      add(std::make_shared<NameSet>(std::move(names)), value);
    }
  }
  if (const Json* others = member(schema, "additionalProperties")) add(property_names_outside(schema), *others);
  if (const Json* required = member(schema, "required"); required != nullptr && required->is_array()) {
    for (const Json& name : *required) {
      if (!name.is_string()) refuse(schema, "required", "required must hold strings");
      result.required.insert(name_of(name.get<std::string>()));
    }
  } else if (required != nullptr && !(required->is_boolean() && document_.draft(schema) <= Draft::k4)) {
    refuse(schema, "required", "required must be an array of strings");
  }
  object_names(schema, result);
  return result;
}

// propertyNames: allows only names that its schema accepts.
void Expander::object_names(const Json& schema, ObjectAlternative& object) {
  const Json* names = member(schema, "propertyNames");
  if (names == nullptr) return;
  located(schema, "propertyNames", [&] {
    NameSet outside;
    outside.negated = true;
    for (const StringAlternative& string : expand(child(*names)).strings) {
      if (string.language == nullptr && string.min == 0 && string.max == kUnbounded) return;
      outside.patterns.push_back(length_bounded(string));
    }
    object.every.push_back({std::make_shared<NameSet>(std::move(outside)), kNever});
  });
}

DfaPtr Expander::length_bounded(const StringAlternative& string) {
  if (string.min == 0 && string.max == kUnbounded) return string.language;
  const Expr length = make_repeat(make_set(CharSet::any()), string.min, string.max);
  Dfa dfa = build_full(length, budget_);
  if (string.language != nullptr) dfa = intersect(dfa, *string.language, budget_);
  return std::make_shared<Dfa>(std::move(dfa));
}

Shapes Expander::expand_value(const Json& value) {
  return expand_list({&value});
}

Shapes Expander::expand_values(const Json& values) {
  std::vector<const Json*> list;
  for (const Json& value : values)
    list.push_back(&value);
  return expand_list(list);
}

// Exactly these values; conditions on their members and items are left to those.
Shapes Expander::expand_list(const std::vector<const Json*>& values) {
  Shapes shapes;
  std::vector<std::u32string> texts;
  std::vector<Decimal> decimals;
  for (const Json* value : values) {
    budget_.spend(10);
    switch (value->type()) {
      case Json::value_t::null: shapes.words |= Shapes::kNull; break;
      case Json::value_t::boolean: shapes.words |= value->get<bool>() ? Shapes::kTrue : Shapes::kFalse; break;
      case Json::value_t::string: texts.push_back(name_of(value->get<std::string>())); break;
      case Json::value_t::array: {
        ArrayAlternative array;
        for (const Json& item : *value)
          array.prefix.push_back({Literal{&item, true, false}});
        array.min = array.max = static_cast<std::uint32_t>(value->size());
        shapes.arrays.push_back(std::move(array));
        break;
      }
      case Json::value_t::object: {
        ObjectAlternative object;
        NameSet outside;
        outside.negated = true;
        for (const auto& [name, member_value] : value->items()) {
          object.every.push_back({one_name(name_of(name)), Literal{&member_value, true, false}});
          object.required.insert(name_of(name));
          outside.texts.push_back(name_of(name));
        }
        std::sort(outside.texts.begin(), outside.texts.end());
        object.every.push_back({std::make_shared<NameSet>(std::move(outside)), kNever});
        shapes.objects.push_back(std::move(object));
        break;
      }
      default:
        if (const auto decimal = Decimal::parse(value->dump())) decimals.push_back(*decimal);
    }
  }
  if (!texts.empty()) shapes.strings.push_back({std::make_shared<Dfa>(from_texts(texts, budget_)), 0, kUnbounded});
  if (!decimals.empty()) {
    shapes.numbers.language = equal_numbers(decimals, with_exponents_, budget_);
    shapes.numbers.integral =
        std::all_of(decimals.begin(), decimals.end(), [](const Decimal& d) { return d.integer(); });
  }
  return shapes;
}

// Adds the names of properties that the schema always evaluates; false if that depends on the value.
bool Expander::evaluated_names(const Json& schema, NameSet& names, std::size_t depth, bool itself) {
  if (!schema.is_object()) return true;
  if (depth == 0) return false;
  const auto nothing = [&](const Json& part) {
    NameSet inner;
    inner.negated = true;
    return evaluated_names(part, inner, depth - 1) && inner == NameSet{{}, {}, true};
  };
  if (member(schema, "additionalProperties") != nullptr) names.negated = false;
  if (!itself && member(schema, "unevaluatedProperties") != nullptr) names.negated = false;
  const Names outside = property_names_outside(schema);
  names.texts.insert(names.texts.end(), outside->texts.begin(), outside->texts.end());
  names.patterns.insert(names.patterns.end(), outside->patterns.begin(), outside->patterns.end());
  std::sort(names.texts.begin(), names.texts.end());
  if (const Json* reference = member(schema, "$ref"); reference != nullptr && reference->is_string()) {
    if (!evaluated_names(document_.resolve(schema, reference->get<std::string>(), "$ref"), names, depth - 1))
      return false;
  }
  if (const Json* all = member(schema, "allOf"); all != nullptr && all->is_array()) {
    for (const Json& part : *all) {
      if (!evaluated_names(part, names, depth - 1)) return false;
    }
  }
  for (const Keyword keyword : {"anyOf", "oneOf"}) {
    const Json* list = member(schema, keyword);
    if (list != nullptr && list->is_array() && !std::all_of(list->begin(), list->end(), nothing)) return false;
  }
  for (const Keyword keyword : {"if", "then", "else", "$dynamicRef", "$recursiveRef"}) {
    const Json* part = member(schema, keyword);
    if (part != nullptr && (part->is_string() || !nothing(*part))) return false;
  }
  const Json* dependent = member(schema, "dependentSchemas");
  return dependent == nullptr || std::all_of(dependent->begin(), dependent->end(), nothing);
}

bool Expander::evaluated_items(const Json& schema, std::size_t& count, std::size_t depth, bool itself) {
  if (!schema.is_object()) return true;
  if (depth == 0 || member(schema, "contains") != nullptr) return false;
  const Json* items = member(schema, "items");
  const Json* prefix = member(schema, "prefixItems");
  if (items != nullptr && items->is_array()) {
    prefix = items;
    items = member(schema, "additionalItems");
  }
  if (prefix != nullptr) count = std::max(count, prefix->size());
  if (items != nullptr || (!itself && member(schema, "unevaluatedItems") != nullptr)) count = kUnbounded;
  if (const Json* reference = member(schema, "$ref"); reference != nullptr && reference->is_string()) {
    if (!evaluated_items(document_.resolve(schema, reference->get<std::string>(), "$ref"), count, depth - 1))
      return false;
  }
  if (const Json* all = member(schema, "allOf"); all != nullptr && all->is_array()) {
    for (const Json& part : *all) {
      if (!evaluated_items(part, count, depth - 1)) return false;
    }
  }
  for (const Keyword keyword :
       {"anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "$dynamicRef", "$recursiveRef"}) {
    if (member(schema, keyword) != nullptr) return false;
  }
  return true;
}

// Constrains the members and items that no other keyword of the schema evaluates, if those do not depend on the value.
void Expander::unevaluated(const Json& schema, Shapes& shapes) {
  constexpr std::size_t kDepth = 64;
  const auto only_arrays = [](ArrayAlternative array) {
    Shapes result = Shapes::everything();
    result.arrays = {std::move(array)};
    return result;
  };
  if (const Json* rest = member(schema, "unevaluatedProperties")) {
    const Literal literal = child(*rest);
    if (literal.json != nullptr || literal.negated) {
      NameSet names;
      names.negated = true;
      if (!evaluated_names(schema, names, kDepth, true)) {
        refuse(schema, "unevaluatedProperties", "unevaluatedProperties beside conditional subschemas is not supported");
      }
      ObjectAlternative object;
      if (names.negated) object.every.push_back({std::make_shared<NameSet>(std::move(names)), literal});
      shapes = algebra_.intersect(shapes, only_objects({object}));
    }
  }
  if (const Json* rest = member(schema, "unevaluatedItems")) {
    const Literal literal = child(*rest);
    if (literal.json != nullptr || literal.negated) {
      std::size_t count = 0;
      if (!evaluated_items(schema, count, kDepth, true)) {
        refuse(schema, "unevaluatedItems", "unevaluatedItems beside conditional subschemas is not supported");
      }
      if (count >= kUnbounded) return;
      ArrayAlternative array;
      array.prefix.resize(count);
      array.rest = {literal};
      shapes = algebra_.intersect(shapes, only_arrays(std::move(array)));
    }
  }
}

}  // namespace quire::grammar
