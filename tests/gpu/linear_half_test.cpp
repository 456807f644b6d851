// Products of 16-bit weights on the emulated GPU: bit for bit the written chain of instructions, for any kernel, rows
// and orders of threads; each barrier and wait in the kernels is needed, and its absence is detected.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/emulated/emulated_device.h"
#include "kernels/formats/half.h"
#include "kernels/gpu/gpu_linear.h"
#include "tests/gpu/device_arrays.h"

namespace quire::test {
namespace {

using gpu::EmulatedDevice;
using gpu::EmulatedDeviceOptions;
using gpu::Mutation;

constexpr std::int64_t kOnlyWide = 0;
constexpr std::int64_t kOnlySkinny = 1 << 20;
constexpr std::int64_t kMiddle = 1;  // enough for several rows of few outputs

// A row after rounding, with the factor of its results.
struct RoundedRow {
  std::vector<float> values;
  float scale = 1.0f;
};

RoundedRow rounded_half_row(const float* x, std::int64_t depth, DType type) {
  RoundedRow out;
  float bound = 0.0f;
  for (std::int64_t i = 0; i < depth; ++i)
    bound = std::max(bound, std::fabs(x[i]));
  if (type == DType::kF16) out.scale = std::ldexp(1.0f, std::max(std::ilogb(bound), -107) - 14);
  for (std::int64_t i = 0; i < depth; ++i) {
    const float scaled = x[i] / out.scale;
    out.values.push_back(type == DType::kF16 ? f16_to_float(float_to_f16(scaled))
                                             : bf16_to_float(float_to_bf16(scaled)));
  }
  return out;
}

// Computes one chain of instructions over the whole depth. An instruction multiplies 16 features of a block of 32: of
// each run of eight the first or the last four, and of these the first two of all runs come first.
float half_chain(const std::vector<float>& x, const float* w) {
  const auto depth = static_cast<int>(x.size());
  float sum = 0.0f;
  for (int block = 0; block < depth; block += 32) {
    for (const int first : {0, 4}) {
      auto in_f64 = static_cast<double>(sum);
      for (int i = 0; i < 16; ++i) {
        const int k = block + first + i / 2 % 4 * 8 + i / 8 * 2 + i % 2;
        if (k < depth) in_f64 += static_cast<double>(x[static_cast<std::size_t>(k)]) * static_cast<double>(w[k]);
      }
      sum = static_cast<float>(in_f64);
    }
  }
  return sum;
}

Matrix half_product(const Weights& weights, const Matrix& x) {
  const std::vector<float> decoded = weights.decoded();
  Matrix out(x.rows, weights.rows);
  for (std::int64_t row = 0; row < x.rows; ++row) {
    const RoundedRow rounded = rounded_half_row(x.data.data() + row * x.stride, x.cols, weights.type);
    for (std::int64_t col = 0; col < weights.rows; ++col)
      out.at(row, col) = half_chain(rounded.values, decoded.data() + col * x.cols) * rounded.scale;
  }
  return out;
}

Matrix emulated_half_product(const Weights& weights, const Matrix& x, std::int64_t skinny_rows,
                             const EmulatedDeviceOptions& options = {}) {
  EmulatedDevice device(options);
  const WeightSource source = weights.source();
  const gpu::GpuLinear linear(device, {&source, 1}, {});
  gpu::GpuLinearRunner runner(device, {.skinny_rows = skinny_rows, .any_blocks = skinny_rows == kOnlyWide});
  const DeviceMatrix in(device, x);
  const DeviceMatrix out(device, Matrix(x.rows, weights.rows));
  runner.run(linear, in.view(), out.view(), false);
  return out.read();
}

bool same_matrix(const Matrix& a, const Matrix& b) {
  return a.padding_untouched() && same_rows(a, 0, b, 0, a.rows);
}

// A product in which every stage of the kernels is used, again and again.
struct DeepHalfProduct {
  DeepHalfProduct(DType type, std::int64_t rows)
      : weights(random_weights(random, type, 20, 4500)), x(random_matrix(random, rows, 4500)) {}
  std::mt19937 random{17};
  Weights weights;
  Matrix x;
};

// Numbers of the operations of one kind that can be left out without an effect.
std::vector<int> without_effect(const DeepHalfProduct& deep, std::int64_t skinny_rows, Mutation::Kind kind, int count) {
  const Matrix expected = half_product(deep.weights, deep.x);
  std::vector<int> out;
  for (int number = 0; number < count; ++number) {
    bool found = false;
    for (std::uint64_t seed = 0; seed < 8 && !found; ++seed) {
      const EmulatedDeviceOptions options{.seed = seed, .mutation = {kind, number}};
      found = !same_matrix(emulated_half_product(deep.weights, deep.x, skinny_rows, options), expected);
    }
    if (!found) out.push_back(number);
  }
  return out;
}

}  // namespace

TEST_CASE("linear with 16-bit weights on the emulated GPU is the written chain to the bit, in every shape") {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    for (const std::int64_t depth : {5, 33, 172, 352}) {
      std::mt19937 random(3);
      const Weights weights = random_weights(random, type, 37, depth);
      Matrix x = random_matrix(random, 130, depth);
      const Matrix expected = half_product(weights, x);
      for (const std::int64_t rows : {1, 3, 8, 9, 33, 65, 130}) {
        Matrix some(rows, depth);
        std::copy_n(x.data.begin(), some.data.size(), some.data.begin());
        for (const std::int64_t skinny_rows : {kOnlyWide, kMiddle, kOnlySkinny}) {
          INFO(dtype_info(type).name << ", " << rows << " rows of " << depth
                                     << (skinny_rows == kOnlyWide ? ", wide"
                                         : skinny_rows == kMiddle ? ", middle"
                                                                  : ""));
          const Matrix out = emulated_half_product(weights, some, skinny_rows);
          CHECK(out.padding_untouched());
          CHECK(same_rows(out, 0, expected, 0, rows));
        }
      }
    }
  }
}

