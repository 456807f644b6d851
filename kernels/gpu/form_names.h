// The forms that lie in strips and their names, as kernels are called by them. Immutable facts; any thread.
#pragma once

#include <string_view>

#include "kernels/formats/element_type.h"

// A type of each form.
// clang-format off
#define QUIRE_STRIP_FORMS(FORM)                                                                        \
  FORM(Q8_0) FORM(Q4_0) FORM(Q4_1) FORM(Q5_0) FORM(Q5_1) FORM(Q4_K) FORM(Q5_K) FORM(Q6_K) FORM(IQ4_NL) \
  FORM(IQ4_XS) FORM(Q3_K) FORM(Q2_K) FORM(MXFP4) FORM(NVFP4) FORM(IQ3_XXS) FORM(IQ3_S) FORM(IQ2_XXS)   \
  FORM(IQ1_S) FORM(Q2_0) FORM(I4G32) FORM(I4G128)
// clang-format on

namespace quire::gpu {

// "Q4_K"; float types have their own.
std::string_view form_name(DType type);

}  // namespace quire::gpu
