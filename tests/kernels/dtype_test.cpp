// Element types: names, sizes, the exactness of the 16-bit conversions and of dequantisation.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "kernels/formats/dtype.h"
#include "kernels/formats/half.h"
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

// Compares bits, except for the kind of NaN: infinity times zero has another sign on arm64 than on x86-64.
bool same_numbers(const std::vector<float>& values, const std::vector<std::byte>& expected) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    float other = 0.0f;
    std::memcpy(&other, expected.data() + i * sizeof other, sizeof other);
    const bool both_nan = std::isnan(values[i]) && std::isnan(other);
    if (!both_nan && std::memcmp(&values[i], &other, sizeof other) != 0) return false;
  }
  return true;
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
    CHECK(same_numbers(values, expected));
    ++checked[field(line, "type")];
  }
  CHECK(checked.size() == 14);
  for (const auto& [name, count] : checked)
    CHECK(count == 8);
}

// 32,768 values of random blocks with sane scales; the expected hashes are of ggml's decoding of the same bytes.
namespace {

struct DecodedHash {
  DType type;
  std::uint64_t hash;
};

constexpr DecodedHash kDecoded[] = {
    {DType::kIQ4_NL, 0x9a80ee72bfb1b325ull},  {DType::kIQ4_XS, 0x218c5f19029dd1e5ull},
    {DType::kQ3_K, 0x8dcc1a9b12a26c25ull},    {DType::kQ2_K, 0x21771c62b7f53ba5ull},
    {DType::kMXFP4, 0x6ccb7acd1b4c2325ull},   {DType::kNVFP4, 0xd0fc7523a4d02325ull},
    {DType::kIQ3_XXS, 0x5e8bd4e0da0168d5ull}, {DType::kIQ3_S, 0x881f38e1c2127e85ull},
    {DType::kIQ2_XXS, 0x61d5daf3aceee989ull}, {DType::kIQ2_XS, 0xe9721ee898fa326dull},
    {DType::kIQ2_S, 0xd5c1d410d99a21d1ull},   {DType::kIQ1_S, 0x569d4abf08a45985ull},
    {DType::kIQ1_M, 0x271192869a073e45ull},   {DType::kTQ1_0, 0x6dc98573c726c325ull},
    {DType::kTQ2_0, 0xf6a0424aad01e325ull},   {DType::kQ1_0, 0xcdbf9c917283e325ull},
    {DType::kQ2_0, 0x8da3da42ee2ac325ull},
};

constexpr std::int64_t kHashedValues = 32768;

void limit_exponents(DType type, std::byte* block) {
  const auto limit = [&](std::size_t high_byte) {
    block[high_byte] = (block[high_byte] & std::byte{0x83}) | std::byte{0x20};
  };
  switch (type) {
    case DType::kQ3_K: return limit(109);
    case DType::kQ2_K: limit(81); return limit(83);
    case DType::kTQ1_0: return limit(53);
    case DType::kTQ2_0: return limit(65);
    case DType::kIQ1_M: block[55] = (block[55] & std::byte{15}) | std::byte{0x20}; return;
    case DType::kMXFP4: return;
    case DType::kNVFP4:
      for (std::size_t i = 0; i < 4; ++i)
        block[i] &= std::byte{0x7f};
      return;
    default: return limit(1);
  }
}

std::vector<std::byte> hashed_blocks(DType type) {
  std::vector<std::byte> bytes(dtype_bytes(type, kHashedValues));
  std::uint32_t state = 1;
  for (std::byte& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  for (std::size_t at = 0; at < bytes.size(); at += dtype_info(type).block_bytes)
    limit_exponents(type, &bytes[at]);
  return bytes;
}

}  // namespace

TEST_CASE("dequantisation of every later type of GGUF has ggml's bits") {
  for (const DecodedHash& expected : kDecoded) {
    std::vector<float> values(kHashedValues);
    dequantize(expected.type, hashed_blocks(expected.type).data(), kHashedValues, values.data());
    std::uint64_t hash = 0xcbf29ce484222325ull;
    for (const float value : values)
      hash = (hash ^ float_to_bits(value)) * 0x100000001b3ull;
    INFO(dtype_info(expected.type).name);
    CHECK(hash == expected.hash);
  }
}

TEST_CASE("dequantisation of the types of Hugging Face checkpoints follows their definition") {
  std::byte int4[21] = {};
  const float scale = 0.375f;
  std::memcpy(int4, &scale, sizeof scale);
  int4[4] = std::byte{7};
  for (int i = 0; i < 16; ++i)
    int4[5 + i] = static_cast<std::byte>(i | ((15 - i) << 4));
  float values[32];
  dequantize(DType::kI4G32, int4, 32, values);
  for (int i = 0; i < 16; ++i) {
    CHECK(values[i] == 0.375f * static_cast<float>(i - 7));
    CHECK(values[16 + i] == 0.375f * static_cast<float>(8 - i));
  }
  for (int first = 0; first < 256; first += 32) {
    std::byte fp8[36] = {};
    std::memcpy(fp8, &scale, sizeof scale);
    for (int i = 0; i < 32; ++i)
      fp8[4 + i] = static_cast<std::byte>(first + i);
    dequantize(DType::kF8, fp8, 32, values);
    for (int i = 0; i < 32; ++i) {
      const int code = first + i;
      const int exponent = (code >> 3) & 15;
      if ((code & 127) == 127) {
        CHECK(std::isnan(values[i]));
        continue;
      }
      const double mantissa = (code & 7) / 8.0 + (exponent == 0 ? 0.0 : 1.0);
      const double expected = std::ldexp(mantissa, (exponent == 0 ? 1 : exponent) - 7) * (code > 127 ? -0.375 : 0.375);
      CHECK(static_cast<double>(values[i]) == expected);
    }
  }
}

}  // namespace quire::test
