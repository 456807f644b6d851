// Builds the Program of a schema: one node per distinct conjunction of conditions that a value position may have.
// One thread at a time. Invariant: shapes that no finite value has are left out, so every live prefix can be completed.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/grammar/json_schema/lexicon.h"
#include "core/grammar/json_schema/shapes.h"
#include "core/grammar/limits.h"
#include "core/grammar/machine/program.h"

namespace quire::grammar {

// Access to a schema's nodes one by one, for forms that write some of the values in their own way. Requested nodes are
// in the program after finish(); until then, nothing else may add to it.
class SchemaParts {
 public:
  SchemaParts(std::string_view schema, Lexicon& lexicon, Budget& budget, Program& program);
  ~SchemaParts();
  Goal root() const;
  const Shapes& shapes(const Goal& goal);
  std::string pointer(const Goal& goal) const;
  std::uint32_t node(const Goal& goal);
  void finish();

 private:
  class Builder;
  std::unique_ptr<Builder> builder_;
};

// Appends the schema's nodes to `program`; returns the root's. Throws Refusal.
std::uint32_t build_schema(std::string_view schema, Lexicon& lexicon, Budget& budget, Program& program);

// Removes the nodes that no finite value has, and completes the key lexers accordingly. Considers nodes, arrays and
// objects from the given indices on. keys: by object shape, the automaton of its keys with classes as labels. Throws
// Refusal if the remaining nodes cannot be enforced exactly.
void keep_productive(Program& program, std::size_t first_node, std::size_t first_array, std::size_t first_object,
                     std::vector<Dfa>& keys, Budget& budget);

// The node of an item that must differ from the others: a scalar with a single spelling, or compared by value.
// `pointer`: the keyword's. Throws Refusal if items could be arrays or objects, or numbers whose supply cannot be
// counted.
ValueNode make_unique_item(const Shapes& shapes, const std::string& pointer, Lexicon& lexicon, Budget& budget);

}  // namespace quire::grammar
