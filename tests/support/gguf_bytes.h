// GgufBytes: writes GGUF files byte by byte, lies included, for tests of readers. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/formats/ggml_types.h"

namespace quire::test {

class GgufBytes {
 public:
  GgufBytes& raw(std::string_view text) {
    for (const char c : text)
      bytes_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  template <class T>
  GgufBytes& put(T value) {
    const auto at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
    return *this;
  }
  GgufBytes& u32(std::uint32_t value) { return put(value); }
  GgufBytes& u64(std::uint64_t value) { return put(value); }
  GgufBytes& text(std::string_view value) { return u64(value.size()).raw(value); }
  GgufBytes& header(std::uint64_t num_tensors, std::uint64_t num_keys, std::uint32_t version = 3) {
    return raw("GGUF").u32(version).u64(num_tensors).u64(num_keys);
  }
  GgufBytes& key(std::string_view name, std::uint32_t type) { return text(name).u32(type); }
  GgufBytes& tensor(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t type,
                    std::uint64_t offset) {
    text(name).u32(static_cast<std::uint32_t>(shape.size()));
    for (const auto dim : shape)
      u64(dim);
    return u32(type).u64(offset);
  }
  GgufBytes& align(std::size_t unit = 32) {
    while (bytes_.size() % unit != 0)
      bytes_.push_back(std::byte{0});
    return *this;
  }
  GgufBytes& zeros(std::size_t count) {
    bytes_.resize(bytes_.size() + count);
    return *this;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace quire::test
