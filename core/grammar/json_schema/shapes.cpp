#include "core/grammar/json_schema/shapes.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace quire::grammar {

namespace {

template <class T>
void add_once(std::vector<T>& list, const T& item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

template <class T>
bool all_in(const std::vector<T>& part, const std::vector<T>& whole) {
  return std::all_of(part.begin(), part.end(),
                     [&](const T& item) { return std::find(whole.begin(), whole.end(), item) != whole.end(); });
}

// Whether every object of `inner` is one of `outer`, as far as their rules show.
bool covers(const ObjectAlternative& outer, const ObjectAlternative& inner) {
  return outer.min <= inner.min && outer.max >= inner.max &&
         std::includes(inner.required.begin(), inner.required.end(), outer.required.begin(), outer.required.end()) &&
         all_in(outer.every, inner.every) && all_in(outer.some, inner.some);
}

const Goal& goal_at(const ArrayAlternative& array, std::size_t index) {
  return index < array.prefix.size() ? array.prefix[index] : array.rest;
}

bool covers(const ArrayAlternative& outer, const ArrayAlternative& inner) {
  if (outer.min > inner.min || outer.max < inner.max || !all_in(outer.contains, inner.contains)) return false;
  if (!outer.unique_at.empty() && inner.unique_at.empty()) return false;
  for (std::size_t i = 0; i <= std::max(outer.prefix.size(), inner.prefix.size()); ++i) {
    if (!std::includes(goal_at(inner, i).begin(), goal_at(inner, i).end(), goal_at(outer, i).begin(),
                       goal_at(outer, i).end())) {
      return false;
    }
  }
  return true;
}

template <class Alternative>
void drop_covered(std::vector<Alternative>& list) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    for (std::size_t k = 0; k < list.size(); ++k) {
      if (i == k || !covers(list[i], list[k])) continue;
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(k));
      if (k < i) --i;
      --k;
    }
  }
}

Literal negation(Literal literal) {
  literal.negated = !literal.negated;
  return literal;
}

constexpr std::size_t kMaxName = 200;

std::string joined(const NumberSet& a, const char* sign, const NumberSet& b) {
  if (a.name.empty() || b.name.empty() || a.name.size() + b.name.size() > kMaxName) return {};
  return "(" + a.name + sign + b.name + ")";
}

}  // namespace

void add_literal(Goal& goal, const Literal& literal) {
  const auto at = std::lower_bound(goal.begin(), goal.end(), literal);
  if (at == goal.end() || *at != literal) goal.insert(at, literal);
}

Goal conjunction(const Goal& a, const Goal& b) {
  Goal result;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(result));
  return result;
}

bool NameSet::contains(const std::u32string& name) const {
  const bool member =
      std::binary_search(texts.begin(), texts.end(), name) ||
      std::any_of(patterns.begin(), patterns.end(), [&](const DfaPtr& dfa) { return dfa->accepts(name); });
  return member != negated;
}

bool NameSet::covers(const NameSet& other) const {
  if (*this == other) return true;
  if (!other.negated && other.patterns.empty()) {
    return std::all_of(other.texts.begin(), other.texts.end(),
                       [&](const std::u32string& name) { return contains(name); });
  }
  if (!negated || !other.negated) return false;
  return all_in(patterns, other.patterns) &&
         std::none_of(texts.begin(), texts.end(), [&](const std::u32string& name) { return other.contains(name); });
}

Goal ObjectAlternative::goal_of(const std::u32string& name) const {
  Goal goal;
  for (const NameRule& rule : every) {
    if (rule.names->contains(name)) add_literal(goal, rule.value);
  }
  return goal;
}

Shapes Shapes::everything() {
  Shapes shapes;
  shapes.words = kNull | kTrue | kFalse;
  shapes.numbers.any = true;
  shapes.strings.emplace_back();
  shapes.arrays.emplace_back();
  shapes.objects.emplace_back();
  return shapes;
}

void ShapeAlgebra::check(std::size_t count) {
  budget_.spend(1 + count);
  if (count > 16 * budget_.limits().max_alternatives) throw Refusal("the combination of schemas has too many cases");
}

NumberSet ShapeAlgebra::intersect(const NumberSet& a, const NumberSet& b) {
  if (a.any) return b;
  if (b.any) return a;
  NumberSet result;
  if (a.language == nullptr || b.language == nullptr) return result;
  result.integral = a.integral || b.integral;
  if (a.language == b.language) {
    result.language = a.language;
    result.name = a.name;
    return result;
  }
  result.name = joined(a, "&", b);
  auto both = std::make_shared<Dfa>(grammar::intersect(*a.language, *b.language, budget_));
  if (!both->empty()) result.language = std::move(both);
  return result;
}

