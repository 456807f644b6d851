// embed: rows of an embedding table as f32, from strips (a tied output head shares them) or, for float types, from the
// file's own rows. Grid: x rows, y spread_pieces(cols). The values are dequantize()'s, to the bit.
#pragma once

#include "kernels/gpu/kernels/fours.h"
#include "kernels/gpu/kernels/unpack.h"

namespace quire::gpu {

struct EmbedArgs {
  const std::byte* table = nullptr;  // strips, or rows as the file has them
  const std::int32_t* ids = nullptr;
  std::int64_t cols = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

template <DType kType>
struct EmbedStrips {
  using Args = EmbedArgs;
  using F = Form<kType>;
  static constexpr int kThreads = kSpreadThreads;
  static constexpr int kSharedBytes = 0;

  // Four features from `4 * word` on of one output of a strip.
  template <class Thread>
  static QUIRE_DEVICE void decode(Thread& t, const std::byte* strip, int output, int word, float* out) {
    const int block = word / 8;
    const CodePlace place = code_place(output, word % 8 * 4);
    LaneCodes<F> lane_codes;
    lane_codes.load_alone(strip + F::kLayout.scale_bytes, place.lane, block);
    std::uint32_t codes = lane_codes.codes(block, place.word);
    if constexpr (F::kTable) codes = look_up<F>(t, codes);
    const OutputScales s = scales_of<F>(t, strip, block, output);
    const bool second_half = word % 8 >= 4;
    const float scale = F::kHalves && second_half ? s.second : s.first;
    int zero = F::kZero;
    float minimum = 0.0f;
    if constexpr (F::kScales == ScaleForm::kFloatZero) {
      zero = static_cast<int>(byte_at(strip + header_offset(F::kFormat, block), 64 + output));
    } else if constexpr (F::kScales == ScaleForm::kNibbleHalves) {
      minimum = 32.0f * s.minimum[second_half ? 1 : 0];
    } else if constexpr (!F::kHalves && F::kZero == 0) {
      minimum = F::kSubtracts ? s.second : 0.0f - s.second;
    }
    for (int i = 0; i < 4; ++i) {
      const int code = static_cast<int>((codes >> (8 * i)) & 255u);
      out[i] = scale * static_cast<float>(code - zero) - minimum;
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t row = t.block_x();
    const std::int64_t word = t.block_y() * kThreads + t.index();
    if (word >= args.cols / 4) return;
    const auto id = static_cast<unsigned>(args.ids[row]);
    const std::int64_t num_strips = (args.cols + kStripFeatures - 1) / kStripFeatures;
    const std::byte* strips = args.table + id / kStripOutputs * num_strips * F::kLayout.bytes;
    constexpr int kStripWords = kStripFeatures / 4;
    decode(t, strips + word / kStripWords * F::kLayout.bytes, static_cast<int>(id % kStripOutputs),
           static_cast<int>(word % kStripWords), args.out + row * args.out_stride + 4 * word);
  }
};

// E4M3 as OCP defines it; 0x7f is the NaN.
QUIRE_DEVICE float e4m3_value(std::uint32_t code) {
  const std::uint32_t sign = (code & 0x80u) << 24;
  if ((code & 0x7fu) == 0x7fu) return float_of_bits(sign | 0x7fc00000u);
  const float magnitude = float_of_bits((code & 0x7fu) << 20) * float_of_bits(0x7b800000u);
  return code >= 0x80u ? -magnitude : magnitude;
}

template <DType kType>
struct EmbedRows {
  using Args = EmbedArgs;
  static constexpr int kThreads = kSpreadThreads;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE std::int64_t row_bytes(std::int64_t cols) {
    return kType == DType::kF8 ? cols / 32 * 36 : cols * (kType == DType::kF32 ? 4 : 2);
  }

  template <class Thread>
  static QUIRE_DEVICE float value(Thread& t, const std::byte* row, std::int64_t i) {
    if constexpr (kType == DType::kF32) return load_as<float>(row + 4 * i);
    if constexpr (kType == DType::kF16) return t.half_to_float(load_as<std::uint16_t>(row + 2 * i));
    if constexpr (kType == DType::kBF16)
      return float_of_bits(static_cast<std::uint32_t>(load_as<std::uint16_t>(row + 2 * i)) << 16);
    if constexpr (kType == DType::kF8) {
      const std::byte* block = row + i / 32 * 36;
      return load_as<float>(block) * e4m3_value(load_as<std::uint8_t>(block + 4 + i % 32));
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t row = t.block_x();
    const std::byte* from = args.table + args.ids[row] * row_bytes(args.cols);
    float* out = args.out + row * args.out_stride;
    const auto cols = static_cast<int>(args.cols);
    const int at = static_cast<int>(t.block_y()) * kSpreadPiece + kFour * t.index();
    Four values{};
    QUIRE_UNROLL
    for (int i = 0; i < kFour; ++i) {
      if (at + i < cols) values.of[i] = value(t, from, at + i);
    }
    store_four(out, at, cols, lies_in_fours(out, cols), values);
  }
};

}  // namespace quire::gpu
