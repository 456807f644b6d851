// Reading the optional fields of a tokenizer.json. Any thread.
#pragma once

#include <nlohmann/json.hpp>

namespace quire {

// A field whose absence and null mean the same. Throws nlohmann's exception where the type is another one.
template <class T>
T value_or(const nlohmann::json& object, const char* key, T otherwise) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? otherwise : found->get<T>();
}

}  // namespace quire
