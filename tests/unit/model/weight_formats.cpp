#include "tests/unit/model/weight_formats.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <span>

#include "kernels/half.h"

namespace quire::test {

namespace {

using nlohmann::json;

template <class T>
RawTensor raw(std::string name, std::string dtype, std::vector<std::int64_t> shape, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {std::move(name), std::move(dtype), std::move(shape), {bytes.begin(), bytes.end()}};
}

// The code whose value is nearest, by trying all.
std::uint8_t nearest_e4m3(double value) {
  int best = 0;
  double least = HUGE_VAL;
  for (int code = 0; code < 256; ++code) {
    if ((code & 127) == 127) continue;
    const double distance = std::fabs(static_cast<double>(e4m3_to_float(static_cast<std::uint8_t>(code))) - value);
    if (distance >= least) continue;
    least = distance;
    best = code;
  }
  return static_cast<std::uint8_t>(best);
}

FormattedWeight format_fp8(const std::string& stem, const std::vector<float>& weights, std::int64_t rows,
                           std::int64_t cols, std::int64_t block) {
  const std::int64_t down = (rows + block - 1) / block;
  const std::int64_t across = block == 1 ? 1 : cols / block;
  std::vector<float> scales(static_cast<std::size_t>(down * across));
  const auto scale_at = [&](std::int64_t i) -> float& {
    const std::int64_t col = block == 1 ? 0 : i % cols / block;
    return scales[static_cast<std::size_t>(i / cols / block * across + col)];
  };
  for (std::int64_t i = 0; i < rows * cols; ++i)
    scale_at(i) = std::max(scale_at(i), std::fabs(weights[static_cast<std::size_t>(i)]) / 448.0F);
  FormattedWeight out;
  std::vector<std::uint8_t> codes;
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    const auto scale = static_cast<double>(scale_at(i));
    codes.push_back(nearest_e4m3(static_cast<double>(weights[static_cast<std::size_t>(i)]) / scale));
    out.values.push_back(static_cast<double>(e4m3_to_float(codes.back())) * scale);
  }
  out.tensors.push_back(raw(stem + ".weight", "F8_E4M3", {rows, cols}, codes));
  out.tensors.push_back(
      raw(stem + (block == 1 ? ".weight_scale" : ".weight_scale_inv"), "F32", {down, across}, scales));
  return out;
}

// Quants of four bits as plain arrays, from which each format makes its words.
struct Int4 {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t groups;
  std::vector<unsigned> quants = {};       // [rows][cols]
  std::vector<unsigned> zeros = {};        // [rows][groups]
  std::vector<std::uint16_t> scales = {};  // f16, the same
  std::vector<std::int32_t> index = {};    // group of each column

  std::size_t at(std::int64_t row, std::int64_t group) const { return static_cast<std::size_t>(row * groups + group); }
  unsigned quant(std::int64_t row, std::int64_t col) const {
    return quants[static_cast<std::size_t>(row * cols + col)];
  }
};

Int4 make_int4(const std::vector<float>& weights, std::int64_t rows, std::int64_t cols, std::int64_t group_size,
               bool symmetric, bool shuffled, FormattedWeight& out) {
  Int4 q{.rows = rows, .cols = cols, .groups = cols / group_size};
  for (std::int64_t col = 0; col < cols; ++col)
    q.index.push_back(static_cast<std::int32_t>(col / group_size));
  std::mt19937 random(5);
  if (shuffled) std::ranges::shuffle(q.index, random);
  const auto size = static_cast<std::size_t>(rows * q.groups);
  q.zeros.assign(size, 8);
  q.scales.assign(size, float_to_f16(0.0F));
  std::vector<float> low(size);
  std::vector<float> high(size);
  const auto weight = [&](std::int64_t row, std::int64_t col) {
    return weights[static_cast<std::size_t>(row * cols + col)];
  };
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) {
      const std::size_t g = q.at(row, q.index[static_cast<std::size_t>(col)]);
      low[g] = std::min(low[g], weight(row, col));
      high[g] = std::max(high[g], weight(row, col));
    }
  }
  for (std::size_t g = 0; g < size; ++g) {
    const float reach = symmetric ? std::max(-low[g], high[g]) / 7.0F : (high[g] - low[g]) / 15.0F;
    q.scales[g] = float_to_f16(reach);
    if (!symmetric) q.zeros[g] = static_cast<unsigned>(std::clamp<long>(std::lround(-low[g] / reach), 1, 15));
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) {
      const std::size_t g = q.at(row, q.index[static_cast<std::size_t>(col)]);
      const float scale = f16_to_float(q.scales[g]);
      const long quant = std::lround(weight(row, col) / scale) + static_cast<long>(q.zeros[g]);
      q.quants.push_back(static_cast<unsigned>(std::clamp<long>(quant, 0, 15)));
      const int centred = static_cast<int>(q.quants.back()) - static_cast<int>(q.zeros[g]);
      out.values.push_back(static_cast<double>(scale) * centred);
    }
  }
  return q;
}

// Words of eight nibbles; value(word, place).
template <class Value>
std::vector<std::uint32_t> words_of(std::int64_t count, const Value& value) {
  std::vector<std::uint32_t> out;
  for (std::int64_t word = 0; word < count; ++word) {
    std::uint32_t bits = 0;
    for (std::int64_t place = 0; place < 8; ++place)
      bits |= value(word, place) << (4 * place);
    out.push_back(bits);
  }
  return out;
}

std::vector<std::uint16_t> transposed(const Int4& q) {
  std::vector<std::uint16_t> out;
  for (std::int64_t group = 0; group < q.groups; ++group) {
    for (std::int64_t row = 0; row < q.rows; ++row)
      out.push_back(q.scales[q.at(row, group)]);
  }
  return out;
}

