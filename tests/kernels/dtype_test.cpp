// Element types: names, sizes, the exactness of the 16-bit conversions and of dequantisation.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "kernels/dtype.h"
#include "kernels/half.h"
#include "tests/kernels/random_data.h"
#include "tests/support/material.h"

namespace quire::test {
namespace {

std::vector<std::byte> decode_base64(const std::string& text) {
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::byte> out;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const std::size_t value = alphabet.find(c);
    if (value == std::string::npos) break;
    bits = (bits << 6) | static_cast<std::uint32_t>(value);
    held += 6;
    if (held >= 8) {
      held -= 8;
      out.push_back(static_cast<std::byte>((bits >> held) & 0xff));
    }
  }
  return out;
}

// The string value of a key in a flat JSON line.
std::string field(const std::string& line, const std::string& key) {
  const std::string opening = "\"" + key + "\":\"";
  const std::size_t at = line.find(opening);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + opening.size();
  return line.substr(begin, line.find('"', begin) - begin);
}

}  // namespace

TEST_CASE("every element type has a name that parses back, in any case") {
  for (const DType type : kAllTypes) {
    std::string name(dtype_info(type).name);
    CHECK(parse_dtype(name) == type);
    for (char& c : name)
      c = static_cast<char>(std::tolower(c));
    CHECK(parse_dtype(name) == type);
  }
  CHECK_FALSE(parse_dtype("Q3_X"));
  CHECK_FALSE(parse_dtype(""));
}

TEST_CASE("bytes follow from the block sizes of GGUF") {
  CHECK(dtype_bytes(DType::kF32, 3) == 12);
  CHECK(dtype_bytes(DType::kQ8_0, 64) == 68);
  CHECK(dtype_bytes(DType::kQ4_K, 512) == 288);
  CHECK(dtype_bytes(DType::kQ6_K, 256) == 210);
}

TEST_CASE("f16 converts exactly both ways for all 65,536 values") {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = f16_to_float(half);
    const int exponent = (half >> 10) & 31;
    if (exponent == 31 && (half & 0x3ff) != 0) {
      if (!std::isnan(value)) FAIL("not a NaN: " << bits);
      continue;
    }
    const double mantissa = (half & 0x3ff) / 1024.0 + (exponent == 0 ? 0.0 : 1.0);
    double expected = std::ldexp(mantissa, (exponent == 0 ? 1 : exponent) - 15);
    if (exponent == 31) expected = HUGE_VAL;
    if ((half & 0x8000) != 0) expected = -expected;
    if (static_cast<double>(value) != expected) FAIL("wrong value of " << bits);
    if (float_to_f16(value) != half) FAIL("does not convert back: " << bits);
  }
}

TEST_CASE("conversions to 16 bits round half to even and saturate to infinity") {
  CHECK(float_to_f16(1.0f + 1.0f / 2048) == 0x3c00);
  CHECK(float_to_f16(1.0f + 3.0f / 2048) == 0x3c02);
  CHECK(float_to_f16(65519.0f) == 0x7bff);
  CHECK(float_to_f16(65520.0f) == 0x7c00);
  CHECK(float_to_f16(std::ldexp(1.0f, -25)) == 0);
  CHECK(float_to_f16(std::ldexp(1.5f, -25)) == 1);
  CHECK(float_to_bf16(1.0f + 1.0f / 256) == 0x3f80);
  CHECK(float_to_bf16(1.0f + 3.0f / 256) == 0x3f82);
  CHECK(std::isnan(bf16_to_float(float_to_bf16(std::nanf("")))));
}

TEST_CASE("dequantisation equals ggml's to the bit") {
  QUIRE_REQUIRE_MATERIAL(path, "gguf-quant/dequant-goldens.jsonl.gz");
  std::map<std::string, int> checked;
  for (const std::string& line : read_lines(path)) {
    const auto type = parse_dtype(field(line, "type"));
    if (!type) continue;
    const std::vector<std::byte> blocks = decode_base64(field(line, "bytes_b64"));
    const std::vector<std::byte> expected = decode_base64(field(line, "dequant_f32_b64"));
    std::vector<float> values(1024);
    REQUIRE(blocks.size() == dtype_bytes(*type, 1024));
    REQUIRE(expected.size() == values.size() * sizeof(float));
    dequantize(*type, blocks.data(), 1024, values.data());
    INFO(field(line, "type") << " " << field(line, "row"));
    CHECK(std::memcmp(values.data(), expected.data(), expected.size()) == 0);
    ++checked[field(line, "type")];
  }
  CHECK(checked.size() == 10);
  for (const auto& [name, count] : checked)
    CHECK(count == 8);
}

}  // namespace quire::test
