// Packed forms of the quantised types: bits of a code, its meaning, places of the scales. The only header that loading
// (quant_blocks, packing) and the kernels share, so it names no standard container and defines nothing with external
// linkage. Immutable facts; any thread. Invariant: value = scale * (meaning of the code), minus a minimum if the form
// has one; types whose codes and scales mean the same share one form.
#pragma once

#include <cstdint>

#include "kernels/formats/element_type.h"

namespace quire {

// Scales of 16 columns: a header per `groups` blocks of 32 features, then an entry per block.
enum class ScaleForm : std::uint8_t {
  kNone,          // float types
  kHalf,          // entry: f16
  kHalfMinimum,   // entry: f16 scale, f16 minimum that is added
  kHeaderHalf,    // header: f16
  kPair8,         // header: f16 of scales, f16 of minima; entry: u8 scale, u8 minimum that is subtracted
  kSigned,        // header: f16; entry: i8
  kSignedHalves,  // header: f16; entry: i8 for each 16 features
  kNibbleHalves,  // header as kPair8; entry: for each 16 features a byte of scale (low) and minimum (high)
  kPower,         // entry: E8M0 of twice the scale, a power of two
  kUe4m3Halves,   // entry: unsigned E4M3 of twice the scale for each 16 features
  kFloatZero,     // header: f32 scale, u8 zero
  kFloat8,        // header: f32 scale; codes are E4M3 floats
};

// The meaning of codes other than code - zero.
enum class CodeTable : std::uint8_t { kLinear, kNonLinear, kFp4, kIQ3XXS, kIQ3S, kIQ2, kIQ1 };

struct PackedFormat {
  int bits = 0;      // bits of a code; 0 for float types
  int dot_bits = 0;  // bits of the factor: the code, or its value plus the zero
  int zero = 0;      // subtracted from the factor
  int groups = 1;    // blocks of 32 per header
  int header = 0;    // bytes for 16 columns
  int entry = 0;
  ScaleForm scales = ScaleForm::kNone;
  CodeTable table = CodeTable::kLinear;
  float unit = 1.0f;  // a power of two that every scale is multiplied with

  // Two scales per block of 32.
  constexpr bool has_halves() const {
    return scales == ScaleForm::kSignedHalves || scales == ScaleForm::kNibbleHalves ||
           scales == ScaleForm::kUe4m3Halves;
  }
  // Codes that are signed numbers of four bits once their zero is subtracted.
  constexpr bool signed_nibbles() const { return bits == 4 && zero == 8 && table == CodeTable::kLinear; }
};

[[maybe_unused]] static constexpr PackedFormat packed_format(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16: return {};
    case DType::kQ8_0: return {8, 8, 128, 1, 0, 32, ScaleForm::kHalf};
    case DType::kQ4_0: return {4, 4, 8, 1, 0, 32, ScaleForm::kHalf};
    case DType::kQ4_1: return {4, 4, 0, 1, 0, 64, ScaleForm::kHalfMinimum};
    case DType::kQ5_0: return {5, 5, 16, 1, 0, 32, ScaleForm::kHalf};
    case DType::kQ5_1: return {5, 5, 0, 1, 0, 64, ScaleForm::kHalfMinimum};
    case DType::kQ4_K: return {4, 4, 0, 8, 64, 32, ScaleForm::kPair8};
    case DType::kQ5_K: return {5, 5, 0, 8, 64, 32, ScaleForm::kPair8};
    case DType::kQ6_K: return {6, 6, 32, 8, 32, 32, ScaleForm::kSignedHalves};
    case DType::kIQ4_NL: return {4, 8, 128, 1, 0, 32, ScaleForm::kHalf, CodeTable::kNonLinear};
    case DType::kIQ4_XS: return {4, 8, 128, 8, 32, 16, ScaleForm::kSigned, CodeTable::kNonLinear};
    case DType::kQ3_K: return {3, 3, 4, 8, 32, 32, ScaleForm::kSignedHalves};
    case DType::kQ2_K: return {2, 2, 0, 8, 64, 32, ScaleForm::kNibbleHalves};
    case DType::kMXFP4: return {4, 5, 16, 1, 0, 16, ScaleForm::kPower, CodeTable::kFp4};
    case DType::kNVFP4: return {4, 5, 16, 1, 0, 32, ScaleForm::kUe4m3Halves, CodeTable::kFp4};
    case DType::kIQ3_XXS: return {4, 7, 64, 8, 32, 16, ScaleForm::kSigned, CodeTable::kIQ3XXS, 0.25f};
    case DType::kIQ3_S: return {4, 5, 16, 8, 32, 16, ScaleForm::kSigned, CodeTable::kIQ3S};
    case DType::kIQ2_XXS:
    case DType::kIQ2_XS:
    case DType::kIQ2_S: return {3, 7, 64, 8, 32, 32, ScaleForm::kSignedHalves, CodeTable::kIQ2, 0.125f};
    case DType::kIQ1_S:
    case DType::kIQ1_M: return {3, 5, 16, 8, 32, 32, ScaleForm::kSignedHalves, CodeTable::kIQ1, 0.125f};
    case DType::kTQ1_0:
    case DType::kTQ2_0:
    case DType::kQ1_0:
    case DType::kQ2_0: return {2, 2, 1, 2, 32, 0, ScaleForm::kHeaderHalf};
    case DType::kI4G32: return {4, 4, 0, 1, 80, 0, ScaleForm::kFloatZero};
    case DType::kI4G128: return {4, 4, 0, 4, 80, 0, ScaleForm::kFloatZero};
    case DType::kF8: return {8, 8, 0, 4, 64, 0, ScaleForm::kFloat8};
  }
  return {};
}

// The type that stands for all whose codes and scales mean the same: they share a form, so they have one kernel.
[[maybe_unused]] static constexpr DType form_type(DType type) {
  switch (type) {
    case DType::kIQ2_XS:
    case DType::kIQ2_S: return DType::kIQ2_XXS;
    case DType::kIQ1_M: return DType::kIQ1_S;
    case DType::kTQ1_0:
    case DType::kTQ2_0:
    case DType::kQ1_0: return DType::kQ2_0;
    default: return type;
  }
}

// Meanings of sixteen codes; those of three bits have eight.
struct CodeValues {
  std::int8_t of[16];
};

[[maybe_unused]] static constexpr CodeValues code_values(CodeTable table) {
  switch (table) {
    case CodeTable::kLinear: break;
    case CodeTable::kNonLinear: return {{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}};
    case CodeTable::kFp4: return {{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}};
    case CodeTable::kIQ3XXS: return {{4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62}};
    case CodeTable::kIQ3S: return {{1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15}};
    case CodeTable::kIQ2: return {{8, 25, 43, 0, -8, -25, -43, 0}};
    case CodeTable::kIQ1: return {{-7, 1, 9, 0, -9, -1, 7, 0}};
  }
  return {};
}

}  // namespace quire
