// Rows prepared on the emulated GPU: int8 tiles of plain, normed and gated rows, and rows of embedding tables of every
// type.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/emulated/emulated_device.h"
#include "kernels/gpu/form_names.h"
#include "kernels/gpu/kernels/embed.h"
#include "kernels/gpu/kernels/norm_quantise.h"
#include "kernels/gpu/pack/pack_weights.h"
#include "tests/gpu/chain.h"
#include "tests/gpu/device_arrays.h"
#include "tests/support/made_rows.h"

namespace quire::test {
namespace {

using gpu::ActTile;
using gpu::EmulatedDevice;
using gpu::EmulatedDeviceOptions;
using gpu::NormQuantiseArgs;

// A row of a product's tiles, its quants in feature order.
std::vector<ChainBlock> row_of_tiles(const std::vector<ActTile>& tiles, std::int64_t row, std::int64_t num_blocks) {
  std::vector<ChainBlock> out(static_cast<std::size_t>(num_blocks));
  const auto place = static_cast<std::size_t>(row % 8);
  const std::size_t tile_stride = tiles.size() / out.size();
  for (std::size_t b = 0; b < out.size(); ++b) {
    const ActTile& tile = tiles[b * tile_stride + static_cast<std::size_t>(row / 8)];
    int sums[2] = {0, 0};
    for (std::size_t i = 0; i < 32; ++i) {
      const std::uint32_t word = tile.quants[4 * place + i % 16 / 4][i / 16];
      out[b].quants[i] = static_cast<std::int8_t>((word >> (8 * (i % 4))) & 255u);
      sums[i / 16] += out[b].quants[i];
    }
    out[b].scale = tile.scales[place].scale;
    CHECK(sums[0] == tile.scales[place].low_sum);
    CHECK(sums[1] == tile.scales[place].high_sum);
  }
  return out;
}

// Rows of x as `kernel` makes and rounds them.
std::vector<std::vector<ChainBlock>> quantised(const char* kernel, const Matrix& x, std::int64_t depth,
                                               const std::vector<float>& weight, std::uint64_t seed,
                                               std::int64_t piece = gpu::kMadeSweep) {
  EmulatedDevice device({.seed = seed});
  const DeviceMatrix in(device, x);
  const DeviceArray<float> norm(device, weight);
  const std::int64_t num_blocks = depth / 32;
  const DeviceArray<ActTile> tiles(device,
                                   std::vector<ActTile>(static_cast<std::size_t>((x.rows + 7) / 8 * num_blocks)));
  const NormQuantiseArgs args{.x = in.view().data,
                              .stride = x.stride,
                              .depth = depth,
                              .piece = piece,
                              .norm_weight = norm.data(),
                              .eps = 1e-5f,
                              .tiles = tiles.data(),
                              .tile_stride = (x.rows + 7) / 8};
  device.launch(device.kernel(kernel), {.x = x.rows, .y = (depth + piece - 1) / piece}, args);
  std::vector<std::vector<ChainBlock>> out;
  for (std::int64_t row = 0; row < x.rows; ++row)
    out.push_back(row_of_tiles(tiles.read(), row, num_blocks));
  return out;
}

bool same_blocks(const std::vector<ChainBlock>& a, const std::vector<ChainBlock>& b) {
  return std::ranges::equal(a, b, [](const ChainBlock& left, const ChainBlock& right) {
    return std::ranges::equal(left.quants, right.quants) &&
           std::bit_cast<std::uint32_t>(left.scale) == std::bit_cast<std::uint32_t>(right.scale);
  });
}

// The order of sums as norm_quantise.h states it: each of 256 threads fours of features in turn, a tree in each warp,
// warps in order.
std::vector<float> normed_row(const float* x, const std::vector<float>& weight) {
  float threads[256] = {};
  for (std::size_t i = 0; i < weight.size(); ++i)
    threads[i / 4 % 256] = std::fma(x[i], x[i], threads[i / 4 % 256]);
  for (std::size_t distance = 16; distance > 0; distance /= 2) {
    float before[256];
    std::ranges::copy(threads, before);
    for (std::size_t i = 0; i < 256; ++i)
      threads[i] = before[i] + before[i ^ distance];
  }
  float sum = threads[0];
  for (std::size_t warp = 1; warp < 8; ++warp)
    sum += threads[32 * warp];
  const float factor = 1.0f / std::sqrt(sum / static_cast<float>(weight.size()) + 1e-5f);
  std::vector<float> out;
  for (std::size_t i = 0; i < weight.size(); ++i)
    out.push_back(x[i] * factor * weight[i]);
  return out;
}

}  // namespace

TEST_CASE("the emulated GPU rounds rows to int8 as the written chain does") {
  std::mt19937 random(1);
  for (const std::int64_t depth : {32, 96, 1056, 3072}) {
    Matrix x = random_matrix(random, 11, depth);
    std::fill_n(&x.at(3, 0), 32, 0.0f);
    x.at(4, 0) = 1e30f;
    const auto rows = quantised("norm_quantise plain", x, depth, {1.0f}, 0);
    bool good = true;
    for (std::int64_t row = 0; row < 11; ++row)
      good = good && same_blocks(rows[static_cast<std::size_t>(row)], chain_blocks(&x.at(row, 0), depth));
    CHECK(good);
  }
}

TEST_CASE("the emulated GPU norms rows in the order of sums that is written, and near double precision") {
  std::mt19937 random(2);
  for (const std::int64_t depth : {32, 896, 3072}) {
    Matrix x = random_matrix(random, 5, depth, 3.0f);
    const std::vector<float> weight = random_floats(random, depth);
    for (const std::uint64_t seed : {0U, 1U}) {
      const auto rows = quantised("norm_quantise normed", x, depth, weight, seed, (1 + seed) * gpu::kMadeSweep);
      bool good = true;
      for (std::int64_t row = 0; row < 5; ++row) {
        const std::vector<float> made = normed_row(&x.at(row, 0), weight);
        good = good && same_blocks(rows[static_cast<std::size_t>(row)], chain_blocks(made.data(), depth));
      }
      CHECK(good);
    }
    double squares = 0.0;
    for (std::int64_t i = 0; i < depth; ++i)
      squares += std::pow(static_cast<double>(x.at(0, i)), 2);
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(depth) + 1e-5);
    const std::vector<float> made = normed_row(&x.at(0, 0), weight);
    for (std::size_t i = 0; i < made.size(); ++i) {
      const double expected = static_cast<double>(x.data[i]) * factor * static_cast<double>(weight[i]);
      CHECK(std::fabs(static_cast<double>(made[i]) - expected) <= 1e-6 * std::fabs(expected));
    }
  }
}

