// Codes and scales of strips in the form that a warp's lane needs: the A operand of a product, unsigned, and the
// factors of two outputs' sums. The values are the CPU levels' own (gemm_int_impl.h).
#pragma once

#include "kernels/gpu/kernels/portable.h"
#include "kernels/gpu/pack/strips.h"

namespace quire::gpu {

// Compile-time facts of a quantised type.
template <DType kType>
struct Form {
  static constexpr PackedFormat kFormat = packed_format(kType);
  static constexpr StripLayout kLayout = strip_layout(kFormat);
  static constexpr int kBits = kFormat.bits;
  static constexpr int kZero = kFormat.zero;
  static constexpr ScaleForm kScales = kFormat.scales;
  static constexpr bool kHalves = kFormat.has_halves();
  static constexpr bool kTable = kFormat.table != CodeTable::kLinear;
  static constexpr bool kSubtracts = kScales == ScaleForm::kPair8 || kScales == ScaleForm::kFloatZero;  // the minimum
  // Registers that unpacking takes: few, more, or many (kernels request as many blocks per multiprocessor as fit).
  static constexpr int kRegisters = kBits == 3 || kBits == 5 || (kHalves && kTable) ? 2
                                    : kBits == 2 || kBits == 6 || kHalves || kTable ? 1
                                                                                    : 0;
};

// Sixteen meanings plus the zero, as the words that byte_permute selects from.
struct MeaningWords {
  std::uint32_t of[4];
};
constexpr MeaningWords meaning_words(PackedFormat format) {
  MeaningWords out{};
  const CodeValues values = code_values(format.table);
  for (int i = 0; i < 16; ++i)
    out.of[i / 4] |= static_cast<std::uint32_t>(values.of[i] + format.zero) << (8 * (i % 4));
  return out;
}

// The meanings of four codes below 16, one a byte.
template <class F, class Thread>
QUIRE_DEVICE std::uint32_t look_up(Thread& t, std::uint32_t codes) {
  constexpr MeaningWords kWords = meaning_words(F::kFormat);
  // byte_permute selects by nibbles: pack the four codes' low three bits.
  const std::uint32_t pairs = (codes | (codes >> 4)) & 0x00ff00ffu;
  const std::uint32_t selectors = (pairs | (pairs >> 8)) & 0xffffu;
  const std::uint32_t low = t.byte_permute(kWords.of[0], kWords.of[1], selectors & 0x7777u);
  if constexpr (F::kBits == 3) return low;
  const std::uint32_t high = t.byte_permute(kWords.of[2], kWords.of[3], selectors & 0x7777u);
  const std::uint32_t upper = ((codes >> 3) & 0x01010101u) * 255u;  // all bits set in bytes whose code is 8 or more
  return (high & upper) | (low & ~upper);
}

// The codes of one lane, read 16 bytes at a time while blocks go by in order from the first of a strip.
template <class F>
struct LaneCodes {
  Words4 low;
  Words4 high;

  // Blocks in 16 bytes of a lane.
  static constexpr int kLowBlocks = F::kBits == 8 ? 1 : F::kBits >= 4 ? 2 : 4;
  static constexpr int kHighBlocks = F::kBits == 3 || F::kBits == 5 ? 8 : F::kBits == 6 ? 4 : 0;
  // Blocks that a loop takes at once, so that the compiler knows the position of each code in its word.
  static constexpr unsigned kTogether = kLowBlocks > kHighBlocks ? kLowBlocks : kHighBlocks;

  // codes: of the strip, behind its scales.
  QUIRE_DEVICE void load(const std::byte* codes, int lane, unsigned block) {
    if (block % kLowBlocks == 0) load_low(codes, lane, block);
    if constexpr (kHighBlocks > 0) {
      if (block % kHighBlocks == 0) load_high(codes, lane, block);
    }
  }
  // Loads the codes of any block.
  QUIRE_DEVICE void load_alone(const std::byte* codes, int lane, unsigned block) {
    load_low(codes, lane, block);
    if constexpr (kHighBlocks > 0) load_high(codes, lane, block);
  }

  // Word `word` of the A operand of a block, four codes.
  QUIRE_DEVICE std::uint32_t codes(unsigned block, int word) const {
    if constexpr (F::kBits == 8) {
      return low.of[word];
    } else if constexpr (F::kBits >= 4) {
      const std::uint32_t nibbles = (low.of[block % 2 * 2 + word / 2] >> (4 * (word % 2))) & 0x0f0f0f0fu;
      if constexpr (F::kBits == 5) return nibbles | (one_bit(block, word) << 4);
      if constexpr (F::kBits == 6) return nibbles | (two_bits(high, block, word) << 4);
      return nibbles;
    } else {
      const std::uint32_t pairs = two_bits(low, block, word);
      if constexpr (F::kBits == 3) return pairs | (one_bit(block, word) << 2);
      return pairs;
    }
  }

