// TensorTable: the named tensors of a model's files, GGUF or safetensors, with a mark on those that the model uses. One
// thread at a time. Invariant: the take_...() functions return only tensors of the requested shape and of a type that
// Quire computes with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace quire {

class GgufFile;

struct StoredTensor {
  std::string name;
  std::string type_name;            // name in the file
  std::optional<DType> type;        // absent: a type that Quire does not compute with
  std::vector<std::int64_t> shape;  // outermost dimension first: a matrix is [rows, cols]
  std::span<const std::byte> data;
  std::shared_ptr<const void> owner = {};  // owner of data outside the files
  // Replaces data if several tensors of the file make up this one: see WeightSource.
  std::shared_ptr<const RowMaker> maker = nullptr;
  std::shared_ptr<const std::vector<std::int32_t>> order = nullptr;
};

// A tensor of f32 that owns its values.
StoredTensor float_tensor(std::string name, std::vector<std::int64_t> shape, std::vector<float> values);

class TensorTable {
 public:
  // `where` begins every message: the model's path.
  TensorTable(std::string where, std::vector<StoredTensor> tensors);

  // Names are GGUF's; `rename` returns this file's name.
  void set_names(std::function<std::string(const std::string&)> rename) { rename_ = std::move(rename); }

  // Changes the values that take_vector and take_values decode, by name.
  void set_adjustment(std::function<void(const std::string&, std::vector<float>&)> adjust) {
    adjust_ = std::move(adjust);
  }
  // Adds a tensor under GGUF's name that the files hold in another form.
  void add(StoredTensor tensor);
  const StoredTensor& stored(const std::string& name) const { return find(name); }

  bool contains(const std::string& name) const { return by_name_.contains(stored_name(name)); }
  // Takes the file's own name.
  bool stores(const std::string& name) const { return by_name_.contains(name); }
  // The shape without taking the tensor; throws StartupError if it is absent.
  const std::vector<std::int64_t>& shape_of(const std::string& name) const;

  // Each throws StartupError if the tensor is absent, of another shape or of an unsupported type.
  WeightSource take_matrix(const std::string& name, std::int64_t rows, std::int64_t cols);
  WeightSource take_row(const std::string& name, std::int64_t cols);  // a vector or a matrix of one row
  WeightSource take_flattened(const std::string& name, std::int64_t rows, std::int64_t cols);  // any dimensions
  WeightSource take_experts(const std::string& name, std::int64_t experts, std::int64_t rows, std::int64_t cols);
  std::vector<float> take_vector(const std::string& name, std::int64_t size);  // decoded
  std::vector<float> take_values(const std::string& name, std::int64_t size);  // decoded, of any shape
  // Marks the tensors that begin with `prefix` as taken. `part`: name for people of the part that the model leaves out;
  // empty if the tensors are used in another form.
  void ignore(const std::string& prefix, const std::string& part = "");
  const std::set<std::string>& parts_left_out() const { return parts_left_out_; }

  // Adds a warning for people: a setting of the files that the model does not apply.
  void warn(std::string what) { warnings_.push_back(std::move(what)); }
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Throws StartupError naming a tensor that was never taken: without it the model would compute something else.
  void refuse_unused(const std::string& architecture) const;

  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::string& where() const { return where_; }

 private:
  std::string stored_name(const std::string& name) const {
    return rename_ && !by_name_.contains(name) ? rename_(name) : name;
  }
  const StoredTensor& find(const std::string& name) const;
  const StoredTensor& take(const std::string& name, const std::vector<std::int64_t>& shape);
  static WeightSource source_of(const StoredTensor& tensor, std::int64_t rows, std::int64_t cols);
  // The matrix's factor in "<stem>.scale" beside "<stem>.weight", found in files with NVFP4; else 1.
  float take_scale_of(const std::string& name);

  std::string where_;
  std::function<std::string(const std::string&)> rename_;
  std::function<void(const std::string&, std::vector<float>&)> adjust_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::size_t> by_name_;
  std::vector<bool> taken_;
  std::set<std::string> parts_left_out_;
  std::vector<std::string> warnings_;
};

// The tensors of a GGUF file, as views of its bytes.
TensorTable gguf_tensor_table(const GgufFile& file, const std::string& where);

// Names of the parts of a model's files that the text model does not compute.
inline constexpr const char* kVisionPart = "a vision tower";
inline constexpr const char* kAudioPart = "an audio tower";

}  // namespace quire
