#include "core/model/formats/quantized_tensors.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/printable.h"
#include "core/base/result.h"
#include "core/model/formats/row_makers.h"

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
    for (const StoredTensor& tensor : tensors_) {
      if (!used_.contains(tensor.name)) out.push_back(tensor);
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
        break;
      case QuantConfig::Method::kGptq:
        if (const auto stem = stem_of(".qweight")) return join_gptq(*stem, tensor);
        break;
      case QuantConfig::Method::kAwq:
        if (const auto stem = stem_of(".qweight")) return join_awq(*stem, tensor);
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

  // Columns are cut into blocks of 32, and columns of one group have one scale.
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

  StoredTensor join_int4(const std::string& stem, Int4Tensors tensors, const StoredTensor* order) {
    std::shared_ptr<const std::vector<std::int32_t>> places;
    if (order != nullptr) places = order_of(*order, tensors.group_size);
    if (places && stem.ends_with("embed_tokens")) fail(order->name, "is not supported of an embedding");
    if (places) tensors.order = *places;
    StoredTensor out = joined(stem + ".weight", int4_type(tensors.group_size, tensors.cols),
                              {tensors.rows, tensors.cols}, make_int4_rows(tensors));
    out.order = std::move(places);
    return out;
  }

  // Input features sorted by their group; null where they lie so already.
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
  StoredTensor join_gptq(const std::string& stem, const StoredTensor& words);
  StoredTensor join_awq(const std::string& stem, const StoredTensor& words);
  StoredTensor join_float8(const StoredTensor& weight);
  StoredTensor join_mxfp4(const std::string& stem, const StoredTensor& blocks);

  std::vector<StoredTensor> tensors_;
  const QuantConfig& config_;
  const std::string& where_;
  std::map<std::string, const StoredTensor*> by_name_;
  std::set<std::string> used_;
};

StoredTensor Joiner::join_packed(const std::string& stem, const StoredTensor& words) {
  const Dims shape = require_matrix(words);
  const std::int64_t rows = shape[0];
  const std::int64_t cols = shape[1] * 8;
  Int4Tensors out{.layout = Int4Tensors::Layout::kRows,
                  .rows = rows,
                  .cols = cols,
                  .group_size = group_size_of(words.name, cols),
                  .words = words.data.data()};
  const std::int64_t groups = cols / out.group_size;
  out.scales = floats(require(stem + ".weight_scale", {rows, groups}, ""));
  if (by_name_.contains(stem + ".weight_zero_point"))
    out.zeros = require(stem + ".weight_zero_point", {(rows + 7) / 8, groups}, "I32").data.data();
  if (by_name_.contains(stem + ".weight_shape")) find(stem + ".weight_shape");
  const std::string index = stem + ".weight_g_idx";
  return join_int4(stem, out, by_name_.contains(index) ? &require(index, {cols}, "I32") : nullptr);
}

StoredTensor Joiner::join_gptq(const std::string& stem, const StoredTensor& words) {
  const Dims shape = require_matrix(words);
  const std::int64_t rows = shape[1];
  const std::int64_t cols = shape[0] * 8;
  if (rows % 8 != 0) fail(words.name, "has outputs that are no multiple of 8");
  Int4Tensors out{.layout = Int4Tensors::Layout::kColumns,
                  .rows = rows,
                  .cols = cols,
                  .group_size = group_size_of(words.name, cols),
                  .words = words.data.data()};
  const std::int64_t groups = cols / out.group_size;
  out.scales = floats(require(stem + ".scales", {groups, rows}, ""));
  out.zeros = require(stem + ".qzeros", {groups, rows / 8}, "I32").data.data();
  out.zeros_less_one = config_.zeros_less_one;
  const std::string index = stem + ".g_idx";
  return join_int4(stem, out, by_name_.contains(index) ? &require(index, {cols}, "I32") : nullptr);
}

StoredTensor Joiner::join_awq(const std::string& stem, const StoredTensor& words) {
  const Dims shape = require_matrix(words);
  const std::int64_t rows = shape[1] * 8;
  const std::int64_t cols = shape[0];
  Int4Tensors out{.layout = Int4Tensors::Layout::kAwq,
                  .rows = rows,
                  .cols = cols,
                  .group_size = group_size_of(words.name, cols),
                  .words = words.data.data()};
  const std::int64_t groups = cols / out.group_size;
  out.scales = floats(require(stem + ".scales", {groups, rows}, ""));
  out.zeros = require(stem + ".qzeros", {groups, rows / 8}, "I32").data.data();
  return join_int4(stem, out, nullptr);
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
  const std::int64_t num_scales =
      std::accumulate(scale->shape.begin(), scale->shape.end(), std::int64_t{1}, std::multiplies<>());
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
  find(weight.name.substr(0, weight.name.size() - std::string_view("weight").size()) + "input_scale");
  return joined(weight.name, DType::kF8, weight.shape, make_float8_rows(out));
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
