// Towers on the emulated GPU, whose streams complete late and in any order: the CPU's rows but for the rounding of keys
// and values to f16, and the same bits however a run is cut.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "core/base/result.h"
#include "kernels/device_error.h"
#include "kernels/emulated/emulated_device.h"
#include "kernels/gpu/gpu_backend.h"
#include "tests/support/material.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/encode/made_tower.h"
#include "tests/unit/encode/vision_exam.h"

namespace quire::test {

namespace {

std::unique_ptr<Backend> late_gpu(std::uint64_t seed, int failing_allocation = -1) {
  const gpu::EmulatedDeviceOptions options{.seed = seed, .failing_allocation = failing_allocation};
  return gpu::make_gpu_backend(std::make_unique<gpu::EmulatedDevice>(options), {.name = "cuda-emulated", .threads = 2});
}

std::vector<float> rows_of(const std::filesystem::path& tower, Backend& backend, const Picture& picture,
                           std::int64_t work) {
  const auto encoder = Encoder::open(tower, {.backend = &backend, .min_pixels = 64, .max_pixels = 1 << 14});
  return encode(*encoder, picture, backend, work);
}

// False for towers of other media.
bool sees_pictures(const std::filesystem::path& tower) {
  try {
    read_tower_spec(MmprojFile::open(tower), PictureForm::kTrained);
    return true;
  } catch (const StartupError&) {
    return false;
  }
}

// Root of the mean square of the differences, over that of the values.
double deviation(const std::vector<float>& rows, const std::vector<float>& expected) {
  REQUIRE(rows.size() == expected.size());
  double squares = 0.0;
  double differences = 0.0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    squares += std::pow(static_cast<double>(expected[i]), 2.0);
    differences += std::pow(static_cast<double>(rows[i]) - static_cast<double>(expected[i]), 2.0);
  }
  return std::sqrt(differences / squares);
}

void check_tower(const std::filesystem::path& tower, const Picture& picture, double most_deviation = 2e-3) {
  const auto cpu = exact_backend(2);
  const auto gpu = late_gpu(7);
  const std::vector<float> rows = rows_of(tower, *gpu, picture, std::int64_t{1} << 40);
  CHECK(deviation(rows, rows_of(tower, *cpu, picture, std::int64_t{1} << 40)) < most_deviation);
  const std::vector<float> sliced = rows_of(tower, *late_gpu(8), picture, 300'000);
  REQUIRE(sliced.size() == rows.size());
  CHECK(std::memcmp(sliced.data(), rows.data(), rows.size() * sizeof(float)) == 0);
}

}  // namespace

TEST_CASE("a made tower of any type has the CPU's rows on a device", "[gpu][encode]") {
  const TemporaryFolder folder;
  struct Case {
    DType type;
    double most_deviation;
  };
  // Devices multiply BF16 weights by bf16; the CPU rounds activations of quantised ones to eight bits.
  for (const Case& each :
       {Case{DType::kF32, 2e-3}, {DType::kF16, 2e-3}, {DType::kBF16, 8e-3}, {DType::kQ8_0, 2.5e-2}}) {
    MadeTower(each.type).write(folder / "mmproj.gguf");
    check_tower(folder / "mmproj.gguf", made_picture(72, 56), each.most_deviation);
  }
}

TEST_CASE("a picture for which a device lacks memory fails alone", "[gpu][encode]") {
  const TemporaryFolder folder;
  MadeTower(DType::kF32).write(folder / "mmproj.gguf");
  const Picture picture = made_picture(24, 16);
  const std::vector<float> expected = rows_of(folder / "mmproj.gguf", *late_gpu(1), picture, 1);
  int num_failed = 0;
  for (int failing = 0;; ++failing) {
    const auto gpu = late_gpu(1, failing);
    std::unique_ptr<Encoder> encoder;
    try {
      encoder = Encoder::open(folder / "mmproj.gguf", {.backend = gpu.get(), .min_pixels = 64, .max_pixels = 1 << 14});
    } catch (const DeviceError&) {
      continue;
    }
    try {
      encode(*encoder, picture, *gpu, 1);
      break;
    } catch (const DeviceError&) {
      ++num_failed;
    }
    CHECK(encode(*encoder, picture, *gpu, 1) == expected);
  }
  CHECK(num_failed > 10);
}

TEST_CASE("each family's tower has the CPU's rows on a device", "[gpu][encode]") {
  QUIRE_REQUIRE_MATERIAL(families, "vision/given");
  int num_families = 0;
  for (const auto& family : std::filesystem::directory_iterator(families)) {
    const std::filesystem::path tower = family.path() / "mmproj.gguf";
    if (!exists(tower) || !sees_pictures(tower)) continue;
    INFO(family.path().filename().string());
    check_tower(tower, made_picture(112, 84));
    ++num_families;
  }
  CHECK(num_families >= 25);
}

}  // namespace quire::test
