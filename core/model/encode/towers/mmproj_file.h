// MmprojFile: a GGUF file with a tower and its projector: keys under "clip." and tensors. One thread at a time.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/model/formats/gguf/gguf.h"
#include "core/model/formats/tensor_table.h"

namespace quire {

class MmprojFile {
 public:
  // Throws StartupError where the file is not an mmproj file with a vision tower.
  static MmprojFile open(const std::filesystem::path& path);
  explicit MmprojFile(std::shared_ptr<const GgufFile> file);

  const std::string& where() const { return file_->where(); }
  const std::shared_ptr<const GgufFile>& file() const { return file_; }
  TensorTable& tensors() { return tensors_; }
  const TensorTable& tensors() const { return tensors_; }
  const std::string& projector() const { return projector_; }  // clip.vision.projector_type, clip.projector_type

  // Keys without "clip.vision.". Each throws StartupError where a key is of another kind.
  std::int64_t required_integer(const std::string& key) const;
  std::int64_t integer(const std::string& key, std::int64_t otherwise) const;
  double required_number(const std::string& key) const;
  std::vector<std::int64_t> integers(const std::string& key) const;  // empty where absent
  std::vector<double> numbers(const std::string& key) const;
  // Keys that begin with "clip." alone.
  bool general_flag(const std::string& key) const;
  std::int64_t general_integer(const std::string& key, std::int64_t otherwise) const;

  bool has(const std::string& tensor) const { return tensors_.contains(tensor); }
  [[noreturn]] void fail(const std::string& what) const;

 private:
  std::shared_ptr<const GgufFile> file_;
  TensorTable tensors_;
  std::string projector_;
};

}  // namespace quire
