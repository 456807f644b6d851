#include <cstddef>
#include <cstdint>
#include <span>

#include "core/model/layers/checkpoint.h"
#include "tests/fuzz/refusal.h"

// A GGUF file from its first byte to the weights by role and the tokenizer.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quire::fuzz::expect_value_or_line([&] {
    quire::make_gguf_checkpoint(quire::GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz.gguf"), "fuzz.gguf");
  });
  return 0;
}
