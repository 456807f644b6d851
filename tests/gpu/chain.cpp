#include "tests/gpu/chain.h"

#include <algorithm>
#include <cmath>

#include "kernels/formats/half.h"
#include "kernels/formats/packed_format.h"
#include "kernels/formats/quant_blocks.h"

namespace quire::test {
namespace {

// The contribution of one block of weights to a sum.
struct ChainWeights {
  int values[32];  // meanings of the codes, zeros subtracted where the form has a fixed one
  float scale[2];
  float minimum[2] = {0.0f, 0.0f};  // added: per activation, or a 32nd part for each half
};

void set_scales(const PackedFormat& format, const QuantGroup& group, ChainWeights& out) {
  const float d = f16_to_float(group.scale_f16);
  const float m = f16_to_float(group.minimum_f16);
  const auto byte = [&](std::size_t half) { return static_cast<std::uint8_t>(group.sub_scale[half]); };
  out.scale[0] = out.scale[1] = d;
  switch (format.scales) {
    case ScaleForm::kHalfMinimum: out.minimum[0] = m; break;
    case ScaleForm::kPair8:
      out.scale[0] = d * static_cast<float>(byte(0));
      out.minimum[0] = -(m * static_cast<float>(group.sub_minimum));
      break;
    case ScaleForm::kSigned:
    case ScaleForm::kSignedHalves:
      for (std::size_t i = 0; i < 2; ++i)
        out.scale[i] = d * format.unit * static_cast<float>(group.sub_scale[i]);
      break;
    case ScaleForm::kNibbleHalves:
      for (std::size_t i = 0; i < 2; ++i) {
        out.scale[i] = d * static_cast<float>(byte(i) & 15);
        out.minimum[i] = m / 32.0f * static_cast<float>(byte(i) >> 4);
      }
      break;
    case ScaleForm::kPower: out.scale[0] = half_of_e8m0(byte(0)); break;
    case ScaleForm::kUe4m3Halves:
      for (std::size_t i = 0; i < 2; ++i)
        out.scale[i] = half_of_ue4m3(byte(i));
      break;
    case ScaleForm::kFloatZero:
      out.scale[0] = group.scale_f32;
      out.minimum[0] = -(group.scale_f32 * static_cast<float>(group.sub_minimum));
      break;
    default: break;
  }
}

ChainWeights weights_of(const PackedFormat& format, const QuantGroup& group) {
  ChainWeights out{};
  const CodeValues meanings = code_values(format.table);
  for (std::size_t i = 0; i < 32; ++i) {
    const int code = group.quants[i];
    out.values[i] = format.table == CodeTable::kLinear ? code - format.zero : meanings.of[code];
  }
  set_scales(format, group, out);
  return out;
}

int sum_of(const ChainBlock& x, const int* values, int begin, int end) {
  int sum = 0;
  for (int i = begin; i < end; ++i)
    sum += x.quants[i] * (values == nullptr ? 1 : values[i]);
  return sum;
}

float add_block(const PackedFormat& format, const ChainWeights& w, const ChainBlock& x, float sum) {
  if (format.has_halves()) {
    const auto low = static_cast<float>(sum_of(x, w.values, 0, 16));
    const auto high = static_cast<float>(sum_of(x, w.values, 16, 32));
    float both = std::fma(high, w.scale[1], low * w.scale[0]);
    if (format.scales == ScaleForm::kNibbleHalves) {
      both = std::fma(static_cast<float>(-32 * sum_of(x, nullptr, 0, 16)), w.minimum[0], both);
      both = std::fma(static_cast<float>(-32 * sum_of(x, nullptr, 16, 32)), w.minimum[1], both);
    }
    return std::fma(both, x.scale, sum);
  }
  if (format.zero == 0) sum = std::fma(x.scale * static_cast<float>(sum_of(x, nullptr, 0, 32)), w.minimum[0], sum);
  return std::fma(static_cast<float>(sum_of(x, w.values, 0, 32)), x.scale * w.scale[0], sum);
}

}  // namespace

std::vector<ChainBlock> chain_blocks(const float* x, std::int64_t depth) {
  std::vector<ChainBlock> out(static_cast<std::size_t>(depth / 32));
  for (ChainBlock& block : out) {
    float bound = 0.0f;
    for (int i = 0; i < 32; ++i)
      bound = std::max(bound, std::fabs(x[i]));
    const float inverse = bound > 1e-30f ? 127.0f / bound : 0.0f;
    block.scale = bound / 127.0f;
    for (int i = 0; i < 32; ++i)
      block.quants[i] = static_cast<int>(std::nearbyint(x[i] * inverse));
    x += 32;
  }
  return out;
}

Matrix chain_product(const Weights& weights, const Matrix& x) {
  const PackedFormat format = packed_format(weights.type);
  const DTypeInfo& info = dtype_info(weights.type);
  const auto num_blocks = static_cast<std::size_t>(weights.cols / 32);
  const auto block_groups = static_cast<std::size_t>(info.block_size / 32);
  std::vector<std::vector<ChainBlock>> rows;
  for (std::int64_t row = 0; row < x.rows; ++row)
    rows.push_back(chain_blocks(x.data.data() + row * x.stride, x.cols));
  Matrix out(x.rows, weights.rows);
  std::vector<ChainWeights> blocks(num_blocks);
  for (std::int64_t col = 0; col < weights.rows; ++col) {
    const std::byte* from = weights.bytes.data() + static_cast<std::size_t>(col) * dtype_bytes(weights.type, x.cols);
    QuantGroup group;
    for (std::size_t b = 0; b < num_blocks; ++b) {
      split_quant_group(weights.type, from + b / block_groups * info.block_bytes, static_cast<int>(b % block_groups),
                        group);
      blocks[b] = weights_of(format, group);
    }
    for (std::int64_t row = 0; row < x.rows; ++row) {
      float total = 0.0f;
      for (std::size_t begin = 0; begin < num_blocks; begin += 32) {
        float sum = 0.0f;
        for (std::size_t b = begin; b < std::min(num_blocks, begin + 32); ++b)
          sum = add_block(format, blocks[b], rows[static_cast<std::size_t>(row)][b], sum);
        total = begin == 0 ? sum : total + sum;
      }
      out.at(row, col) = total;
    }
  }
  return out;
}

}  // namespace quire::test
