// HfTowerFile: keys and tensors in an mmproj file's form that families of hf_tower.cpp add one by one. One thread at a
// time while it is filled; immutable afterwards. Invariant: names are distinct, and data lives as long as the file.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model/formats/gguf/gguf.h"
#include "core/model/formats/hf/safetensors.h"

namespace quire {

class HfTowerFile final : public GgufFile {
 public:
  HfTowerFile(std::string where, std::vector<std::unique_ptr<SafetensorsFile>> files);

  // A key of the file, and one of the tower: clip.vision.
  void set(const std::string& key, GgufValue value) { metadata_[names_.emplace_back(key)] = std::move(value); }
  void set_vision(const std::string& key, GgufValue value) { set("clip.vision." + key, std::move(value)); }
  void set_integer(const std::string& key, std::int64_t value) { set_vision(key, GgufValue(value)); }
  std::string_view keep(std::string text) { return names_.emplace_back(std::move(text)); }

  const std::vector<const StoredTensor*>& stored() const { return stored_; }
  const StoredTensor* stored(const std::string& name) const;  // null where absent
  // Adds the tensor in the form of the files.
  void add(const std::string& name, const StoredTensor& tensor);
  // A row of a matrix, as a vector.
  void add_row(const std::string& name, const StoredTensor& matrix, std::int64_t row);
  // Elements in another order: element i is element from(i) of the tensor.
  void add_reordered(const std::string& name, const StoredTensor& tensor, std::vector<std::int64_t> shape,
                     const std::function<std::int64_t(std::int64_t)>& from);
  // Decoded values, each with `more` added.
  void add_raised(const std::string& name, const StoredTensor& tensor, float more);

  const std::map<std::string_view, GgufValue>& metadata() const override { return metadata_; }
  const std::vector<GgufTensor>& tensors() const override { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const override;
  std::uint32_t version() const override { return 0; }
  std::uint64_t file_bytes() const override { return 0; }
  const std::string& where() const override { return where_; }
  void release(std::span<const std::byte>) const override {}
  [[noreturn]] void fail(const std::string& what) const;

 private:
  void put(const std::string& name, DType type, std::vector<std::int64_t> shape, std::span<const std::byte> data);
  static DType type_of(const StoredTensor& tensor);

  const std::string where_;
  const std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<const StoredTensor*> stored_;
  std::deque<std::string> names_;
  std::deque<std::vector<std::byte>> made_;
  std::map<std::string_view, GgufValue> metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace quire
