#include "core/model/formats/tensor_table.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/formats/ggml_types.h"
#include "core/model/formats/gguf/gguf.h"

namespace quire {

StoredTensor float_tensor(std::string name, std::vector<std::int64_t> shape, std::vector<float> values) {
  auto kept = std::make_shared<std::vector<float>>(std::move(values));
  StoredTensor out;
  out.name = std::move(name);
  out.type_name = "F32";
  out.type = DType::kF32;
  out.shape = std::move(shape);
  out.data = std::as_bytes(std::span(*kept));
  out.owner = std::move(kept);
  return out;
}

TensorTable::TensorTable(std::string where, std::vector<StoredTensor> tensors)
    : where_(std::move(where)), tensors_(std::move(tensors)), taken_(tensors_.size()) {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    by_name_.emplace(tensors_[i].name, i);
}

const StoredTensor& TensorTable::find(const std::string& name) const {
  const auto found = by_name_.find(stored_name(name));
  if (found == by_name_.end())
    throw StartupError(fmt::format("{}: the tensor '{}' is missing", where_, stored_name(name)));
  return tensors_[found->second];
}

const std::vector<std::int64_t>& TensorTable::shape_of(const std::string& name) const {
  return find(name).shape;
}

namespace {

// Whether the shapes differ only in dimensions of 1, which change neither the number of elements nor their order.
bool are_alike(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  const auto without_ones = [](std::vector<std::int64_t> shape) {
    std::erase(shape, 1);
    return shape;
  };
  return a == b || without_ones(a) == without_ones(b);
}

}  // namespace

const StoredTensor& TensorTable::take(const std::string& name, const std::vector<std::int64_t>& shape) {
  const StoredTensor& tensor = find(name);
  if (!are_alike(tensor.shape, shape)) {
    throw StartupError(fmt::format("{}: the tensor '{}' has the shape [{}], and the model's configuration needs [{}]",
                                   where_, tensor.name, fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
  }
  if (!tensor.type) {
    throw StartupError(
        fmt::format("{}: the tensor '{}' has the type {}, which is not supported (supported: F32, F16, BF16, Q8_0, "
                    "Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ1 to IQ4, MXFP4, NVFP4, TQ1_0, TQ2_0, Q1_0, Q2_0)",
                    where_, tensor.name, tensor.type_name));
  }
  taken_[static_cast<std::size_t>(&tensor - tensors_.data())] = true;
  return tensor;
}

WeightSource TensorTable::take_matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
  WeightSource source = source_of(take(name, {rows, cols}), rows, cols);
  source.scale = take_scale_of(name);
  return source;
}

float TensorTable::take_scale_of(const std::string& name) {
  constexpr std::string_view kSuffix = ".weight";
  if (!name.ends_with(kSuffix)) return 1.0F;
  const std::string companion = name.substr(0, name.size() - kSuffix.size()) + ".scale";
  if (!contains(companion) || shape_of(companion) != std::vector<std::int64_t>{1}) return 1.0F;
  return take_vector(companion, 1).front();
}

WeightSource TensorTable::source_of(const StoredTensor& tensor, std::int64_t rows, std::int64_t cols) {
  return {.type = *tensor.type,
          .rows = rows,
          .cols = cols,
          .data = tensor.data.data(),
          .maker = tensor.maker.get(),
          .order = tensor.order ? tensor.order->data() : nullptr};
}

WeightSource TensorTable::take_row(const std::string& name, std::int64_t cols) {
  return source_of(take(name, {1, cols}), 1, cols);
}

WeightSource TensorTable::take_flattened(const std::string& name, std::int64_t rows, std::int64_t cols) {
  const std::vector<std::int64_t>& shape = shape_of(name);
  const std::int64_t count = num_elements(shape);
  return source_of(count == rows * cols ? take(name, shape) : take(name, {rows, cols}), rows, cols);
}

WeightSource TensorTable::take_experts(const std::string& name, std::int64_t experts, std::int64_t rows,
                                       std::int64_t cols) {
  return source_of(take(name, {experts, rows, cols}), experts * rows, cols);
}

std::vector<float> TensorTable::take_values(const std::string& name, std::int64_t size) {
  const std::vector<std::int64_t>& shape = shape_of(name);
  const std::int64_t count = num_elements(shape);
  const StoredTensor& tensor = count == size ? take(name, shape) : take(name, {size});
  std::vector<float> values(static_cast<std::size_t>(size));
  dequantize(*tensor.type, tensor.data.data(), size, values.data());
  if (adjust_) adjust_(name, values);
  return values;
}

void TensorTable::add(StoredTensor tensor) {
  by_name_.emplace(tensor.name, tensors_.size());
  tensors_.push_back(std::move(tensor));
  taken_.push_back(false);
}

void TensorTable::ignore(const std::string& prefix, const std::string& part) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (taken_[i] || !tensors_[i].name.starts_with(prefix)) continue;
    taken_[i] = true;
    if (!part.empty()) parts_left_out_.insert(part);
  }
}

std::vector<float> TensorTable::take_vector(const std::string& name, std::int64_t size) {
  const StoredTensor& tensor = take(name, {size});
  std::vector<float> values(static_cast<std::size_t>(size));
  dequantize(*tensor.type, tensor.data.data(), size, values.data());
  if (adjust_) adjust_(name, values);
  return values;
}

void TensorTable::refuse_unused(const std::string& architecture) const {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (taken_[i]) continue;
    throw StartupError(fmt::format("{}: the tensor '{}' is not part of the architecture {} as Quire computes it",
                                   where_, printable(tensors_[i].name), architecture));
  }
}

TensorTable gguf_tensor_table(const GgufFile& file, const std::string& where) {
  std::vector<StoredTensor> tensors;
  for (const GgufTensor& tensor : file.tensors()) {
    StoredTensor& stored = tensors.emplace_back();
    stored.name = tensor.name;
    stored.type = tensor.type;
    stored.type_name =
        tensor.type ? std::string(dtype_info(*tensor.type).name) : fmt::format("number {}", tensor.ggml_type);
    // Ignores trailing dimensions of 1, which some writers add.
    const auto last = std::ranges::find_if(tensor.shape.rbegin(), tensor.shape.rend() - 1,
                                           [](std::int64_t size) { return size != 1; });
    stored.shape.assign(last, tensor.shape.rend());
    stored.data = tensor.data;
  }
  return {where, std::move(tensors)};
}

}  // namespace quire
