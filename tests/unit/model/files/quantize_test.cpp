#include "core/model/formats/gguf/quantize.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

using namespace quire;

namespace {

struct Expected {
  DType type;
  double worst;  // largest difference, relative to the block's largest magnitude
};

std::vector<float> round_trip(DType type, const std::vector<float>& values) {
  std::vector<std::byte> encoded(dtype_bytes(type, std::ssize(values)));
  quantize(type, values, encoded);
  std::vector<float> decoded(values.size());
  dequantize(type, encoded.data(), std::ssize(values), decoded.data());
  return decoded;
}

}  // namespace

TEST_CASE("Every type decodes to what was encoded, within its step", "[quantize]") {
  const auto expected =
      GENERATE(Expected{DType::kF32, 0.0}, Expected{DType::kF16, 0.0005}, Expected{DType::kBF16, 0.004},
               Expected{DType::kQ8_0, 0.005}, Expected{DType::kQ4_0, 0.13}, Expected{DType::kQ4_1, 0.07},
               Expected{DType::kQ5_0, 0.066}, Expected{DType::kQ5_1, 0.035}, Expected{DType::kQ4_K, 0.1},
               Expected{DType::kQ5_K, 0.06}, Expected{DType::kQ6_K, 0.04}, Expected{DType::kIQ4_NL, 0.13},
               Expected{DType::kIQ4_XS, 0.13}, Expected{DType::kQ3_K, 0.3}, Expected{DType::kQ2_K, 0.4},
               Expected{DType::kMXFP4, 0.26});
  INFO(dtype_info(expected.type).name);
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0F, 0.1F);
  std::vector<float> values(512);
  for (float& value : values)
    value = normal(random);
  const std::vector<float> decoded = round_trip(expected.type, values);
  float largest = 0.0F;
  float worst = 0.0F;
  for (std::size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, std::fabs(values[i]));
    worst = std::max(worst, std::fabs(values[i] - decoded[i]));
  }
  CHECK(static_cast<double>(worst) <= expected.worst * static_cast<double>(largest));
}

TEST_CASE("Zeros stay zeros in every type", "[quantize]") {
  for (int type = 0; type < kNumWeightTypes; ++type) {
    if (!can_quantize(static_cast<DType>(type))) continue;
    const std::vector<float> zeros(256, 0.0F);
    CHECK(round_trip(static_cast<DType>(type), zeros) == zeros);
  }
}
