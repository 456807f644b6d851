#include "tests/unit/model/weight_formats.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <span>

#include "kernels/formats/half.h"

namespace quire::test {

namespace {

using nlohmann::json;

template <class T>
RawTensor raw(std::string name, std::string dtype, std::vector<std::int64_t> shape, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {std::move(name), std::move(dtype), std::move(shape), {bytes.begin(), bytes.end()}};
}

// The code of the nearest value, found by trying all.
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

// Quants as plain arrays, from which each format builds its words.
struct Ints {
  int bits;
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

Ints make_ints(int bits, const std::vector<float>& weights, std::int64_t rows, std::int64_t cols,
               std::int64_t group_size, bool symmetric, bool shuffled, FormattedWeight& out) {
  const long most = (1L << bits) - 1;
  const auto middle = static_cast<unsigned>(1L << (bits - 1));
  Ints q{.bits = bits, .rows = rows, .cols = cols, .groups = cols / group_size};
  for (std::int64_t col = 0; col < cols; ++col)
    q.index.push_back(static_cast<std::int32_t>(col / group_size));
  std::mt19937 random(5);
  if (shuffled) std::ranges::shuffle(q.index, random);
  const auto size = static_cast<std::size_t>(rows * q.groups);
  q.zeros.assign(size, middle);
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
    const float reach = symmetric ? std::max(-low[g], high[g]) / static_cast<float>(std::max(1U, middle - 1))
                                  : (high[g] - low[g]) / static_cast<float>(most);
    q.scales[g] = float_to_f16(reach);
    if (!symmetric) q.zeros[g] = static_cast<unsigned>(std::clamp<long>(std::lround(-low[g] / reach), 1, most));
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) {
      const std::size_t g = q.at(row, q.index[static_cast<std::size_t>(col)]);
      const float scale = f16_to_float(q.scales[g]);
      const long quant = std::lround(weight(row, col) / scale) + static_cast<long>(q.zeros[g]);
      q.quants.push_back(static_cast<unsigned>(std::clamp<long>(quant, 0, most)));
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

// The bits of `count` values, value(index), one after the other.
template <class Value>
std::vector<std::uint32_t> stream_of(int bits, std::int64_t count, const Value& value) {
  std::vector<std::uint32_t> out(static_cast<std::size_t>((count * bits + 31) / 32));
  for (std::int64_t i = 0; i < count * bits; ++i)
    out[static_cast<std::size_t>(i / 32)] |= (value(i / bits) >> (i % bits) & 1U) << (i % 32);
  return out;
}

// Streams as columns of a matrix of words.
std::vector<std::uint32_t> as_columns(const std::vector<std::vector<std::uint32_t>>& streams) {
  std::vector<std::uint32_t> out;
  for (std::size_t word = 0; word < streams.front().size(); ++word) {
    for (const auto& stream : streams)
      out.push_back(stream[word]);
  }
  return out;
}

std::vector<std::uint16_t> transposed(const Ints& q) {
  std::vector<std::uint16_t> out;
  for (std::int64_t group = 0; group < q.groups; ++group) {
    for (std::int64_t row = 0; row < q.rows; ++row)
      out.push_back(q.scales[q.at(row, group)]);
  }
  return out;
}

void put_packed(const std::string& stem, const Ints& q, bool zeros, FormattedWeight& out) {
  const auto words =
      stream_of(q.bits, q.rows * q.cols, [&](std::int64_t i) { return q.quants[static_cast<std::size_t>(i)]; });
  out.tensors.push_back(raw(stem + ".weight_packed", "I32", {q.rows, q.cols * q.bits / 32}, words));
  out.tensors.push_back(raw(stem + ".weight_scale", "F16", {q.rows, q.groups}, q.scales));
  out.tensors.push_back(raw(stem + ".weight_shape", "I64", {2}, std::vector<std::int64_t>{q.rows, q.cols}));
  if (!zeros) return;
  std::vector<std::vector<std::uint32_t>> streams;
  for (std::int64_t group = 0; group < q.groups; ++group)
    streams.push_back(stream_of(q.bits, q.rows, [&](std::int64_t row) { return q.zeros[q.at(row, group)]; }));
  out.tensors.push_back(raw(stem + ".weight_zero_point", "I32", {q.rows * q.bits / 32, q.groups}, as_columns(streams)));
}

void put_gptq(const std::string& stem, const Ints& q, FormattedWeight& out) {
  const unsigned mask = (1U << q.bits) - 1U;
  std::vector<std::vector<std::uint32_t>> streams;
  for (std::int64_t row = 0; row < q.rows; ++row)
    streams.push_back(stream_of(q.bits, q.cols, [&](std::int64_t col) { return q.quant(row, col); }));
  std::vector<std::uint32_t> zeros;
  for (std::int64_t group = 0; group < q.groups; ++group) {
    const auto stream =
        stream_of(q.bits, q.rows, [&](std::int64_t row) { return (q.zeros[q.at(row, group)] - 1U) & mask; });
    zeros.insert(zeros.end(), stream.begin(), stream.end());
  }
  out.tensors.push_back(raw(stem + ".qweight", "I32", {q.cols * q.bits / 32, q.rows}, as_columns(streams)));
  out.tensors.push_back(raw(stem + ".qzeros", "I32", {q.groups, q.rows * q.bits / 32}, zeros));
  out.tensors.push_back(raw(stem + ".scales", "F16", {q.groups, q.rows}, transposed(q)));
  out.tensors.push_back(raw(stem + ".g_idx", "I32", {q.cols}, q.index));
}

// Signed bytes; the scale of a row is that of its only group.
void put_bytes(const std::string& stem, const Ints& q, FormattedWeight& out) {
  std::vector<std::int8_t> bytes;
  for (const unsigned quant : q.quants)
    bytes.push_back(static_cast<std::int8_t>(static_cast<int>(quant) - 128));
  out.tensors.push_back(raw(stem + ".weight", "I8", {q.rows, q.cols}, bytes));
  out.tensors.push_back(raw(stem + ".weight_scale", "F16", {q.rows, 1}, q.scales));
}

FormattedWeight format_nvfp4(const std::string& stem, const std::vector<float>& weights, std::int64_t rows,
                             std::int64_t cols, bool divides) {
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  constexpr float kFactor = 0.0078125F;  // a power of two, so that its inverse is exact
  FormattedWeight out;
  std::vector<std::uint8_t> scales;
  std::vector<std::uint8_t> pairs(weights.size() / 2);
  for (std::size_t begin = 0; begin < weights.size(); begin += 16) {
    double most = 0.0;
    for (std::size_t i = begin; i < begin + 16; ++i)
      most = std::max(most, std::fabs(static_cast<double>(weights[i])));
    scales.push_back(nearest_e4m3(most / 6.0 / static_cast<double>(kFactor)));
    const double scale = static_cast<double>(e4m3_to_float(scales.back()) * kFactor);
    for (std::size_t i = begin; i < begin + 16; ++i) {
      const double wanted = std::fabs(static_cast<double>(weights[i]));
      const auto* nearest =
          std::ranges::min_element(kValues, {}, [&](double value) { return std::fabs(value * scale - wanted); });
      auto code = static_cast<unsigned>(nearest - kValues);
      out.values.push_back(weights[i] < 0.0F ? -*nearest * scale : *nearest * scale);
      if (weights[i] < 0.0F) code |= 8U;
      pairs[i / 2] = static_cast<std::uint8_t>(pairs[i / 2] | code << (i % 2 * 4));
    }
  }
  out.tensors.push_back(raw(stem + (divides ? ".weight_packed" : ".weight"), "U8", {rows, cols / 2}, pairs));
  out.tensors.push_back(raw(stem + ".weight_scale", "F8_E4M3", {rows, cols / 16}, scales));
  const std::string factor = stem + (divides ? ".weight_global_scale" : ".weight_scale_2");
  out.tensors.push_back(raw(factor, "F32", {1}, std::vector<float>{divides ? 1.0F / kFactor : kFactor}));
  out.tensors.push_back(
      raw(stem + (divides ? ".input_global_scale" : ".input_scale"), "F32", {1}, std::vector<float>{3.0F}));
  return out;
}

void put_awq(const std::string& stem, const Ints& q, FormattedWeight& out) {
  constexpr std::int64_t kOutput[] = {0, 2, 4, 6, 1, 3, 5, 7};  // output of each nibble in a word
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
  const auto ints = [&](int bits, std::int64_t group_size, bool symmetric, bool shuffled) {
    return make_ints(bits, weights, rows, cols, group_size, symmetric, shuffled, out);
  };
  switch (format) {
    case WeightFormat::kFp8Block: return format_fp8(stem, weights, rows, cols, 128);
    case WeightFormat::kFp8Channel: return format_fp8(stem, weights, rows, cols, 1);
    case WeightFormat::kPacked: put_packed(stem, ints(4, 128, true, false), false, out); break;
    case WeightFormat::kPackedZeros: put_packed(stem, ints(4, 32, false, false), true, out); break;
    case WeightFormat::kGptq: put_gptq(stem, ints(4, 128, false, false), out); break;
    case WeightFormat::kGptqOrder: put_gptq(stem, ints(4, 32, false, true), out); break;
    case WeightFormat::kAwq: put_awq(stem, ints(4, 64, false, false), out); break;
    case WeightFormat::kGptq8: put_gptq(stem, ints(8, 128, true, false), out); break;
    case WeightFormat::kGptq3: put_gptq(stem, ints(3, 64, false, true), out); break;
    case WeightFormat::kGptq2: put_gptq(stem, ints(2, 32, false, false), out); break;
    case WeightFormat::kBytes: put_bytes(stem, ints(8, cols, true, false), out); break;
    case WeightFormat::kPacked8: put_packed(stem, ints(8, 128, true, false), false, out); break;
    case WeightFormat::kNvfp4: return format_nvfp4(stem, weights, rows, cols, true);
    case WeightFormat::kNvfp4Times: return format_nvfp4(stem, weights, rows, cols, false);
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
    case WeightFormat::kGptq8:
      return {{"quant_method", "gptq"}, {"bits", 8}, {"group_size", 128}, {"desc_act", false}, {"sym", true}};
    case WeightFormat::kGptq3: return {{"quant_method", "gptq"}, {"bits", 3}, {"group_size", 64}, {"desc_act", true}};
    case WeightFormat::kGptq2: return {{"quant_method", "gptq"}, {"bits", 2}, {"group_size", 32}, {"desc_act", false}};
    case WeightFormat::kBytes: {
      json config = packed_config("int-quantized",
                                  {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}, {"symmetric", true}});
      config["config_groups"]["group_0"]["input_activations"] = {
          {"num_bits", 8}, {"type", "int"}, {"strategy", "token"}, {"dynamic", true}, {"symmetric", true}};
      return config;
    }
    case WeightFormat::kPacked8:
      return packed_config("pack-quantized",
                           {{"num_bits", 8}, {"type", "int"}, {"strategy", "group"}, {"group_size", 128}});
    case WeightFormat::kNvfp4:
      return packed_config("nvfp4-pack-quantized",
                           {{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}});
    case WeightFormat::kNvfp4Times:
      return {{"quant_method", "modelopt"},
              {"quant_algo", "NVFP4"},
              {"kv_cache_scheme", {{"type", "float"}, {"num_bits", 8}}},
              {"ignore", {"lm_head"}},
              {"producer", {{"name", "modelopt"}, {"version", "0.33.0"}}}};
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
