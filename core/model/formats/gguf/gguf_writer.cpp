#include "core/model/formats/gguf/gguf_writer.h"

#include <fmt/core.h>

#include <cstring>
#include <type_traits>
#include <utility>

#include "core/base/result.h"
#include "core/model/formats/ggml_types.h"
#include "kernels/check.h"

namespace quire {

namespace {

constexpr std::uint64_t kTensorAlignment = 32;

template <class T>
void put(std::vector<std::byte>& out, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto at = out.size();
  out.resize(at + sizeof value);
  std::memcpy(out.data() + at, &value, sizeof value);
}

void put_text(std::vector<std::byte>& out, std::string_view text) {
  put(out, std::uint64_t{text.size()});
  const auto bytes = std::as_bytes(std::span(text));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace

GgufWriter::GgufWriter(std::filesystem::path path)
    : path_(std::move(path)),
      partial_(path_.string() + ".partial"),
      out_(partial_, std::ios::binary | std::ios::trunc) {
  if (!out_) throw StartupError(fmt::format("{}: cannot be written", partial_.string()));
}

GgufWriter::~GgufWriter() {
  if (finished_) return;
  out_.close();
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
}

void GgufWriter::key(std::string_view name, std::uint32_t type) {
  put_text(metadata_, name);
  put(metadata_, type);
  ++num_keys_;
}

void GgufWriter::array(std::string_view name, std::uint32_t type, std::size_t count) {
  key(name, kGgufArray);
  put(metadata_, type);
  put(metadata_, std::uint64_t{count});
}

void GgufWriter::set(std::string_view name, std::uint32_t value) {
  key(name, kGgufU32);
  put(metadata_, value);
}

void GgufWriter::set(std::string_view name, float value) {
  key(name, kGgufF32);
  put(metadata_, value);
}

void GgufWriter::set(std::string_view name, bool value) {
  key(name, kGgufBool);
  put(metadata_, std::uint8_t{value});
}

void GgufWriter::set(std::string_view name, std::string_view value) {
  key(name, kGgufString);
  put_text(metadata_, value);
}

void GgufWriter::set(std::string_view name, std::span<const std::string> values) {
  array(name, kGgufString, values.size());
  for (const std::string& value : values)
    put_text(metadata_, value);
}

void GgufWriter::set(std::string_view name, std::span<const std::int32_t> values) {
  array(name, kGgufI32, values.size());
  for (const std::int32_t value : values)
    put(metadata_, value);
}

void GgufWriter::set(std::string_view name, std::span<const float> values) {
  array(name, kGgufF32, values.size());
  for (const float value : values)
    put(metadata_, value);
}

void GgufWriter::declare(std::string_view name, std::span<const std::int64_t> shape, DType type) {
  put_text(tensor_table_, name);
  put(tensor_table_, static_cast<std::uint32_t>(shape.size()));
  for (const std::int64_t dim : shape)
    put(tensor_table_, static_cast<std::uint64_t>(dim));
  put(tensor_table_, ggml_type_number(type));
  put(tensor_table_, next_offset_);
  tensor_bytes_.push_back(dtype_bytes(type, num_elements(shape)));
  next_offset_ = (next_offset_ + tensor_bytes_.back() + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

void GgufWriter::write(std::span<const std::byte> bytes) {
  out_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  position_ += bytes.size();
}

void GgufWriter::pad_to_alignment() {
  static constexpr std::byte kZeros[kTensorAlignment] = {};
  write(std::span(kZeros).first((kTensorAlignment - position_ % kTensorAlignment) % kTensorAlignment));
}

void GgufWriter::begin_data() {
  std::vector<std::byte> header;
  put(header, kGgufMagic);
  put(header, std::uint32_t{3});
  put(header, std::uint64_t{tensor_bytes_.size()});
  put(header, num_keys_);
  write(header);
  write(metadata_);
  write(tensor_table_);
  pad_to_alignment();
}

void GgufWriter::append(std::span<const std::byte> bytes) {
  QUIRE_CHECK(tensor_ < tensor_bytes_.size() && written_of_tensor_ + bytes.size() <= tensor_bytes_[tensor_],
              "data comes in the order and the sizes that were declared");
  write(bytes);
  written_of_tensor_ += bytes.size();
  if (written_of_tensor_ == tensor_bytes_[tensor_]) {
    ++tensor_;
    written_of_tensor_ = 0;
    pad_to_alignment();
  }
}

void GgufWriter::finish() {
  QUIRE_CHECK(tensor_ == tensor_bytes_.size(), "every declared tensor was written");
  out_.close();
  if (!out_)
    throw StartupError(fmt::format("{}: could not be written to its end (is the disk full?)", partial_.string()));
  std::filesystem::rename(partial_, path_);
  finished_ = true;
}

}  // namespace quire
