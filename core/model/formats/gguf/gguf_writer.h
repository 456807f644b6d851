// GgufWriter: writes a GGUF v3 file front to back without holding it in memory. One thread at a time.
// Order of calls: set(...)*, declare(...)*, begin_data(), append(...)*, finish(). The file appears under its name at
// finish(); until then, and after a failure, only a ".partial" beside it. Source: the GGUF specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/formats/dtype.h"

namespace quire {

class GgufWriter {
 public:
  // Throws StartupError if the path cannot be written.
  explicit GgufWriter(std::filesystem::path path);
  ~GgufWriter();
  GgufWriter(const GgufWriter&) = delete;
  GgufWriter& operator=(const GgufWriter&) = delete;

  void set(std::string_view key, std::uint32_t value);
  void set(std::string_view key, float value);
  void set(std::string_view key, bool value);
  void set(std::string_view key, std::string_view value);
  void set(std::string_view key, const char* value) { set(key, std::string_view(value)); }
  void set(std::string_view key, std::span<const std::string> values);
  void set(std::string_view key, std::span<const std::int32_t> values);
  void set(std::string_view key, std::span<const float> values);

  // shape in ggml's order: shape[0] is the contiguous dimension.
  void declare(std::string_view name, std::span<const std::int64_t> shape, DType type);
  void begin_data();
  // The bytes of the declared tensors in their order; one tensor may come in several pieces, a piece never spans two.
  void append(std::span<const std::byte> bytes);
  // Throws StartupError if the disk did not accept everything.
  void finish();

 private:
  void key(std::string_view name, std::uint32_t type);
  void array(std::string_view name, std::uint32_t type, std::size_t count);
  void pad_to_alignment();
  void write(std::span<const std::byte> bytes);

  std::filesystem::path path_;
  std::filesystem::path partial_;
  std::ofstream out_;
  std::vector<std::byte> metadata_;
  std::vector<std::byte> tensor_table_;
  std::uint64_t num_keys_ = 0;
  std::vector<std::size_t> tensor_bytes_;
  std::uint64_t next_offset_ = 0;
  std::size_t tensor_ = 0;
  std::size_t written_of_tensor_ = 0;
  std::uint64_t position_ = 0;
  bool finished_ = false;
};

}  // namespace quire
