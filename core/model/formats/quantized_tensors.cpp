#include "core/model/formats/hf/directory_tensors.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/formats/ggml_types.h"
#include "core/model/formats/row_makers.h"
#include "kernels/formats/half.h"

namespace quire {

namespace {

using Dims = std::vector<std::int64_t>;

class Joiner {
 public:
  Joiner(std::vector<StoredTensor> tensors, const QuantConfig& config, const std::string& where)
      : tensors_(std::move(tensors)), config_(config), where_(where) {
    for (const StoredTensor& tensor : tensors_)
      by_name_.emplace(tensor.name, &tensor);
  }

  std::vector<StoredTensor> join() {
    std::vector<StoredTensor> out;
    for (const StoredTensor& tensor : tensors_) {
      if (auto joined = joined_by(tensor)) out.push_back(std::move(*joined));
    }
    std::ranges::move(added_, std::back_inserter(out));
    for (const StoredTensor& tensor : tensors_) {
      if (!used_.contains(tensor.name) && !is_of_cache(tensor)) out.push_back(tensor);
    }
    return out;
  }

 private:
  std::optional<StoredTensor> joined_by(const StoredTensor& tensor) {
    const auto stem_of = [&](std::string_view suffix) -> std::optional<std::string> {
      if (!tensor.name.ends_with(suffix)) return std::nullopt;
      return tensor.name.substr(0, tensor.name.size() - suffix.size());
    };
    switch (config_.method) {
      case QuantConfig::Method::kNone: break;
      case QuantConfig::Method::kFp8:
        if (tensor.type_name == "F8_E4M3") return join_float8(tensor);
        break;
      case QuantConfig::Method::kPacked:
        if (const auto stem = stem_of(".weight_packed")) return join_packed(*stem, tensor);
        if (const auto stem = stem_of(".weight"); stem && tensor.type_name == "I8") return join_bytes(*stem, tensor);
        break;
      case QuantConfig::Method::kGptq:
      case QuantConfig::Method::kAwq:
        if (const auto stem = stem_of(".qweight")) return join_by_input(*stem, tensor);
        break;
      case QuantConfig::Method::kNvfp4:
        if (tensor.type_name == "F8_E4M3" && stem_of(".weight")) return join_float8(tensor);
        if (tensor.type_name != "U8") break;
        if (const auto stem = stem_of(".weight_packed")) return join_nvfp4(*stem, tensor);
        if (const auto stem = stem_of(".weight")) return join_nvfp4(*stem, tensor);
        break;
      case QuantConfig::Method::kMxfp4:
        if (const auto stem = stem_of("_blocks")) return join_mxfp4(*stem, tensor);
        break;
    }
    return std::nullopt;
  }

  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    throw StartupError(fmt::format("{}: the tensor '{}' {}", where_, printable(name), what));
  }

  const StoredTensor* find(const std::string& name) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return nullptr;
    used_.insert(name);
    return found->second;
  }

  const StoredTensor& require(const std::string& name, const Dims& shape, std::string_view type) {
    const StoredTensor* tensor = find(name);
    if (tensor == nullptr) fail(name, "is missing");
    check(*tensor, shape, type);
    return *tensor;
  }