 private:
  QUIRE_DEVICE void load_low(const std::byte* codes, int lane, unsigned block) {
    low = load_as<Words4>(codes + 512 * (block / kLowBlocks) + 16 * lane);
  }
  QUIRE_DEVICE void load_high(const std::byte* codes, int lane, unsigned block) {
    high = load_as<Words4>(codes + F::kLayout.high_offset + 512 * (block / kHighBlocks) + 16 * lane);
  }
  QUIRE_DEVICE std::uint32_t one_bit(unsigned block, int word) const {
    return (high.of[block / 2] >> (word + 4 * (block % 2))) & 0x01010101u;
  }
  static QUIRE_DEVICE std::uint32_t two_bits(const Words4& plane, unsigned block, int word) {
    return (plane.of[block % 4] >> (2 * word)) & 0x03030303u;
  }
};

// The operand: codes, or their values, the zero not yet subtracted.
template <class F, class Thread>
QUIRE_DEVICE void operand_of(Thread& t, const LaneCodes<F>& lane_codes, unsigned block, std::uint32_t (&a)[4]) {
  QUIRE_UNROLL
  for (int word = 0; word < 4; ++word) {
    a[word] = lane_codes.codes(block, word);
    if constexpr (F::kTable) a[word] = look_up<F>(t, a[word]);
  }
}

// Scales of one output and one block. A single scale: `first` multiplies the sum, `second` is a minimum added
// (Form::kSubtracts: subtracted) per activation. Two: each multiplies the sum of 16 features; minima are 32nd parts,
// multiplied with 32 times the activations' sums.
struct OutputScales {
  float first = 0.0f;
  float second = 0.0f;
  float minimum[2] = {0.0f, 0.0f};
};

template <class Thread>
QUIRE_DEVICE float half_at(Thread& t, const std::byte* halves, int index) {
  return t.half_to_float(load_as<std::uint16_t>(halves + 2 * index));
}
QUIRE_DEVICE float signed_at(const std::byte* bytes, int index) {
  return static_cast<float>(load_as<std::int8_t>(bytes + index));
}
QUIRE_DEVICE std::uint32_t byte_at(const std::byte* bytes, int index) {
  return load_as<std::uint8_t>(bytes + index);
}

template <class Thread>
QUIRE_DEVICE OutputScales nibble_scales(Thread& t, const std::byte* header, const std::byte* entry, int output) {
  const float d = half_at(t, header, output);
  const float m = half_at(t, header, 16 + output) * (1.0f / 32.0f);
  const std::uint32_t low = byte_at(entry, output);
  const std::uint32_t high = byte_at(entry, 16 + output);
  return {d * static_cast<float>(low & 15u),
          d * static_cast<float>(high & 15u),
          {m * static_cast<float>(low >> 4), m * static_cast<float>(high >> 4)}};
}

template <class F, class Thread>
QUIRE_DEVICE OutputScales scales_of(Thread& t, const std::byte* strip, unsigned block, int output) {
  const std::byte* header = strip + header_offset(F::kFormat, block);
  const std::byte* entry = strip + entry_offset(F::kFormat, block);
  if constexpr (F::kScales == ScaleForm::kHalf) {
    return {half_at(t, entry, output)};
  } else if constexpr (F::kScales == ScaleForm::kHalfMinimum) {
    return {half_at(t, entry, output), half_at(t, entry, 16 + output)};
  } else if constexpr (F::kScales == ScaleForm::kHeaderHalf) {
    return {half_at(t, header, output)};
  } else if constexpr (F::kScales == ScaleForm::kSigned) {
    return {half_at(t, header, output) * F::kFormat.unit * signed_at(entry, output)};
  } else if constexpr (F::kScales == ScaleForm::kSignedHalves) {
    const float d = half_at(t, header, output) * F::kFormat.unit;
    return {d * signed_at(entry, output), d * signed_at(entry, 16 + output)};
  } else if constexpr (F::kScales == ScaleForm::kNibbleHalves) {
    return nibble_scales(t, header, entry, output);
  } else if constexpr (F::kScales == ScaleForm::kPower) {
    const std::uint32_t power = byte_at(entry, output);
    return {float_of_bits((power - (power > 0 ? 1u : 0u)) << 23)};
  } else if constexpr (F::kScales == ScaleForm::kUe4m3Halves) {
    return {0x1p119f * float_of_bits(byte_at(entry, output) << 20),
            0x1p119f * float_of_bits(byte_at(entry, 16 + output) << 20)};
  } else if constexpr (F::kScales == ScaleForm::kFloatZero) {
    const float scale = load_as<float>(header + 4 * output);
    return {scale, scale * static_cast<float>(byte_at(header, 64 + output))};
  } else {
    static_assert(F::kScales == ScaleForm::kPair8);
    const float m = half_at(t, header, 16 + output);
    return {half_at(t, header, output) * static_cast<float>(byte_at(entry, output)),
            m * static_cast<float>(byte_at(entry, 16 + output))};
  }
}

}  // namespace quire::gpu
