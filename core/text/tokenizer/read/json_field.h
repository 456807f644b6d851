// Reading the optional fields of a tokenizer.json. Any thread.
#pragma once

#include <nlohmann/json.hpp>

namespace quire {

// A field that may be absent or null, which mean the same. Throws nlohmann's exception if it has another type.
template <class T>
T value_or(const nlohmann::json& object, const char* key, T otherwise) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? otherwise : found->get<T>();
}

}  // namespace quire
