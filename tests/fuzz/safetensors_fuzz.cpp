#include "core/model/formats/hf/safetensors.h"

#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/fuzz/refusal.h"

// A safetensors file; every byte that a tensor claims is read.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quire::fuzz::expect_value_or_line([&] {
    unsigned sum = 0;
    for (const auto& tensor : quire::parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz.safetensors")) {
      for (const std::byte byte : tensor.data)
        sum += std::to_integer<unsigned>(byte);
    }
    [[maybe_unused]] volatile const unsigned used = sum;
  });
  return 0;
}
