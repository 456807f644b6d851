// Code that products of quantised weights with int8 activations share: the sums of one block are exact integers, scaled
// into f32 as on the CPU level avx512; sums over kDepthCut features each are added in order. Invariant: an element's
// chain depends on its row and its output alone, so that linear_row, linear_skinny and linear_wide give the same bits,
// whatever rows come together. Depths that end within a strip are multiplied to its end: weights are zeros there,
// activations those of the last block, so that sums stay as they are.
#pragma once

#include "kernels/gpu/kernels/expert_rows.h"
#include "kernels/gpu/kernels/portable.h"
#include "kernels/gpu/kernels/unpack.h"
#include "kernels/gpu/pack/act_tiles.h"
#include "kernels/gpu/pack/strips.h"

namespace quire::gpu {

// Destination of a product's results.
struct LinearOutput {
  std::int64_t rows = 0;
  std::int64_t outputs = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  const float* bias = nullptr;  // [outputs] or null
  float scale = 1.0f;           // factor of all products
  bool accumulate = false;

  // Narrows the output to one expert's rows, which begin within the block's own.
  QUIRE_DEVICE void narrow_to(const ExpertItem& item, const ExpertWeights& expert) {
    rows = item.rows;
    out += item.first_row * out_stride;
    if (bias != nullptr) bias += expert.bias;
    scale = expert.scale;
  }
};

// tiles_bytes: at least tiles_of_rows(), or as many bytes beyond an item's first tile.
struct LinearIntArgs {
  const std::byte* strips = nullptr;  // [outputs / 16][strips of the depth]
  const ActTile* tiles = nullptr;     // [num_blocks][tiles of rows]
  std::uint32_t tiles_bytes = 0;      // bytes per block of the depth
  std::int64_t num_blocks = 0;        // along the depth
  LinearOutput output;
  ExpertProduct experts = {};  // strips and bias are the first one's; not for linear_wide

