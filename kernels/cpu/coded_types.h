// The types of weights whose elements are codes, for tables by type. Immutable facts; any thread. Included by level
// files.
#pragma once

#include "kernels/formats/element_type.h"

namespace quire {
namespace {

constexpr int index_of(DType type) {
  return static_cast<int>(type);
}

// Calls visit<type>() for each type whose weights are codes.
template <class Visit, DType... kTypes>
constexpr void each_of(const Visit& visit) {
  (visit.template operator()<kTypes>(), ...);
}
template <class Visit>
constexpr void each_coded_type(const Visit& visit) {
  using enum DType;
  each_of<Visit, kQ8_0, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ4_K, kQ5_K, kQ6_K, kIQ4_NL, kIQ4_XS, kQ3_K, kQ2_K, kMXFP4, kNVFP4,
          kIQ3_XXS, kIQ3_S, kIQ2_XXS, kIQ2_XS, kIQ2_S, kIQ1_S, kIQ1_M, kTQ1_0, kTQ2_0, kQ1_0, kQ2_0, kI4G32, kI4G128>(
      visit);
}

}  // namespace
}  // namespace quire
