// The header and the names of Catch2 2 over Catch2 3, so that the tests compile with either. Only these parts of it are
// used here.
#pragma once

#include <catch2/catch_approx.hpp>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_adapters.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>

namespace Catch {

namespace Matchers {

inline auto Contains(const std::string& part) {
  return ContainsSubstring(part);
}

}  // namespace Matchers

using Matchers::Contains;
using Matchers::EndsWith;
using Matchers::StartsWith;

}  // namespace Catch

using Catch::Approx;
