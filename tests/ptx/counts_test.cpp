// Instruction counts in the PTX of the products stay within the design's bounds. Needs the texts of nvcc (run.sh).
#include <algorithm>
#include <catch2/catch.hpp>

#include "kernels/formats/packed_format.h"
#include "kernels/gpu/form_names.h"
#include "kernels/gpu/gpu_backend.h"
#include "kernels/gpu/pack/half_shapes.h"
#include "kernels/gpu/pack/pack_weights.h"
#include "tests/gpu_check/cases.h"
#include "tests/ptx/compared_device.h"
#include "tests/ptx/machine/products.h"

namespace quire::test {
namespace {

using ptx::ComparedDevice;
using ptx::Function;
using ptx::Instruction;
using ptx::KernelPrograms;
using ptx::Kind;
using ptx::LaunchCounts;

std::vector<DType> types_in_strips() {
  std::vector<DType> out;
  std::ranges::copy_if(kKernelTypes, std::back_inserter(out), gpu::lies_in_strips);
  return out;
}

// Instructions in f32 that a lane needs for the scales of one output and one block, conversions to f32 included.
int scale_instructions(PackedFormat format) {
  const int unit = format.unit != 1.0f ? 1 : 0;
  switch (format.scales) {
    case ScaleForm::kHalf:
    case ScaleForm::kHeaderHalf: return 1;           // the half
    case ScaleForm::kHalfMinimum: return 2;          // two halves
    case ScaleForm::kPair8: return 6;                // two halves, two bytes, two products
    case ScaleForm::kSigned: return 3 + unit;        // a half, a byte, their product
    case ScaleForm::kSignedHalves: return 5 + unit;  // a half, two bytes, two products
    case ScaleForm::kNibbleHalves: return 11;        // two halves, a 32nd, four nibbles, four products
    case ScaleForm::kUe4m3Halves: return 2;          // two products
    case ScaleForm::kFloatZero: return 2;            // a byte, its product
    default: return 0;
  }
}

// The design's count for one m16n8k32 (GPU.md, 12 and 18): each of a lane's four elements is converted, its two scales
// are multiplied, and it is added. A minimum adds a multiply-add to each element, and a conversion and a product to
// each of two rows, which two groups of outputs share. Two halves are two sums: each is converted, and the second joins
// the first by a multiply-add. Scales of the weights serve eight tiles of rows.
double design_count(PackedFormat format) {
  double elements = format.has_halves() ? 4 * (2 + 1 + 1 + 1) : 4 * 3;
  if (format.scales == ScaleForm::kNibbleHalves) {
    elements += 4 * 2 + 2 * 2 / 2;
  } else if (!format.has_halves() && format.zero == 0) {
    elements += 4 + 2 * 2 / 2;
  }
  return elements + 2.0 * scale_instructions(format) / 8;
}

// Most instructions of any kind (loads, moves, integer arithmetic, branches) per instruction in f32. ptxas leaves out
// some of them.
constexpr double kMostForEach = 3.8;

// Most instructions per product of 16 x 16 by 16 x 8 halves.
constexpr double kMostForHalves = 4.8;

// The bound for attention of few rows, whose softmax of 64 scores by 16 vectors comes with 256 products.
constexpr double kMostForAttention = 19.0;

double ratio(std::int64_t count, std::int64_t of) {
  return static_cast<double>(count) / static_cast<double>(of);
}

std::int64_t copied_sectors(const Function& function, const LaunchCounts& counts) {
  std::int64_t sectors = 0;
  for (std::size_t i = 0; i < counts.of.size(); ++i)
    sectors += function.instructions[i].kind == Kind::kCopyAsync ? counts.of[i].sectors : 0;
  return sectors;
}

}  // namespace

TEST_CASE("linear_row moves each byte of the weights once, and at most 1.05 bytes in all for it", "[.nvcc]") {
  const auto texts = ptx::emitted_texts();
  REQUIRE(texts);
  const KernelPrograms programs(*texts);
  for (const DType type : types_in_strips()) {
    std::vector<std::string> differences;
    ComparedDevice device(programs, {}, &differences);
    const auto weights =
        static_cast<std::int64_t>(run_product(device, {.type = type, .rows = 1, .outputs = 2048, .depth = 1024}));
    const std::string kernel = "linear_row " + std::string(gpu::form_name(type)) + " few";
    INFO(kernel);
    CHECK(differences.empty());
    const LaunchCounts& counts = device.counts(kernel);
    CHECK(copied_sectors(programs.of(kernel), counts) * ptx::kSectorBytes == weights);
    // Activations are read again for every 16 outputs, from the L2: each of their sectors counts once.
    CHECK(ratio(std::ssize(counts.touched) * ptx::kSectorBytes, weights) <= 1.05);
  }
}

// Rows are copied like weights, 64 bytes of a block of 32 features for each block of outputs: out of the L2 but once.
TEST_CASE("linear_half moves each byte of the weights once, and at most 1.05 bytes in all for it", "[.nvcc]") {
  const auto texts = ptx::emitted_texts();
  REQUIRE(texts);
  const KernelPrograms programs(*texts);
  for (const DType type : {DType::kF16, DType::kBF16}) {
    std::vector<std::string> differences;
    ComparedDevice device(programs, {}, &differences);
    const auto weights =
        static_cast<std::int64_t>(run_product(device, {.type = type, .rows = 1, .outputs = 1024, .depth = 1024}));
    const std::string kernel = "linear_half " + std::string(gpu::form_name(type)) + " 1";
    INFO(kernel);
    CHECK(differences.empty());
    const LaunchCounts& counts = device.counts(kernel);
    const std::int64_t rows = 1024 / gpu::kHalfFew[0].outputs() * 1024 * 2;
    CHECK(copied_sectors(programs.of(kernel), counts) * ptx::kSectorBytes == weights + rows);
    CHECK(ratio(std::ssize(counts.touched) * ptx::kSectorBytes, weights) <= 1.05);
  }
}

// A warp of the kernel for many rows loads eight operands of weights and eight of rows for 64 instructions; addresses
// of fetches, the barrier and the loop belong to a block of 32 features.
TEST_CASE("linear_half executes few instructions beside each product of fragments", "[.nvcc]") {
  const auto texts = ptx::emitted_texts();
  REQUIRE(texts);
  const KernelPrograms programs(*texts);
  for (const DType type : {DType::kF16, DType::kBF16}) {
    std::vector<std::string> differences;
    ComparedDevice device(programs, {}, &differences);
    run_product(device, {.type = type, .rows = 128, .outputs = 256, .depth = 1024, .is_wide = true});
    const std::string kernel = "linear_half " + std::string(gpu::form_name(type)) + " wide";
    INFO(kernel);
    CHECK(differences.empty());
    const LaunchCounts& counts = device.counts(kernel);
    const Function& function = programs.of(kernel);
    const auto products = counts.executed(function, Kind::kMma);
    CHECK(products == 128 * 256 * 1024 / (16 * 8 * 16));
    const auto loads =
        counts.executed(function, [](const Instruction& in) { return in.text.starts_with("ld.shared"); });
    CHECK(loads == products / 4 + 8 * 9);  // the last term: the first block, before the loop
    CHECK(ratio(counts.executed(function, [](const Instruction&) { return true; }), products) <= kMostForHalves);
  }
}

// Four heads of 128 share K and V; two rows of one sequence see nine tokens, three rows of the other see 600.
TEST_CASE("attention in tiles reads each byte of K and V once for all heads that share them", "[.nvcc]") {
  const auto texts = ptx::emitted_texts();
  REQUIRE(texts);
  const KernelPrograms programs(*texts);
  for (const std::string type : {"f16", "bf16"}) {
    const std::vector<DeviceCase> cases = device_cases();
    const auto found =
        std::ranges::find(cases, "attention " + type + " 32 heads of 128, 8 in the cache", &DeviceCase::name);
    REQUIRE(found != cases.end());
    std::vector<std::string> differences;
    auto owned = std::make_unique<ComparedDevice>(programs, ptx::RunOptions{}, &differences);
    const ComparedDevice& device = *owned;
    const auto backend = gpu::make_gpu_backend(std::move(owned), {.name = "cuda"});
    found->run(*backend);
    const std::string kernel = "attend_tiles " + type + " 1 128";
    INFO(kernel);
    CHECK(differences == std::vector<std::string>{});
    const Function& function = programs.of(kernel);
    const LaunchCounts& counts = device.counts(kernel);
    CHECK(copied_sectors(function, counts) * ptx::kSectorBytes == (9 + 600) * 8 * 128 * 2 * 2);
    // A warp multiplies high and low parts of 16 queries with 64 keys, then of weights with their values.
    constexpr std::int64_t kOfWarp = 2 * (64 / 8 * 128 / 16 + 64 / 16 * 128 / 8);
    const auto products = counts.executed(function, Kind::kMma);
    CHECK(products == (1 + 10) * 8 * kOfWarp);
    CHECK(ratio(counts.executed(function, [](const Instruction&) { return true; }), products) <= kMostForAttention);
  }
}

TEST_CASE("linear_wide executes the design's count of instructions in f32 for each product of fragments", "[.nvcc]") {
  const auto texts = ptx::emitted_texts();
  REQUIRE(texts);
  const KernelPrograms programs(*texts);
  for (const DType type : types_in_strips()) {
    std::vector<std::string> differences;
    ComparedDevice device(programs, {}, &differences);
    run_product(device, {.type = type, .rows = 128, .outputs = 128, .depth = 1024, .is_wide = true});
    const std::string kernel = "linear_wide " + std::string(gpu::form_name(type));
    CHECK(differences.empty());
    const LaunchCounts& counts = device.counts(kernel);
    const Function& function = programs.of(kernel);
    const auto products = counts.executed(
        function, [](const Instruction& in) { return in.text.starts_with("mma.sync.aligned.m16n8k32"); });
    const auto halves = counts.executed(function, Kind::kMma) - products;
    const auto all = counts.executed(function, [](const Instruction&) { return true; });
    const auto in_f32 = counts.executed(function, Kind::kFloat) + counts.executed(function, Kind::kConvert);
    CHECK(products + halves / 2 == 128 * 128 * 1024 / (16 * 8 * 32));
    const double count = ratio(in_f32, products + halves / 2);
    const double expected = design_count(packed_format(type));
    CHECK(count >= expected);
    CHECK(count <= 1.1 * expected);
    CHECK(ratio(all, in_f32) <= kMostForEach);
  }
}

}  // namespace quire::test
