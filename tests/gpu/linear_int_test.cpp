// Products of quantised weights on the emulated GPU: bit for bit the written chain and the CPU level avx512, for any
// kernel, rows, seeds and tiles; each barrier and wait in the kernels is needed, and its absence is detected.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/emulated/emulated_device.h"
#include "kernels/gpu/gpu_linear.h"
#include "kernels/gpu/pack/pack_weights.h"
#include "tests/gpu/chain.h"
#include "tests/gpu/device_arrays.h"

namespace quire::test {
namespace {

using gpu::EmulatedDevice;
using gpu::EmulatedDeviceOptions;
using gpu::GpuLinear;
using gpu::GpuLinearRunner;
using gpu::Mutation;

constexpr std::int64_t kAlwaysWide = 0;
constexpr std::int64_t kAlwaysSkinny = 1 << 20;

std::vector<DType> strip_types() {
  std::vector<DType> out;
  std::ranges::copy_if(kAllTypes, std::back_inserter(out), gpu::lies_in_strips);
  return out;
}

struct ProductSetting {
  std::int64_t skinny_rows = 64;
  bool any_blocks = true;  // the kernels of large products
  EmulatedDeviceOptions device = {};
  float scale = 1.0f;
  std::span<const float> bias = {};
  bool accumulate = false;
};

// Computes x W^T on a device of its own.
Matrix product(const Weights& weights, const Matrix& x, const ProductSetting& setting = {},
               const Matrix& before = {0, 0}) {
  EmulatedDevice device(setting.device);
  WeightSource source = weights.source();
  source.scale = setting.scale;
  const GpuLinear linear(device, {&source, 1}, setting.bias);
  GpuLinearRunner runner(device, {.skinny_rows = setting.skinny_rows, .any_blocks = setting.any_blocks});
  const DeviceMatrix in(device, x);
  const DeviceMatrix out(device, setting.accumulate ? before : Matrix(x.rows, weights.rows));
  runner.run(linear, in.view(), out.view(), setting.accumulate);
  return out.read();
}

// A depth that ends within a strip for types of short blocks.
std::int64_t small_depth(DType type) {
  const std::int64_t block = dtype_info(type).block_size;
  return block == 256 ? 512 : block == 128 ? 384 : block == 64 ? 320 : 352;
}

bool equal(const Matrix& a, const Matrix& b) {
  return a.padding_untouched() && same_rows(a, 0, b, 0, a.rows);
}

// A shape in which every round, stage and cut of the kernels is used.
struct DeepProduct {
  explicit DeepProduct(DType type, std::int64_t rows)
      : weights(random_weights(random, type, 20, 9216)), x(random_matrix(random, rows, 9216)) {}
  std::mt19937 random{17};
  Weights weights;
  Matrix x;
};

}  // namespace

namespace {

void check_chain(std::initializer_list<std::int64_t> row_counts) {
  for (const DType type : strip_types()) {
    std::mt19937 random(3);
    const Weights weights = random_weights(random, type, 37, small_depth(type));
    const Matrix x = random_matrix(random, 130, weights.cols);
    const Matrix expected = chain_product(weights, x);
    for (const std::int64_t rows : row_counts) {
      Matrix some(rows, weights.cols);
      std::copy_n(x.data.begin(), some.data.size(), some.data.begin());
      for (const std::int64_t skinny_rows : {kAlwaysWide, kAlwaysSkinny}) {
        INFO(dtype_info(type).name << ", " << rows << " rows, " << (skinny_rows == 0 ? "wide" : "skinny"));
        const Matrix out = product(weights, some, {.skinny_rows = skinny_rows});
        CHECK(out.padding_untouched());
        CHECK(same_rows(out, 0, expected, 0, rows));
      }
      CHECK(same_rows(product(weights, some, {.any_blocks = false}), 0, expected, 0, rows));
    }
  }
}

}  // namespace

TEST_CASE("linear on the emulated GPU is the written chain to the bit, for every type and kernel") {
  check_chain({1, 9, 65});
}

TEST_CASE("linear on the emulated GPU is the written chain to the bit, for other row counts", "[.long]") {
  check_chain({3, 8, 33, 64, 130});
}

TEST_CASE("linear on the emulated GPU cuts the depth at multiples of 1024 in both kernels") {
  for (const DType type : {DType::kQ8_0, DType::kQ4_K, DType::kQ6_K, DType::kQ2_K, DType::kIQ3_S, DType::kMXFP4}) {
    INFO(dtype_info(type).name);
    const DeepProduct deep(type, 9);
    const Matrix expected = chain_product(deep.weights, deep.x);
    CHECK(equal(product(deep.weights, deep.x, {.skinny_rows = kAlwaysSkinny}), expected));
    CHECK(equal(product(deep.weights, deep.x, {.skinny_rows = kAlwaysWide}), expected));
    const DeepProduct one(type, 1);
    CHECK(equal(product(one.weights, one.x), chain_product(one.weights, one.x)));
    const DeepProduct many(type, 70);
    CHECK(equal(product(many.weights, many.x, {.any_blocks = false}), chain_product(many.weights, many.x)));
  }
}

TEST_CASE("linear on the emulated GPU takes 550 rows as it takes one") {
  for (const DType type : {DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    INFO(dtype_info(type).name);
    std::mt19937 random(5);
    const Weights weights = random_weights(random, type, 140, 512);
    Matrix x = random_matrix(random, 550, 512);
    const Matrix expected = chain_product(weights, x);
    CHECK(equal(product(weights, x), expected));
    CHECK(equal(product(weights, x, {.skinny_rows = kAlwaysSkinny}), expected));
  }
}

TEST_CASE("linear on the emulated GPU gives the bits of the CPU level avx512 where the depth has one cut") {
  if (!cpu_levels()[2].supported()) {
    WARN("skipped: this processor has no AVX-512 VNNI");
    return;
  }
  const auto cpu = make_cpu_backend({.kernels = cpu_levels()[2].table(), .threads = 1, .pin = false});
  for (const DType type : strip_types()) {
    INFO(dtype_info(type).name);
    std::mt19937 random(7);
    const Weights weights = random_weights(random, type, 50, 1024);
    const WeightSource source = weights.source();
    Matrix x = random_matrix(random, 11, 1024);
    Matrix expected(11, 50);
    cpu->linear(*cpu->load_linear({&source, 1}, {}), x.view(), expected.view(), false);
    CHECK(equal(product(weights, x), expected));
  }
}

TEST_CASE("linear on the emulated GPU scales, adds bias and accumulates as the CPU does") {
  std::mt19937 random(9);
  const Weights weights = random_weights(random, DType::kQ5_K, 70, 256);
  const std::vector<float> bias = random_floats(random, 70);
  for (const std::int64_t rows : {6, 70}) {
    const Matrix x = random_matrix(random, rows, 256);
    const Matrix before = random_matrix(random, rows, 70);
    const Matrix products = chain_product(weights, x);
    const Matrix out = product(weights, x, {.scale = 0.375f, .bias = bias, .accumulate = true}, before);
    CHECK(out.padding_untouched());
    std::size_t wrong = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t col = 0; col < 70; ++col) {
        const auto at = static_cast<std::size_t>(row * products.stride + col);
        const float expected = before.data[at] + (products.data[at] * 0.375f + bias[static_cast<std::size_t>(col)]);
        wrong += out.data[at] != expected ? 1 : 0;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("linear on the emulated GPU stacks parts, each with its inputs in its own order") {
  OrderedParts scene(31, DType::kQ8_0);
  auto& [first, second, order, parts, x, ordered] = scene;
  EmulatedDevice device({.seed = 3});
  const GpuLinear linear(device, parts, {});
  GpuLinearRunner runner(device, {});
  const DeviceMatrix in(device, x);
  const DeviceMatrix out(device, Matrix(19, 104));
  runner.run(linear, in.view(), out.view(), false);
  Matrix results = out.read();
  Matrix expected[] = {chain_product(first, ordered), chain_product(second, x), chain_product(first, x)};
  std::size_t wrong = 0;
  for (std::int64_t row = 0; row < 19; ++row) {
    for (std::int64_t col = 0; col < 104; ++col) {
      const int part = col < 40 ? 0 : col < 64 ? 1 : 2;
      const std::int64_t begin = part == 0 ? 0 : part == 1 ? 40 : 64;
      wrong += results.at(row, col) != expected[part].at(row, col - begin) ? 1 : 0;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("linear on the emulated GPU gives the same bits in every order of threads and blocks") {
  const DeepProduct deep(DType::kQ5_K, 70);
  const Matrix expected = chain_product(deep.weights, deep.x);
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    CHECK(equal(product(deep.weights, deep.x, {.skinny_rows = kAlwaysSkinny, .device = {.seed = seed}}), expected));
    CHECK(equal(product(deep.weights, deep.x, {.skinny_rows = kAlwaysWide, .device = {.seed = seed}}), expected));
  }
}

namespace {

// Numbers of the operations of one kind that can be left out without an effect.
std::vector<int> not_found(const DeepProduct& deep, std::int64_t skinny_rows, Mutation::Kind kind, int count) {
  const Matrix expected = chain_product(deep.weights, deep.x);
  std::vector<int> out;
  for (int number = 0; number < count; ++number) {
    bool found = false;
    for (std::uint64_t seed = 0; seed < 8 && !found; ++seed) {
      const EmulatedDeviceOptions options{.seed = seed, .mutation = {kind, number}};
      found = !equal(product(deep.weights, deep.x, {.skinny_rows = skinny_rows, .device = options}), expected);
    }
    if (!found) out.push_back(number);
  }
  return out;
}

}  // namespace

TEST_CASE("each barrier and wait of the quantised products is found where it is left out") {
  const DeepProduct few(DType::kQ4_K, 3);
  // Nine cuts in turn on four warps: three rounds of four strips, two barriers in each but the first.
  CHECK(not_found(few, kAlwaysSkinny, Mutation::Kind::kSkipBlockBarrier, 5).empty());
  CHECK(not_found(few, kAlwaysSkinny, Mutation::Kind::kSkipWarpBarrier, 9).empty());
  CHECK(not_found(few, kAlwaysSkinny, Mutation::Kind::kSkipCopyWait, 9).empty());
  // A single row: nine cuts at once on fourteen warps, one barrier.
  const DeepProduct one(DType::kQ4_K, 1);
  CHECK(not_found(one, kAlwaysSkinny, Mutation::Kind::kSkipBlockBarrier, 1).empty());
  CHECK(not_found(one, kAlwaysSkinny, Mutation::Kind::kSkipWarpBarrier, 4).empty());
  CHECK(not_found(one, kAlwaysSkinny, Mutation::Kind::kSkipCopyWait, 4).empty());
  CHECK(not_found(few, kAlwaysWide, Mutation::Kind::kSkipBlockBarrier, 12).empty());
  CHECK(not_found(few, kAlwaysWide, Mutation::Kind::kSkipCopyWait, 12).empty());
}

}  // namespace quire::test