void put_packed(const std::string& stem, const Int4& q, bool zeros, FormattedWeight& out) {
  const auto words = words_of(
      q.rows * q.cols / 8, [&](auto word, auto place) { return q.quants[static_cast<std::size_t>(8 * word + place)]; });
  out.tensors.push_back(raw(stem + ".weight_packed", "I32", {q.rows, q.cols / 8}, words));
  out.tensors.push_back(raw(stem + ".weight_scale", "F16", {q.rows, q.groups}, q.scales));
  out.tensors.push_back(raw(stem + ".weight_shape", "I64", {2}, std::vector<std::int64_t>{q.rows, q.cols}));
  if (!zeros) return;
  const auto packed = words_of(q.rows / 8 * q.groups, [&](std::int64_t word, std::int64_t place) {
    return q.zeros[q.at(word / q.groups * 8 + place, word % q.groups)];
  });
  out.tensors.push_back(raw(stem + ".weight_zero_point", "I32", {q.rows / 8, q.groups}, packed));
}

void put_gptq(const std::string& stem, const Int4& q, FormattedWeight& out) {
  const auto words = words_of(q.cols / 8 * q.rows, [&](std::int64_t word, std::int64_t place) {
    return q.quant(word % q.rows, word / q.rows * 8 + place);
  });
  const auto zeros = words_of(q.groups * q.rows / 8, [&](std::int64_t word, std::int64_t place) {
    return (q.zeros[q.at(word % (q.rows / 8) * 8 + place, word / (q.rows / 8))] - 1) & 15u;
  });
  out.tensors.push_back(raw(stem + ".qweight", "I32", {q.cols / 8, q.rows}, words));
  out.tensors.push_back(raw(stem + ".qzeros", "I32", {q.groups, q.rows / 8}, zeros));
  out.tensors.push_back(raw(stem + ".scales", "F16", {q.groups, q.rows}, transposed(q)));
  out.tensors.push_back(raw(stem + ".g_idx", "I32", {q.cols}, q.index));
}

void put_awq(const std::string& stem, const Int4& q, FormattedWeight& out) {
  constexpr std::int64_t kOutput[] = {0, 2, 4, 6, 1, 3, 5, 7};  // of the nibbles of a word
  const auto words = words_of(q.cols * q.rows / 8, [&](std::int64_t word, std::int64_t place) {
    return q.quant(word % (q.rows / 8) * 8 + kOutput[place], word / (q.rows / 8));
  });
  const auto zeros = words_of(q.groups * q.rows / 8, [&](std::int64_t word, std::int64_t place) {
    return q.zeros[q.at(word % (q.rows / 8) * 8 + kOutput[place], word / (q.rows / 8))];
  });
  out.tensors.push_back(raw(stem + ".qweight", "I32", {q.cols, q.rows / 8}, words));
  out.tensors.push_back(raw(stem + ".qzeros", "I32", {q.groups, q.rows / 8}, zeros));
  out.tensors.push_back(raw(stem + ".scales", "F16", {q.groups, q.rows}, transposed(q)));
}

json packed_config(const char* format, const json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"ignore", {"lm_head"}},
          {"quantization_status", "compressed"},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

}  // namespace

FormattedWeight format_weight(WeightFormat format, const std::string& stem, const std::vector<float>& weights,
                              std::int64_t rows, std::int64_t cols) {
  FormattedWeight out;
  const auto int4 = [&](std::int64_t group_size, bool symmetric, bool shuffled) {
    return make_int4(weights, rows, cols, group_size, symmetric, shuffled, out);
  };
  switch (format) {
    case WeightFormat::kFp8Block: return format_fp8(stem, weights, rows, cols, 128);
    case WeightFormat::kFp8Channel: return format_fp8(stem, weights, rows, cols, 1);
    case WeightFormat::kPacked: put_packed(stem, int4(128, true, false), false, out); break;
    case WeightFormat::kPackedZeros: put_packed(stem, int4(32, false, false), true, out); break;
    case WeightFormat::kGptq: put_gptq(stem, int4(128, false, false), out); break;
    case WeightFormat::kGptqOrder: put_gptq(stem, int4(32, false, true), out); break;
    case WeightFormat::kAwq: put_awq(stem, int4(64, false, false), out); break;
  }
  return out;
}

json quantization_config(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFp8Block:
      return {{"quant_method", "fp8"},
              {"fmt", "e4m3"},
              {"activation_scheme", "dynamic"},
              {"weight_block_size", {128, 128}}};
    case WeightFormat::kFp8Channel:
      return packed_config("float-quantized", {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}});
    case WeightFormat::kPacked:
    case WeightFormat::kPackedZeros: {
      const bool symmetric = format == WeightFormat::kPacked;
      return packed_config("pack-quantized", {{"num_bits", 4},
                                              {"type", "int"},
                                              {"strategy", "group"},
                                              {"group_size", symmetric ? 128 : 32},
                                              {"symmetric", symmetric}});
    }
    case WeightFormat::kGptq:
    case WeightFormat::kGptqOrder: {
      const bool ordered = format == WeightFormat::kGptqOrder;
      return {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", ordered ? 32 : 128}, {"desc_act", ordered}};
    }
    case WeightFormat::kAwq: break;
  }
  return {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 64}, {"version", "gemm"}, {"zero_point", true}};
}

StoredTensor stored_tensor(const RawTensor& tensor) {
  StoredTensor out;
  out.name = tensor.name;
  out.type_name = tensor.dtype;
  out.type = parse_dtype(tensor.dtype);
  out.shape = tensor.shape;
  out.data = tensor.data;
  return out;
}

}  // namespace quire::test
