// A plain JSON Schema validator, written apart from the grammar engine to check it. Any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace quire::test {

// Whether the value meets the schema. Knows the keywords that the tests' random schemas use; `root` resolves "$ref".
bool validates(const nlohmann::json& value, const nlohmann::json& schema, const nlohmann::json& root);

}  // namespace quire::test