  // Narrows the work to the item of the block's y. Returns false if it is empty.
  QUIRE_DEVICE bool narrow_to_item(std::int64_t y) {
    const ExpertItem item = experts.items[y];
    strips += experts.weights[item.expert].weights;
    tiles += item.first_tile;
    output.narrow_to(item, experts.weights[item.expert]);
    return item.rows > 0;
  }
  QUIRE_DEVICE int num_strips() const { return (static_cast<int>(num_blocks) + kStripBlocks - 1) / kStripBlocks; }
  QUIRE_DEVICE int num_groups() const { return (static_cast<int>(output.outputs) + kStripOutputs - 1) / kStripOutputs; }
  // The first tile of a block of the depth, or of the last one.
  QUIRE_DEVICE const ActTile* tiles_of(unsigned block) const {
    const unsigned last = static_cast<unsigned>(num_blocks) - 1;
    const std::uint64_t offset = static_cast<std::uint64_t>(block < last ? block : last) * tiles_bytes;
    return reinterpret_cast<const ActTile*>(reinterpret_cast<const std::byte*>(tiles) + offset);
  }
};

// Two outputs of a lane times two rows of a tile: element 2 * o + r, as in the result of mma.m16n8k32.
inline constexpr int kLaneElements = 4;

QUIRE_DEVICE int lane_output(int lane, int element) {
  return lane / 4 + 8 * (element / 2);
}
QUIRE_DEVICE int lane_row(int lane, int element) {
  return 2 * (lane % 4) + element % 2;
}

// Initial values and factors of one row's sums of a block.
template <class F>
struct RowFactors {
  static constexpr int kParts = F::kHalves ? 2 : 1;  // halves of a block, or the whole, each with a scale
  float scale;
  std::int32_t start[kParts];  // minus the weights' zero times the activations
  float minima[kParts];        // factors of the weights' minima
};

// Two signed bytes as an operand of dot_pairs.
constexpr std::uint32_t byte_pair(int first, int second) {
  return static_cast<std::uint32_t>(first & 255) | static_cast<std::uint32_t>(second & 255) << 8;
}

// Reads an ActScale by its words.
template <class F, class Thread>
QUIRE_DEVICE RowFactors<F> row_factors(Thread& t, std::uint32_t scale, std::uint32_t sums) {
  static_assert(F::kZero <= 128);
  RowFactors<F> out{};
  out.scale = float_of_bits(scale);
  if constexpr (F::kHalves) {
    out.start[0] = F::kZero == 0 ? 0 : t.dot_pairs(sums, byte_pair(-F::kZero, 0));
    out.start[1] = F::kZero == 0 ? 0 : t.dot_pairs(sums, byte_pair(0, -F::kZero));
    out.minima[0] = static_cast<float>(t.dot_pairs(sums, byte_pair(-32, 0)));
    out.minima[1] = static_cast<float>(t.dot_pairs(sums, byte_pair(0, -32)));
  } else if constexpr (F::kZero == 0) {
    constexpr int kSign = F::kSubtracts ? -1 : 1;
    out.minima[0] = out.scale * static_cast<float>(t.dot_pairs(sums, byte_pair(kSign, kSign)));
  } else {
    out.start[0] = t.dot_pairs(sums, byte_pair(-F::kZero, -F::kZero));
  }
  return out;
}

// Adds one block of one row to an output's sum. sums: by half of the block.
template <class F>
QUIRE_DEVICE float add_block(const std::int32_t (&sums)[RowFactors<F>::kParts], const OutputScales& w,
                             const RowFactors<F>& x, float acc) {
  if constexpr (F::kHalves) {
    float both = __builtin_fmaf(static_cast<float>(sums[1]), w.second, static_cast<float>(sums[0]) * w.first);
    if constexpr (F::kScales == ScaleForm::kNibbleHalves) {
      both = __builtin_fmaf(x.minima[0], w.minimum[0], both);
      both = __builtin_fmaf(x.minima[1], w.minimum[1], both);
    }
    return __builtin_fmaf(both, x.scale, acc);
  } else {
    if constexpr (F::kZero == 0) acc = __builtin_fmaf(x.minima[0], w.second, acc);
    return __builtin_fmaf(static_cast<float>(sums[0]), x.scale * w.first, acc);
  }
}

// The integer sums of one block: elements [half][2 * o + r], which begin with those of their rows.
template <class F, class Thread>
QUIRE_DEVICE void multiply_codes(Thread& t, const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                 std::int32_t (&sums)[RowFactors<F>::kParts][kLaneElements]) {
  if constexpr (F::kHalves) {
    t.mma_u8s8_k16(sums[0], a[0], a[1], b[0]);
    t.mma_u8s8_k16(sums[1], a[2], a[3], b[1]);
  } else {
    t.mma_u8s8_k32(sums[0], a, b);
  }
}

// A lane's share of the B operand of one tile, and the factors of its two rows.
template <class F>
struct LaneTile {
  std::uint32_t b[2];
  RowFactors<F> rows[2];
};

template <class F, class Thread>
QUIRE_DEVICE LaneTile<F> load_tile(Thread& t, const ActTile& x) {
  const auto b = load_as<Words2>(reinterpret_cast<const std::byte*>(&x.quants[t.lane()]));
  // The scales of two rows that lie together.
  const auto rows = load_as<Words4>(reinterpret_cast<const std::byte*>(&x.scales[lane_row(t.lane(), 0)]));
  return {{b.of[0], b.of[1]}, {row_factors<F>(t, rows.of[0], rows.of[1]), row_factors<F>(t, rows.of[2], rows.of[3])}};
}

// acc += one block of 32 features times one tile. s: of the lane's two outputs.
template <class F, class Thread>
QUIRE_DEVICE void multiply_tile(Thread& t, const std::uint32_t (&a)[4], const OutputScales (&s)[2],
                                const LaneTile<F>& x, float (&acc)[kLaneElements]) {
  constexpr int kParts = RowFactors<F>::kParts;
  std::int32_t sums[kParts][kLaneElements];
  QUIRE_UNROLL
  for (int i = 0; i < kParts * kLaneElements; ++i)
    sums[i / kLaneElements][i % kLaneElements] = x.rows[i % 2].start[i / kLaneElements];
  multiply_codes<F>(t, a, x.b, sums);
  QUIRE_UNROLL
  for (int i = 0; i < kLaneElements; ++i) {
    std::int32_t mine[kParts];
    for (int part = 0; part < kParts; ++part)
      mine[part] = sums[part][i];
    acc[i] = add_block<F>(mine, s[i / 2], x.rows[i % 2], acc[i]);
  }
}

// The weights of one block of the depth, of kGroups times 16 outputs, as one lane multiplies them.
template <class F, int kGroups>
struct BlockWeights {
  LaneCodes<F> codes[kGroups];
  std::uint32_t a[kGroups][4];
  OutputScales scales[kGroups][2];

  // Loads blocks of a strip in order. strip(g): the address of a group's strip.
  template <class Thread, class StripOf>
  QUIRE_DEVICE void load(Thread& t, unsigned block, const StripOf& strip) {
    QUIRE_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      codes[g].load(strip(g) + F::kLayout.scale_bytes, t.lane(), block);
      operand_of(t, codes[g], block, a[g]);
      for (int o = 0; o < 2; ++o)
        scales[g][o] = scales_of<F>(t, strip(g), block, lane_output(t.lane(), 2 * o));
    }
  }
};

// Applies scale, bias and accumulation as requested.
QUIRE_DEVICE void write_element(const LinearOutput& args, std::int64_t row, std::int64_t output, float value) {
  if (row >= args.rows || output >= args.outputs) return;
  float* out = args.out + row * args.out_stride + output;
  if (args.scale != 1.0f) value = value * args.scale;
  if (args.bias != nullptr) value = value + args.bias[output];
  if (args.accumulate) value = *out + value;
  *out = value;
}

}  // namespace quire::gpu