namespace {

void check_depth(std::initializer_list<std::uint64_t> orders) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    INFO(dtype_info(type).name);
    for (const std::int64_t rows : {3, 20, 70}) {
      const DeepHalfProduct deep(type, rows);
      const Matrix expected = half_product(deep.weights, deep.x);
      for (const std::uint64_t seed : orders) {
        for (const std::int64_t skinny_rows : {kOnlyWide, kMiddle, kOnlySkinny})
          CHECK(same_matrix(emulated_half_product(deep.weights, deep.x, skinny_rows, {.seed = seed}), expected));
      }
    }
  }
}

}  // namespace

TEST_CASE("linear with 16-bit weights is one chain over a long depth in all shapes, in an order of threads drawn") {
  check_depth({1});
}

TEST_CASE("linear with 16-bit weights is one chain over a long depth in other orders of threads", "[.long]") {
  check_depth({0, 2});
}

TEST_CASE("rows of any magnitude meet F16 weights without overflow, each by its own power of two") {
  std::mt19937 random(7);
  const Weights weights = random_weights(random, DType::kF16, 16, 64);
  Matrix x = random_matrix(random, 6, 64);
  const float magnitudes[] = {1.0f, 1e6f, 1e30f, 1e-6f, 1e-30f, 0.0f};
  for (std::int64_t row = 0; row < 6; ++row) {
    for (std::int64_t col = 0; col < 64; ++col)
      x.at(row, col) *= magnitudes[row];
  }
  const Matrix out = emulated_half_product(weights, x, kOnlySkinny);
  Matrix expected = half_product(weights, x);
  std::fill_n(&expected.at(5, 0), 16, 0.0f);
  CHECK(same_matrix(out, expected));
}

namespace {

// Leaves out one of each kind per stage: a stage is two blocks of 32 features for few rows, one for many.
void check_mutations(std::int64_t skinny_rows) {
  const DeepHalfProduct few(DType::kBF16, 3);
  CHECK(without_effect(few, skinny_rows, Mutation::Kind::kSkipBlockBarrier, 12).empty());
  CHECK(without_effect(few, skinny_rows, Mutation::Kind::kSkipCopyWait, 12).empty());
}

}  // namespace

TEST_CASE("each barrier and wait of a product of 16-bit weights is found where it is left out") {
  check_mutations(kMiddle);
}

TEST_CASE("each barrier and wait of the other products of 16-bit weights is found where it is left out", "[.long]") {
  check_mutations(kOnlySkinny);
  check_mutations(kOnlyWide);
}

TEST_CASE("a missing barrier of rows that are rounded is found") {
  const DeepHalfProduct one(DType::kF16, 1);
  const EmulatedDeviceOptions mutated{.mutation = {Mutation::Kind::kSkipBlockBarrier, 0}};
  CHECK_FALSE(
      same_matrix(emulated_half_product(one.weights, one.x, kOnlySkinny, mutated), half_product(one.weights, one.x)));
}

}  // namespace quire::test
