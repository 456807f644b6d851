#include "core/model/encode/towers/hf_tower_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "core/base/result.h"
#include "core/model/formats/ggml_types.h"

namespace quire {

HfTowerFile::HfTowerFile(std::string where, std::vector<std::unique_ptr<SafetensorsFile>> files)
    : where_(std::move(where)), files_(std::move(files)) {
  for (const auto& file : files_) {
    for (const StoredTensor& tensor : file->tensors())
      stored_.push_back(&tensor);
  }
}

void HfTowerFile::fail(const std::string& what) const {
  throw StartupError(fmt::format("{}: {}", where_, what));
}

const StoredTensor* HfTowerFile::stored(const std::string& name) const {
  const auto found = std::ranges::find_if(stored_, [&](const StoredTensor* tensor) { return tensor->name == name; });
  return found == stored_.end() ? nullptr : *found;
}

const GgufTensor* HfTowerFile::find_tensor(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &GgufTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

void HfTowerFile::put(const std::string& name, DType type, std::vector<std::int64_t> shape,
                      std::span<const std::byte> data) {
  if (find_tensor(name) != nullptr) fail(fmt::format("two tensors of the tower are '{}'", name));
  if (shape.empty()) shape = {1};
  std::ranges::reverse(shape);
  tensors_.push_back({names_.emplace_back(name), ggml_type_number(type), type, std::move(shape), data});
}

DType HfTowerFile::type_of(const StoredTensor& tensor) {
  const bool is_float = tensor.type && dtype_info(*tensor.type).block_size == 1 && !tensor.data.empty();
  if (is_float) return *tensor.type;
  throw StartupError(
      fmt::format("the tower's tensor '{}' has the type {}: towers of floats are read", tensor.name, tensor.type_name));
}

void HfTowerFile::add(const std::string& name, const StoredTensor& tensor) {
  put(name, type_of(tensor), tensor.shape, tensor.data);
}

void HfTowerFile::add_row(const std::string& name, const StoredTensor& matrix, std::int64_t row) {
  const DType type = type_of(matrix);
  if (matrix.shape.size() != 2 || row < 0 || row >= matrix.shape[0])
    fail(fmt::format("the tensor '{}' has no row {}", matrix.name, row));
  const std::size_t bytes = dtype_bytes(type, matrix.shape[1]);
  put(name, type, {matrix.shape[1]}, matrix.data.subspan(static_cast<std::size_t>(row) * bytes, bytes));
}

void HfTowerFile::add_reordered(const std::string& name, const StoredTensor& tensor, std::vector<std::int64_t> shape,
                                const std::function<std::int64_t(std::int64_t)>& from) {
  const DType type = type_of(tensor);
  const std::size_t size = dtype_bytes(type, 1);
  const std::int64_t count = num_elements(shape);
  std::vector<std::byte>& out = made_.emplace_back(static_cast<std::size_t>(count) * size);
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(out.data() + static_cast<std::size_t>(i) * size,
                tensor.data.data() + static_cast<std::size_t>(from(i)) * size, size);
  put(name, type, std::move(shape), out);
}

void HfTowerFile::add_raised(const std::string& name, const StoredTensor& tensor, float more) {
  std::vector<float> values(static_cast<std::size_t>(num_elements(tensor.shape)));
  dequantize(type_of(tensor), tensor.data.data(), std::ssize(values), values.data());
  for (float& value : values)
    value += more;
  std::vector<std::byte>& out = made_.emplace_back(values.size() * sizeof(float));
  std::memcpy(out.data(), values.data(), out.size());
  put(name, DType::kF32, tensor.shape, out);
}

}  // namespace quire
