// Expander: turns the keywords of a schema into Shapes; the draft decides which keywords apply. One thread at a time.
// Invariant: a keyword is enforced, or known to be an annotation, or refused with its pointer.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/grammar/json_schema/document.h"
#include "core/grammar/json_schema/lexicon.h"
#include "core/grammar/json_schema/number.h"
#include "core/grammar/json_schema/shapes.h"

namespace quire::grammar {

class Expander {
 public:
  Expander(Document& document, Lexicon& lexicon, Budget& budget);
  // The shapes of the values that meet every condition; alternatives that no value can have are left out if a look a
  // few levels down shows it.
  const Shapes& shapes(const Goal& goal);
  // The place of the conditions, for messages.
  std::string pointer(const Goal& goal) const;
  const DfaPtr& all_numbers() const { return all_numbers_; }

 private:
  using Keyword = const char*;
  const Shapes& expand(const Literal& literal);
  Shapes expand_schema(const Json& schema);
  Shapes expand_value(const Json& value);
  Shapes expand_values(const Json& values);
  Shapes expand_list(const std::vector<const Json*>& values);
  Shapes apply_types(const Json& schema, Shapes shapes);
  Shapes apply_references(const Json& schema, Shapes shapes);
  Shapes apply_combinations(const Json& schema, Shapes shapes);
  Shapes one_of(const Shapes& shapes, const Json& list);
  Shapes conditional(const Shapes& shapes, const Json& schema);
  Shapes dependencies(const Json& map, Keyword keyword, const Json& schema);
  Shapes only_objects(std::vector<ObjectAlternative> objects) const;
  NumberSet numbers(const Json& schema);
  NumberSet bounded(const Json& schema, NumberSet set);
  StringAlternative string(const Json& schema);
  ArrayAlternative array(const Json& schema);
  void array_contains(const Json& schema, ArrayAlternative& array);
  ObjectAlternative object(const Json& schema);
  void object_names(const Json& schema, ObjectAlternative& object);
  void unevaluated(const Json& schema, Shapes& shapes);
  bool evaluated_names(const Json& schema, NameSet& names, std::size_t depth, bool itself = false);
  bool evaluated_items(const Json& schema, std::size_t& count, std::size_t depth, bool itself = false);
  Names property_names_outside(const Json& schema);
  DfaPtr pattern(const std::string& source);
  DfaPtr length_bounded(const StringAlternative& string);
  NumberSet number_set(const std::string& name, const std::function<DfaPtr()>& make);
  void prune(Shapes& shapes);
  Shapes subtract(const Shapes& from, const Shapes& taken);
  Shapes meet(const Goal& goal);
  bool no_value(const Goal& goal);
  bool known(const Json& schema, Keyword keyword) const;
  // The member, if the schema's draft knows the keyword.
  const Json* member(const Json& schema, Keyword keyword) const;
  std::uint32_t count(const Json& schema, Keyword keyword, std::uint32_t otherwise) const;
  Literal child(const Json& schema, bool negated = false) const;
  [[noreturn]] void refuse(const Json& schema, Keyword keyword, const std::string& message) const;
  // Runs a piece of work, and adds the keyword's pointer to its Refusal if it has none yet.
  template <class F>
  auto located(const Json& schema, const std::string& keyword, F run) const;

  Document& document_;
  Lexicon& lexicon_;
  Budget& budget_;
  bool with_exponents_;
  DfaPtr all_numbers_;
  ShapeAlgebra algebra_;
  std::map<Literal, Shapes> expanded_;
  std::set<Literal> expanding_;
  std::map<Goal, Shapes> goals_;
  struct Looked {
    bool proven;
    std::size_t level;
  };
  std::map<Goal, Looked> without_value_;
  std::size_t level_ = 0;
};

template <class F>
auto Expander::located(const Json& schema, const std::string& keyword, F run) const {
  try {
    return run();
  } catch (const Refusal& refusal) {
    if (!refusal.pointer.empty()) throw;
    throw Refusal(refusal.what(), document_.pointer(schema) + "/" + keyword);
  }
}

}  // namespace quire::grammar
