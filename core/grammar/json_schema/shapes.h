// Shapes: the constraints of a schema on a value, by type, as unions of conjunctions; closed under intersection, union
// and complement, so that allOf, oneOf, not and if are exact. Value types; any thread. Children are not expanded here:
// they are Literals, subschemas that a value must (or must not) meet.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json/json_fwd.h"
#include "core/grammar/limits.h"
#include "core/grammar/regex/dfa.h"
#include "core/grammar/regex/expression.h"

namespace quire::grammar {

using Json = SortedJson;

// A condition on a value: it meets `json` as a schema, or equals it; or, negated, it does not.
struct Literal {
  const Json* json = nullptr;
  bool equals = false;
  bool negated = false;
  auto operator<=>(const Literal&) const = default;
};

// A conjunction of conditions, sorted and without repetition. Empty: any value.
using Goal = std::vector<Literal>;
void add_literal(Goal& goal, const Literal& literal);
Goal conjunction(const Goal& a, const Goal& b);

// A set of property names: some texts and the texts of some patterns, or all but these.
struct NameSet {
  std::vector<std::u32string> texts;  // sorted
  std::vector<DfaPtr> patterns;
  bool negated = false;
  bool contains(const std::u32string& name) const;
  // Whether all names of `other` are in this set, as far as can be decided without a product of patterns.
  bool covers(const NameSet& other) const;
  bool operator==(const NameSet&) const = default;
};
using Names = std::shared_ptr<const NameSet>;

// All properties named in `names` have the value; or, as a condition, at least one does.
struct NameRule {
  Names names;
  Literal value;
  bool operator==(const NameRule& other) const {
    return value == other.value && (names == other.names || *names == *other.names);
  }
};

struct ObjectAlternative {
  std::vector<NameRule> every{};
  std::vector<NameRule> some{};
  std::set<std::u32string> required{};
  std::uint32_t min = 0;
  std::uint32_t max = kUnbounded;
  // The conditions on a property of this name.
  Goal goal_of(const std::u32string& name) const;
};

// The number of items from index `from` on that meet `value` is between min and max.
struct ContainsAlternative {
  std::uint32_t from = 0;
  Literal value{};
  std::uint32_t min = 1;
  std::uint32_t max = kUnbounded;
  bool operator==(const ContainsAlternative&) const = default;
};

struct ArrayAlternative {
  std::vector<Goal> prefix{};
  Goal rest{};
  std::uint32_t min = 0;
  std::uint32_t max = kUnbounded;
  std::vector<ContainsAlternative> contains{};
  std::string unique_at{};  // pointer of uniqueItems, if it applies
};

struct StringAlternative {
  DfaPtr language{};  // null: any text
  std::uint32_t min = 0;
  std::uint32_t max = kUnbounded;
};

// Numbers: any, or an automaton's (null: none).
struct NumberSet {
  bool any = false;
  bool integral = false;  // only integers: spellings with digits after the point are not offered
  std::string name{};     // name of the set, the same in all schemas; empty: none
  DfaPtr language{};
};

struct Shapes {
  static constexpr std::uint8_t kNull = 1;
  static constexpr std::uint8_t kTrue = 2;
  static constexpr std::uint8_t kFalse = 4;
  std::uint8_t words = 0;
  NumberSet numbers;
  std::vector<StringAlternative> strings;
  std::vector<ArrayAlternative> arrays;
  std::vector<ObjectAlternative> objects;

  static Shapes everything();
  bool empty() const {
    return words == 0 && !numbers.any && numbers.language == nullptr && strings.empty() && arrays.empty() &&
           objects.empty();
  }
};

class ShapeAlgebra {
 public:
  // all_numbers: the set of spellings in which complements of numbers are taken.
  ShapeAlgebra(Budget& budget, DfaPtr all_numbers) : budget_(budget), all_numbers_(std::move(all_numbers)) {}
  Shapes intersect(const Shapes& a, const Shapes& b);
  Shapes unite(Shapes a, const Shapes& b);
  Shapes complement(const Shapes& shapes);
  // The values of `a` that are not in `b`. Alternatives that `hopeless` finds to have nothing in common are kept
  // unchanged.
  Shapes subtract(const Shapes& a, const Shapes& b, const std::function<bool(Shapes)>& hopeless);

 private:
  template <class Alternative>
  std::vector<Alternative> subtract(const std::vector<Alternative>& a, const std::vector<Alternative>& b,
                                    std::vector<Alternative> Shapes::*member,
                                    const std::function<bool(Shapes)>& hopeless);
  NumberSet intersect(const NumberSet& a, const NumberSet& b);
  NumberSet unite(const NumberSet& a, const NumberSet& b);
  NumberSet complement(const NumberSet& numbers);
  std::vector<StringAlternative> intersect(const std::vector<StringAlternative>& a,
                                           const std::vector<StringAlternative>& b);
  std::vector<ArrayAlternative> intersect(const std::vector<ArrayAlternative>& a,
                                          const std::vector<ArrayAlternative>& b);
  std::vector<ObjectAlternative> intersect(const std::vector<ObjectAlternative>& a,
                                           const std::vector<ObjectAlternative>& b);
  std::vector<StringAlternative> complement(const StringAlternative& string);
  std::vector<ArrayAlternative> complement(const ArrayAlternative& array);
  std::vector<ObjectAlternative> complement(const ObjectAlternative& object);
  void simplify(std::vector<StringAlternative>& strings);
  void simplify(std::vector<ArrayAlternative>& arrays);
  void simplify(std::vector<ObjectAlternative>& objects);
  void spell_out(std::vector<ObjectAlternative>& objects);
  void check(std::size_t count);

  Budget& budget_;
  DfaPtr all_numbers_;
};

}  // namespace quire::grammar
