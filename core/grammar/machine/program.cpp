#include "core/grammar/machine/program.h"

#include <algorithm>

namespace quire::grammar {

namespace {

template <class Element>
std::size_t bytes_of(const std::vector<Element>& elements) {
  return sizeof(Element) * elements.size();
}

std::size_t bytes_of(const Supply& supply) {
  return supply == nullptr ? 0 : bytes_of(*supply);
}

std::size_t num_bytes_of(const ValueNode& node) {
  std::size_t sum = sizeof(node) + bytes_of(node.arrays) + bytes_of(node.objects) + bytes_of(node.bare_supply);
  for (const StringShape& string : node.strings)
    sum += sizeof(string) + (string.bounded() ? string.lengths->num_bytes() : 0) + bytes_of(string.supply);
  return sum;
}

std::size_t num_bytes_of(const ObjectShape& object) {
  std::size_t sum = sizeof(object) + bytes_of(object.reach) + bytes_of(object.required);
  for (const KeyClass& each : object.classes)
    sum += sizeof(each) + bytes_of(each.choices);
  return sum;
}

std::size_t num_bytes_of(const ArrayShape& array) {
  std::size_t sum = sizeof(array) + bytes_of(array.rest) + bytes_of(array.contains);
  for (const std::vector<ItemChoice>& choices : array.prefix)
    sum += sizeof(choices) + bytes_of(choices);
  return sum + (array.counts == nullptr ? 0 : array.counts->num_bytes());
}

}  // namespace

std::vector<LexerPtr> Program::lexers() const {
  std::vector<LexerPtr> found;
  const auto add = [&](const LexerPtr& lexer) {
    if (lexer != nullptr) found.push_back(lexer);
  };
  add(rules);
  for (const ValueNode& node : nodes) {
    add(node.bare);
    for (const StringShape& string : node.strings)
      add(string.lexer);
  }
  for (const ObjectShape& object : objects) {
    add(object.keys);
    add(object.any_text);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::size_t Program::num_bytes() const {
  std::size_t sum = sizeof(Program) + bytes_of(symbols);
  for (const ValueNode& node : nodes)
    sum += num_bytes_of(node);
  for (const ArrayShape& array : arrays)
    sum += num_bytes_of(array);
  for (const ObjectShape& object : objects)
    sum += num_bytes_of(object);
  for (const LexerPtr& lexer : lexers())
    sum += lexer->num_bytes();
  return sum;
}

}  // namespace quire::grammar