  void check(const StoredTensor& tensor, const Dims& shape, std::string_view type) const {
    if (tensor.shape != shape) {
      fail(tensor.name,
           fmt::format("has the shape [{}] and not [{}]", fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
    }
    if (!type.empty() && tensor.type_name != type)
      fail(tensor.name, fmt::format("has the type {} and not {}", printable(tensor.type_name), type));
  }

  FloatView floats(const StoredTensor& tensor) const {
    if (!tensor.type || dtype_info(*tensor.type).block_size != 1)
      fail(tensor.name, fmt::format("has the type {}, no float", printable(tensor.type_name)));
    return {*tensor.type, tensor.data.data()};
  }

  Dims require_matrix(const StoredTensor& tensor) {
    if (tensor.shape.size() != 2) fail(tensor.name, "is no matrix");
    check(tensor, tensor.shape, "I32");
    used_.insert(tensor.name);
    return tensor.shape;
  }

  // Columns are cut into blocks of 32, and columns of the same group share a scale.
  std::int64_t group_size_of(const std::string& name, std::int64_t cols) const {
    if (cols % 32 != 0) fail(name, fmt::format("has {} input features, not a multiple of 32", cols));
    const std::int64_t size = config_.group_size == -1 ? cols : config_.group_size;
    if (cols % size != 0)
      fail(name, fmt::format("has {} input features, not a multiple of its groups of {}", cols, size));
    return size;
  }

  StoredTensor joined(const std::string& name, DType type, Dims shape, std::shared_ptr<const RowMaker> maker) const {
    StoredTensor out;
    out.name = name;
    out.type_name = dtype_info(type).name;
    out.type = type;
    out.shape = std::move(shape);
    out.maker = std::move(maker);
    return out;
  }

  StoredTensor join_ints(const std::string& stem, IntTensors tensors, const StoredTensor* order) {
    std::shared_ptr<const std::vector<std::int32_t>> places;
    if (order != nullptr) places = order_of(*order, tensors.group_size);
    if (places && stem.ends_with("embed_tokens")) fail(order->name, "is not supported of an embedding");
    if (places) tensors.order = *places;
    if (tensors.quants.bits == 8) check_bytes(stem, tensors);
    StoredTensor out =
        joined(stem + ".weight", int_type(tensors), {tensors.rows, tensors.cols}, make_int_rows(tensors));
    out.order = std::move(places);
    return out;
  }

  // Eight-bit weights are kept with a 16-bit scale and without a zero.
  void check_bytes(const std::string& stem, const IntTensors& tensors) const {
    constexpr unsigned kMiddle = 128;
    for (std::int64_t row = 0; row < tensors.rows; ++row) {
      for (std::int64_t group = 0; group < tensors.num_groups(); ++group) {
        const float scale = tensors.scale_of(row, group);
        if (tensors.scales.type != DType::kF16 && f16_to_float(float_to_f16(scale)) != scale)
          fail(stem + ".weight", fmt::format("has the scale {}, which a 16-bit float does not hold", scale));
        if (tensors.zeros.words != nullptr && tensors.zero_of(row, group) != kMiddle)
          fail(stem + ".weight", "has eight bits and a zero beside their middle, which is not supported");
      }
    }
  }

  // Input features sorted by their group; null if they are already in order.
  std::shared_ptr<const std::vector<std::int32_t>> order_of(const StoredTensor& index, std::int64_t group_size) const {
    const std::size_t cols = index.data.size() / sizeof(std::int32_t);
    std::vector<std::int32_t> group(cols);
    std::memcpy(group.data(), index.data.data(), index.data.size());
    auto order = std::make_shared<std::vector<std::int32_t>>(cols);
    std::iota(order->begin(), order->end(), 0);
    if (std::ranges::is_sorted(group) && is_even(group, *order, group_size)) return nullptr;
    std::ranges::stable_sort(*order, {}, [&](std::int32_t col) { return group[static_cast<std::size_t>(col)]; });
    if (!is_even(group, *order, group_size))
      fail(index.name, fmt::format("does not put {} input features into each group", group_size));
    return order;
  }

  static bool is_even(const std::vector<std::int32_t>& group, const std::vector<std::int32_t>& order,
                      std::int64_t group_size) {
    for (std::size_t place = 0; place < order.size(); ++place) {
      const auto wanted = static_cast<std::int32_t>(static_cast<std::int64_t>(place) / group_size);
      if (group[static_cast<std::size_t>(order[place])] != wanted) return false;
    }
    return true;
  }

  StoredTensor join_packed(const std::string& stem, const StoredTensor& words);
  StoredTensor join_bytes(const std::string& stem, const StoredTensor& bytes);
  StoredTensor join_by_input(const std::string& stem, const StoredTensor& words);
  StoredTensor join_nvfp4(const std::string& stem, const StoredTensor& pairs);
  // Marks the scales of activations or the cache as used: both stay more precise.
  void leave_activations(const std::string& stem) {
    for (const char* suffix : {".input_scale", ".input_zero_point", ".input_global_scale"})
      find(stem + suffix);
  }
  static bool is_of_cache(const StoredTensor& tensor) {
    return tensor.name.ends_with(".k_scale") || tensor.name.ends_with(".v_scale");
  }
  StoredTensor join_float8(const StoredTensor& weight);
  StoredTensor join_mxfp4(const std::string& stem, const StoredTensor& blocks);

  std::vector<StoredTensor> tensors_;
  const QuantConfig& config_;
  const std::string& where_;
  std::map<std::string, const StoredTensor*> by_name_;
  std::set<std::string> used_;
  std::vector<StoredTensor> added_;
};

StoredTensor Joiner::join_packed(const std::string& stem, const StoredTensor& words) {
  const Dims shape = require_matrix(words);
  const int bits = config_.bits;
  const std::int64_t per_word = 32 / bits;
  const std::int64_t rows = shape[0];
  const std::int64_t cols = shape[1] * per_word;
  IntTensors out{.rows = rows, .cols = cols, .group_size = group_size_of(words.name, cols)};
  out.quants = {.words = words.data.data(), .bits = bits, .stream_stride = shape[1]};
  const std::int64_t groups = out.num_groups();
  out.scales = floats(require(stem + ".weight_scale", {rows, groups}, ""));
  if (by_name_.contains(stem + ".weight_zero_point")) {
    const Dims wanted{(rows + per_word - 1) / per_word, groups};
    const StoredTensor& zeros = require(stem + ".weight_zero_point", wanted, "I32");
    out.zeros = {.words = zeros.data.data(), .bits = bits, .word_stride = groups, .stream_stride = 1};
  }
  find(stem + ".weight_shape");
  leave_activations(stem);
  const std::string index = stem + ".weight_g_idx";
  return join_ints(stem, out, by_name_.contains(index) ? &require(index, {cols}, "I32") : nullptr);
}

// Joins weights of a signed byte each.
StoredTensor Joiner::join_bytes(const std::string& stem, const StoredTensor& bytes) {
  used_.insert(bytes.name);
  if (bytes.shape.size() != 2) fail(bytes.name, "is no matrix");
  const std::int64_t rows = bytes.shape[0];
  const std::int64_t cols = bytes.shape[1];
  IntTensors out{.rows = rows, .cols = cols, .group_size = group_size_of(bytes.name, cols)};
  out.quants = {.words = bytes.data.data(), .bits = 8, .stream_stride = cols / 4, .is_signed = true};
  const std::string scale = stem + ".weight_scale";
  const StoredTensor* stored = find(scale);
  if (stored == nullptr) fail(scale, "is missing");
  // A matrix with a single scale uses it for every row.
  const bool is_single = stored->shape.empty() || stored->shape == Dims{1};
  if (!is_single) check(*stored, {rows, out.num_groups()}, "");
  out.scales = floats(*stored);
  out.has_one_scale = is_single;
  if (find(stem + ".weight_zero_point") != nullptr)
    fail(stem + ".weight_zero_point", "is not supported of weights of eight bits");
  leave_activations(stem);
  return join_ints(stem, out, nullptr);
}

// Joins GPTQ and AWQ, which put input features first: GPTQ's words hold input features, AWQ's outputs.
StoredTensor Joiner::join_by_input(const std::string& stem, const StoredTensor& words) {
  const Dims shape = require_matrix(words);
  const bool is_awq = config_.method == QuantConfig::Method::kAwq;
  const int bits = config_.bits;
  const std::int64_t rows = is_awq ? shape[1] * 32 / bits : shape[1];
  const std::int64_t cols = is_awq ? shape[0] : shape[0] * 32 / bits;
  if (rows * bits % 32 != 0)
    fail(words.name, fmt::format("has {} outputs, whose zeros of {} bits fill no whole words", rows, bits));
  const std::int64_t row_words = rows * bits / 32;
  IntTensors out{.rows = rows, .cols = cols, .group_size = group_size_of(words.name, cols)};
  out.by_input = is_awq;
  out.quants = {.words = words.data.data(), .bits = bits, .is_awq = is_awq};
  out.quants.word_stride = is_awq ? 1 : rows;
  out.quants.stream_stride = is_awq ? row_words : 1;
  const std::int64_t groups = out.num_groups();
  out.scales = floats(require(stem + ".scales", {groups, rows}, ""));
  out.scales_by_group = true;
  const StoredTensor& zeros = require(stem + ".qzeros", {groups, row_words}, "I32");
  out.zeros = {.words = zeros.data.data(), .bits = bits, .stream_stride = row_words, .is_awq = is_awq};
  out.zeros_less_one = config_.zeros_less_one;
  const std::string index = stem + ".g_idx";
  const bool has_order = !is_awq && by_name_.contains(index);
  return join_ints(stem, out, has_order ? &require(index, {cols}, "I32") : nullptr);
}

StoredTensor Joiner::join_float8(const StoredTensor& weight) {
  used_.insert(weight.name);
  if (weight.shape.size() < 2 || weight.shape.size() > 3) fail(weight.name, "is no matrix");
  const std::int64_t rows = weight.shape[weight.shape.size() - 2];
  const std::int64_t cols = weight.shape.back();
  if (cols % 32 != 0) fail(weight.name, fmt::format("has {} input features, not a multiple of 32", cols));
  Float8Tensors out{.rows = rows, .cols = cols, .data = weight.data.data()};
  const std::string scale_name = weight.name + (by_name_.contains(weight.name + "_scale") ? "_scale" : "_scale_inv");
  const StoredTensor* scale = find(scale_name);
  if (scale == nullptr) fail(weight.name, "has neither a '_scale' nor a '_scale_inv' beside it");
  out.scales = floats(*scale);
  Dims wanted = weight.shape;
  const std::int64_t num_scales = num_elements(scale->shape);
  if (config_.block_cols > 0) {
    out.block_rows = config_.block_rows;
    out.block_cols = config_.block_cols;
    wanted[wanted.size() - 2] = (rows + out.block_rows - 1) / out.block_rows;
    wanted.back() = (cols + out.block_cols - 1) / out.block_cols;
    check(*scale, wanted, "");
  } else {
    out.block_cols = cols;
    out.block_rows = num_scales == 1 ? rows : 1;
    wanted.back() = 1;
    if (num_scales != 1 && scale->shape != Dims(wanted.begin(), wanted.end() - 1)) check(*scale, wanted, "");
    if (num_scales == 1 && weight.shape.size() != 2) fail(scale_name, "is one scale for several matrices");
  }
  leave_activations(weight.name.substr(0, weight.name.size() - std::string_view(".weight").size()));
  return joined(weight.name, DType::kF8, weight.shape, make_float8_rows(out));
}

// Stores the whole matrix's factor beside it, under GGUF's name.
StoredTensor Joiner::join_nvfp4(const std::string& stem, const StoredTensor& pairs) {
  used_.insert(pairs.name);
  if (pairs.shape.size() != 2) fail(pairs.name, "is no matrix");
  const std::int64_t rows = pairs.shape[0];
  const std::int64_t cols = pairs.shape[1] * 2;
  if (cols % 64 != 0) fail(pairs.name, fmt::format("has {} input features, not a multiple of 64", cols));
  const StoredTensor& scales = require(stem + ".weight_scale", {rows, cols / 16}, "F8_E4M3");
  const StoredTensor* divisor = find(stem + ".weight_global_scale");
  const StoredTensor* factor = divisor == nullptr ? find(stem + ".weight_scale_2") : divisor;
  if (factor == nullptr) fail(pairs.name, "has neither a '_global_scale' nor a '_scale_2' beside it");
  if (!factor->shape.empty() && factor->shape != Dims{1}) check(*factor, {1}, "");
  const float stored = floats(*factor)[0];
  const float scale = divisor != nullptr ? 1.0F / stored : stored;
  if (!(scale > 0.0F) || !std::isfinite(scale)) fail(factor->name, "is no positive number");
  added_.push_back(float_tensor(stem + ".scale", {1}, {scale}));
  leave_activations(stem);
  return joined(stem + ".weight", DType::kNVFP4, {rows, cols},
                make_nvfp4_rows(cols, pairs.data.data(), scales.data.data()));
}

StoredTensor Joiner::join_mxfp4(const std::string& stem, const StoredTensor& blocks) {
  used_.insert(blocks.name);
  if (blocks.shape.size() < 3 || blocks.shape.back() != 16) fail(blocks.name, "has no blocks of 16 bytes");
  check(blocks, blocks.shape, "U8");
  Dims shape(blocks.shape.begin(), blocks.shape.end() - 1);
  const StoredTensor& scales = require(stem + "_scales", shape, "U8");
  shape.back() *= 32;
  auto maker = make_mxfp4_rows(shape.back(), blocks.data.data(), scales.data.data());
  return joined(stem, DType::kMXFP4, std::move(shape), std::move(maker));
}

}  // namespace

std::vector<StoredTensor> join_quantized(std::vector<StoredTensor> tensors, const QuantConfig& config,
                                         const std::string& where) {
  if (config.method == QuantConfig::Method::kNone) return tensors;
  return Joiner(std::move(tensors), config, where).join();
}

}  // namespace quire