TEST_CASE("the emulated GPU gates rows to the bits of the CPU level avx512") {
  if (!cpu_levels()[2].supported()) {
    WARN("skipped: this processor has no AVX-512 VNNI");
    return;
  }
  const auto cpu = make_cpu_backend({.kernels = cpu_levels()[2].table(), .threads = 1, .pin = false});
  std::mt19937 random(3);
  Matrix x = random_matrix(random, 9, 2 * 288, 20.0f);
  x.at(0, 0) = -100.0f;
  x.at(1, 0) = 100.0f;
  const std::vector<float> made = made_rows(*cpu, gated(x.view()));
  const auto rows = quantised("norm_quantise gated", x, 288, {1.0f}, 0);
  for (std::size_t row = 0; row < 9; ++row)
    CHECK(same_blocks(rows[row], chain_blocks(made.data() + row * 288, 288)));
}

TEST_CASE("a missing barrier of the norm is found") {
  std::mt19937 random(4);
  const Matrix x = random_matrix(random, 1, 1024);
  const std::vector<float> weight = random_floats(random, 1024);
  const auto run_with = [&](const EmulatedDeviceOptions& options) {
    EmulatedDevice device(options);
    const DeviceMatrix in(device, x);
    const DeviceArray<float> norm(device, weight);
    const DeviceArray<ActTile> tiles(device, std::vector<ActTile>(32));
    const NormQuantiseArgs args{.x = in.view().data,
                                .stride = x.stride,
                                .depth = 1024,
                                .piece = 1024,
                                .norm_weight = norm.data(),
                                .eps = 1e-5f,
                                .tiles = tiles.data(),
                                .tile_stride = 1};
    device.launch(device.kernel("norm_quantise normed"), {}, args);
    return row_of_tiles(tiles.read(), 0, 32);
  };
  const std::vector<ChainBlock> right = run_with({});
  CHECK_FALSE(same_blocks(right, run_with({.mutation = {gpu::Mutation::Kind::kSkipBlockBarrier, 0}})));
}

TEST_CASE("the emulated GPU embeds rows of every type as dequantize decodes them") {
  for (const DType type : kAllTypes) {
    INFO(dtype_info(type).name);
    std::mt19937 random(5);
    const Weights table = random_weights(random, type, 21, 256);
    const std::vector<float> decoded = table.decoded();
    const std::vector<std::int32_t> ids = {20, 0, 3, 3};
    EmulatedDevice device({});
    std::vector<std::byte> placed = table.bytes;
    std::string name = "embed ";
    if (gpu::lies_in_strips(type)) {
      const std::size_t group_bytes = gpu::strip_group_bytes(type, 256);
      placed.resize(gpu::strips_bytes(type, 21, 256));
      for (std::int64_t group = 0; group < 2; ++group)
        gpu::pack_strip_group(table.source(), group, placed.data() + static_cast<std::size_t>(group) * group_bytes);
      name += gpu::form_name(type);
    } else {
      name += type == DType::kF8 ? "F8" : std::string(dtype_info(type).name);
    }
    const DeviceArray<std::byte> on_device(device, placed);
    const DeviceArray<std::int32_t> chosen(device, ids);
    const DeviceMatrix rows(device, Matrix(4, 256));
    const gpu::EmbedArgs args{.table = on_device.data(),
                              .ids = chosen.data(),
                              .cols = 256,
                              .out = rows.view().data,
                              .out_stride = rows.view().stride};
    device.launch(device.kernel(name), {.x = 4}, args);
    Matrix out = rows.read();
    CHECK(out.padding_untouched());
    bool good = true;
    for (std::int64_t row = 0; row < 4; ++row) {
      const auto from = static_cast<std::size_t>(ids[static_cast<std::size_t>(row)] * 256);
      for (std::size_t col = 0; col < 256; ++col) {
        good = good && std::bit_cast<std::uint32_t>(out.at(row, static_cast<std::int64_t>(col))) ==
                           std::bit_cast<std::uint32_t>(decoded[from + col]);
      }
    }
    CHECK(good);
  }
}

}  // namespace quire::test