NumberSet ShapeAlgebra::unite(const NumberSet& a, const NumberSet& b) {
  if (a.any || b.language == nullptr) return b.any ? b : a;
  if (b.any || a.language == nullptr) return b;
  NumberSet result;
  result.integral = a.integral && b.integral;
  result.name = joined(a, "|", b);
  result.language = a.language == b.language
                        ? a.language
                        : std::make_shared<Dfa>(minimise(grammar::unite(*a.language, *b.language, budget_)));
  return result;
}

NumberSet ShapeAlgebra::complement(const NumberSet& numbers) {
  NumberSet result;
  if (numbers.any) return result;
  result.any = numbers.language == nullptr;
  if (result.any) return result;
  auto rest = std::make_shared<Dfa>(grammar::intersect(*all_numbers_, grammar::complement(*numbers.language), budget_));
  if (!rest->empty()) result.language = std::move(rest);
  result.name = numbers.name.empty() ? "" : "!" + numbers.name;
  return result;
}

void ShapeAlgebra::simplify(std::vector<StringAlternative>& strings) {
  std::erase_if(strings, [](const StringAlternative& s) {
    return s.min > s.max || (s.language != nullptr && s.language->empty());
  });
  // Texts with equal bounds on their length are merged into an automaton.
  for (std::size_t i = 0; i < strings.size(); ++i) {
    for (std::size_t k = i + 1; k < strings.size();) {
      if (strings[i].min != strings[k].min || strings[i].max != strings[k].max) {
        ++k;
        continue;
      }
      DfaPtr& first = strings[i].language;
      const DfaPtr& second = strings[k].language;
      if (first != nullptr && second != nullptr && first != second) {
        first = std::make_shared<Dfa>(grammar::unite(*first, *second, budget_));
      } else if (second == nullptr) {
        first = nullptr;
      }
      strings.erase(strings.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }
}

void ShapeAlgebra::simplify(std::vector<ArrayAlternative>& arrays) {
  std::erase_if(arrays, [](const ArrayAlternative& array) {
    return array.min > array.max ||
           std::any_of(array.contains.begin(), array.contains.end(), [&](const ContainsAlternative& c) {
             return c.min > c.max || (c.min > 0 && array.max != kUnbounded && c.from + c.min > array.max);
           });
  });
  check(arrays.size());
  drop_covered(arrays);
}

// A rule that closes an object makes others redundant or impossible. It turns a condition that some property must meet
// into an alternative for each of the finitely many allowed names.
void ShapeAlgebra::spell_out(std::vector<ObjectAlternative>& objects) {
  std::vector<ObjectAlternative> result;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    ObjectAlternative object = objects[i];
    const auto never = [](const NameRule& rule) { return rule.value.json == nullptr && rule.value.negated; };
    const auto closes = [&](const NameRule& rule) { return never(rule) && rule.names->negated; };
    const auto closer = std::find_if(object.every.begin(), object.every.end(), closes);
    if (closer == object.every.end()) {
      result.push_back(std::move(object));
      continue;
    }
    const NameRule closing = *closer;
    std::erase_if(object.every, [&](const NameRule& rule) {
      const bool outside = closing.names->covers(*rule.names);
      return outside && !(rule.names == closing.names && rule.value == closing.value);
    });
    const auto impossible = [&](const NameRule& rule) { return closing.names->covers(*rule.names); };
    if (std::any_of(object.some.begin(), object.some.end(), impossible)) continue;
    if (object.some.empty() || !closing.names->patterns.empty()) {
      result.push_back(std::move(object));
      continue;
    }
    const NameRule some = object.some.back();
    object.some.pop_back();
    for (const std::u32string& name : closing.names->texts) {
      if (!some.names->contains(name)) continue;
      ObjectAlternative with = object;
      with.required.insert(name);
      add_once(with.every, NameRule{std::make_shared<NameSet>(NameSet{{name}, {}, false}), some.value});
      objects.push_back(std::move(with));  // visited again: more conditions may follow
      check(objects.size());
    }
  }
  objects = std::move(result);
}

void ShapeAlgebra::simplify(std::vector<ObjectAlternative>& objects) {
  spell_out(objects);
  std::erase_if(objects, [](const ObjectAlternative& object) {
    return object.min > object.max || object.required.size() > object.max;
  });
  check(objects.size());
  budget_.spend(objects.size() * objects.size());
  drop_covered(objects);
}

std::vector<StringAlternative> ShapeAlgebra::intersect(const std::vector<StringAlternative>& a,
                                                       const std::vector<StringAlternative>& b) {
  std::vector<StringAlternative> result;
  for (const StringAlternative& x : a) {
    for (const StringAlternative& y : b) {
      StringAlternative both{x.language == nullptr ? y.language : x.language, std::max(x.min, y.min),
                             std::min(x.max, y.max)};
      if (x.language != nullptr && y.language != nullptr && x.language != y.language) {
        both.language = std::make_shared<Dfa>(grammar::intersect(*x.language, *y.language, budget_));
      }
      result.push_back(std::move(both));
      check(result.size());
    }
  }
  simplify(result);
  return result;
}

std::vector<ArrayAlternative> ShapeAlgebra::intersect(const std::vector<ArrayAlternative>& a,
                                                      const std::vector<ArrayAlternative>& b) {
  std::vector<ArrayAlternative> result;
  for (const ArrayAlternative& x : a) {
    for (const ArrayAlternative& y : b) {
      ArrayAlternative both;
      for (std::size_t i = 0; i < std::max(x.prefix.size(), y.prefix.size()); ++i) {
        both.prefix.push_back(conjunction(goal_at(x, i), goal_at(y, i)));
      }
      both.rest = conjunction(x.rest, y.rest);
      both.min = std::max(x.min, y.min);
      both.max = std::min(x.max, y.max);
      both.contains = x.contains;
      for (const ContainsAlternative& contains : y.contains)
        add_once(both.contains, contains);
      both.unique_at = x.unique_at.empty() ? y.unique_at : x.unique_at;
      result.push_back(std::move(both));
      check(result.size());
    }
  }
  simplify(result);
  return result;
}

std::vector<ObjectAlternative> ShapeAlgebra::intersect(const std::vector<ObjectAlternative>& a,
                                                       const std::vector<ObjectAlternative>& b) {
  std::vector<ObjectAlternative> result;
  for (const ObjectAlternative& x : a) {
    for (const ObjectAlternative& y : b) {
      ObjectAlternative both = x;
      budget_.spend(x.every.size() + y.every.size());
      for (const NameRule& rule : y.every)
        add_once(both.every, rule);
      for (const NameRule& rule : y.some)
        add_once(both.some, rule);
      both.required.insert(y.required.begin(), y.required.end());
      both.min = std::max(x.min, y.min);
      both.max = std::min(x.max, y.max);
      result.push_back(std::move(both));
      check(result.size());
    }
  }
  simplify(result);
  return result;
}

Shapes ShapeAlgebra::intersect(const Shapes& a, const Shapes& b) {
  Shapes result;
  result.words = a.words & b.words;
  result.numbers = intersect(a.numbers, b.numbers);
  result.strings = intersect(a.strings, b.strings);
  result.arrays = intersect(a.arrays, b.arrays);
  result.objects = intersect(a.objects, b.objects);
  return result;
}

Shapes ShapeAlgebra::unite(Shapes a, const Shapes& b) {
  a.words |= b.words;
  a.numbers = unite(a.numbers, b.numbers);
  a.strings.insert(a.strings.end(), b.strings.begin(), b.strings.end());
  a.arrays.insert(a.arrays.end(), b.arrays.begin(), b.arrays.end());
  a.objects.insert(a.objects.end(), b.objects.begin(), b.objects.end());
  simplify(a.strings);
  simplify(a.arrays);
  simplify(a.objects);
  return a;
}

std::vector<StringAlternative> ShapeAlgebra::complement(const StringAlternative& string) {
  std::vector<StringAlternative> result;
  if (string.language != nullptr)
    result.push_back({std::make_shared<Dfa>(grammar::complement(*string.language)), 0, kUnbounded});
  if (string.min > 0) result.push_back({nullptr, 0, string.min - 1});
  if (string.max != kUnbounded) result.push_back({nullptr, string.max + 1, kUnbounded});
  return result;
}

std::vector<ArrayAlternative> ShapeAlgebra::complement(const ArrayAlternative& array) {
  if (!array.unique_at.empty()) throw Refusal("the negation of uniqueItems is not supported", array.unique_at);
  std::vector<ArrayAlternative> result;
  if (array.min > 0) result.push_back({.max = array.min - 1});
  if (array.max != kUnbounded) result.push_back({.min = array.max + 1});
  for (std::uint32_t i = 0; i < array.prefix.size(); ++i) {
    for (const Literal& literal : array.prefix[i]) {
      ArrayAlternative wrong{.min = i + 1};
      wrong.prefix.resize(i + 1);
      wrong.prefix[i] = {negation(literal)};
      result.push_back(std::move(wrong));
    }
  }
  for (const Literal& literal : array.rest) {
    ArrayAlternative wrong;
    wrong.contains.push_back({static_cast<std::uint32_t>(array.prefix.size()), negation(literal), 1, kUnbounded});
    result.push_back(std::move(wrong));
  }
  for (const ContainsAlternative& contains : array.contains) {
    if (contains.min > 0) {
      ArrayAlternative fewer;
      fewer.contains.push_back({contains.from, contains.value, 0, contains.min - 1});
      result.push_back(std::move(fewer));
    }
    if (contains.max != kUnbounded) {
      ArrayAlternative more;
      more.contains.push_back({contains.from, contains.value, contains.max + 1, kUnbounded});
      result.push_back(std::move(more));
    }
  }
  return result;
}

std::vector<ObjectAlternative> ShapeAlgebra::complement(const ObjectAlternative& object) {
  std::vector<ObjectAlternative> result;
  if (object.min > 0) result.push_back({.max = object.min - 1});
  if (object.max != kUnbounded) result.push_back({.min = object.max + 1});
  for (const std::u32string& name : object.required) {
    // The property is absent: no value of it meets `false`.
    ObjectAlternative absent;
    absent.every.push_back({std::make_shared<NameSet>(NameSet{{name}, {}, false}), Literal{nullptr, false, true}});
    result.push_back(std::move(absent));
  }
  for (const NameRule& rule : object.every) {
    ObjectAlternative wrong;
    if (rule.names->texts.size() == 1 && rule.names->patterns.empty() && !rule.names->negated) {
      wrong.required.insert(rule.names->texts.front());
      wrong.every.push_back({rule.names, negation(rule.value)});
    } else {
      wrong.some.push_back({rule.names, negation(rule.value)});
    }
    result.push_back(std::move(wrong));
  }
  for (const NameRule& rule : object.some) {
    ObjectAlternative none;
    none.every.push_back({rule.names, negation(rule.value)});
    result.push_back(std::move(none));
  }
  return result;
}

Shapes ShapeAlgebra::complement(const Shapes& shapes) {
  Shapes result = Shapes::everything();
  result.words = static_cast<std::uint8_t>(result.words & ~shapes.words);
  result.numbers = complement(shapes.numbers);
  for (const StringAlternative& string : shapes.strings)
    result.strings = intersect(result.strings, complement(string));
  for (const ArrayAlternative& array : shapes.arrays)
    result.arrays = intersect(result.arrays, complement(array));
  for (const ObjectAlternative& object : shapes.objects)
    result.objects = intersect(result.objects, complement(object));
  return result;
}

template <class Alternative>
std::vector<Alternative> ShapeAlgebra::subtract(const std::vector<Alternative>& a, const std::vector<Alternative>& b,
                                                std::vector<Alternative> Shapes::*member,
                                                const std::function<bool(Shapes)>& hopeless) {
  std::vector<Alternative> result = a;
  for (const Alternative& taken : b) {
    std::vector<Alternative> left;
    for (const Alternative& from : result) {
      Shapes common;
      common.*member = intersect(std::vector{from}, std::vector{taken});
      if (hopeless(std::move(common))) {
        left.push_back(from);
        continue;
      }
      for (Alternative& piece : intersect(std::vector{from}, complement(taken))) {
        Shapes one;
        one.*member = {piece};
        if (!hopeless(std::move(one))) left.push_back(std::move(piece));
      }
    }
    simplify(left);
    result = std::move(left);
  }
  return result;
}

Shapes ShapeAlgebra::subtract(const Shapes& a, const Shapes& b, const std::function<bool(Shapes)>& hopeless) {
  Shapes result;
  result.words = static_cast<std::uint8_t>(a.words & ~b.words);
  const bool has_numbers = a.numbers.any || a.numbers.language != nullptr;
  if (has_numbers) result.numbers = intersect(a.numbers, complement(b.numbers));
  result.strings = a.strings;
  for (const StringAlternative& string : b.strings)
    result.strings = intersect(result.strings, complement(string));
  result.arrays = subtract(a.arrays, b.arrays, &Shapes::arrays, hopeless);
  result.objects = subtract(a.objects, b.objects, &Shapes::objects, hopeless);
  return result;
}

}  // namespace quire::grammar
