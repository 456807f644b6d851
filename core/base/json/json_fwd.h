// The types Json (members as they came) and SortedJson: nlohmann's values with memory that their destructors never
// lack.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace quire {

template <typename T>
struct JsonAllocator;

template <template <typename U, typename V, typename... Args> class Object>
using JsonOf =
    nlohmann::basic_json<Object, std::vector, std::string, bool, std::int64_t, std::uint64_t, double, JsonAllocator>;

using Json = JsonOf<nlohmann::ordered_map>;
using SortedJson = JsonOf<std::map>;

}  // namespace quire
