// Weights packed for a GPU, against a slow and plain reference, and their way to the device.
#include <catch2/catch.hpp>
#include <cstring>

#include "kernels/emulated/emulated_device.h"
#include "kernels/formats/packed_scales.h"
#include "kernels/gpu/device/device_memory.h"
#include "kernels/gpu/moves/weight_uploads.h"
#include "kernels/gpu/pack/half_tiles.h"
#include "kernels/gpu/pack/strips.h"
#include "tests/kernels/random_data.h"

namespace quire::test {
namespace {

using gpu::CodePlace;
using gpu::EmulatedDevice;
using gpu::EmulatedDeviceOptions;
using gpu::PackedGroups;

// `bits` of a code, from its lowest on, into a plane whose loads hold a block's words as unpack.h reads them.
void put_bits(int bits, CodePlace place, int block, unsigned code, std::byte* codes) {
  const auto at = [&](int blocks_per_load, int word) -> std::byte& {
    return codes[block / blocks_per_load * 512 + 16 * place.lane + 4 * word + place.byte];
  };
  if (bits == 8) {
    at(1, place.word) = static_cast<std::byte>(code);
  } else if (bits == 4) {
    at(2, block % 2 * 2 + place.word / 2) |= static_cast<std::byte>((code & 15u) << (4 * (place.word % 2)));
  } else if (bits == 2) {
    at(4, block % 4) |= static_cast<std::byte>((code & 3u) << (2 * place.word));
  } else {
    at(8, block / 2) |= static_cast<std::byte>((code & 1u) << (place.word + 4 * (block % 2)));
  }
}

// Block `number` of a row, in the strips of its group of sixteen outputs.
void put_block(DType type, const QuantGroup& group, int output, std::int64_t number, std::byte* strips) {
  const PackedFormat format = packed_format(type);
  const gpu::StripLayout layout = gpu::strip_layout(format);
  const auto block = static_cast<int>(number % gpu::kStripBlocks);
  const auto column = static_cast<std::size_t>(output);
  std::byte* const strip = strips + number / gpu::kStripBlocks * layout.bytes;
  std::byte* const codes = strip + layout.scale_bytes;
  if (block % format.groups == 0)
    pack_scale_header(format.scales, group, column, strip + gpu::header_offset(format, block));
  pack_scale_entry(format.scales, group, column, strip + gpu::entry_offset(format, block));
  const int low_bits = format.bits == 8 ? 8 : format.bits >= 4 ? 4 : 2;
  for (int i = 0; i < gpu::kBlockFeatures; ++i) {
    const unsigned code = group.quants[static_cast<std::size_t>(i)];
    const CodePlace place = gpu::code_place(output, i);
    put_bits(low_bits, place, block, code, codes);
    if (format.bits > low_bits)
      put_bits(format.bits - low_bits, place, block, code >> low_bits, codes + layout.high_offset);
  }
}

std::vector<std::byte> strips_of(const Weights& weights, std::size_t group_bytes, std::size_t bytes) {
  const DTypeInfo& info = dtype_info(weights.type);
  const std::int64_t block_groups = info.block_size / kSubBlock;
  const std::size_t row_bytes = dtype_bytes(weights.type, weights.cols);
  std::vector<std::byte> out(bytes);
  QuantGroup group;
  for (std::int64_t row = 0; row < weights.rows; ++row) {
    for (std::int64_t block = 0; block < weights.cols / kSubBlock; ++block) {
      const std::byte* const from = weights.bytes.data() + static_cast<std::size_t>(row) * row_bytes +
                                    static_cast<std::size_t>(block / block_groups) * info.block_bytes;
      split_quant_group(weights.type, from, static_cast<int>(block % block_groups), group);
      put_block(weights.type, group, static_cast<int>(row % 16), block,
                out.data() + static_cast<std::size_t>(row / 16) * group_bytes);
    }
  }
  return out;
}

std::vector<std::byte> half_tiles_of(const Weights& weights, std::size_t bytes) {
  const std::int64_t blocks = (weights.cols + gpu::kHalfBlock - 1) / gpu::kHalfBlock;
  std::vector<std::byte> out(bytes);
  for (std::int64_t row = 0; row < weights.rows; ++row) {
    for (std::int64_t col = 0; col < weights.cols; ++col) {
      const std::int64_t tile = row / gpu::kHalfOutputs * blocks + col / gpu::kHalfBlock;
      const std::int64_t place = row % gpu::kHalfOutputs * gpu::kHalfBlock + col % gpu::kHalfBlock;
      std::memcpy(&out[static_cast<std::size_t>(tile * 1024 + 2 * place)],
                  &weights.bytes[static_cast<std::size_t>(2 * (row * weights.cols + col))], 2);
    }
  }
  return out;
}

std::vector<std::byte> reference(const Weights& weights, const PackedGroups& groups) {
  switch (groups.form) {
    case PackedGroups::Form::kStrips: return strips_of(weights, groups.group_bytes, groups.bytes);
    case PackedGroups::Form::kHalfTiles: return half_tiles_of(weights, groups.bytes);
    case PackedGroups::Form::kRows: break;
  }
  return weights.bytes;
}

std::vector<std::byte> packed(const WeightSource& source, const PackedGroups& groups) {
  std::vector<std::byte> out(groups.bytes, std::byte{0xa5});  // every byte is overwritten
  pack_groups(source, groups, 0, groups.count, out.data());
  return out;
}

// Rows of other weights, the first of which is number 3.
class RowsFromThree final : public RowMaker {
 public:
  explicit RowsFromThree(const Weights& weights) : weights_(weights) {}
  void make_row(std::int64_t row, std::byte* out) const override {
    const std::size_t bytes = dtype_bytes(weights_.type, weights_.cols);
    std::memcpy(out, &weights_.bytes[static_cast<std::size_t>(row - 3) * bytes], bytes);
  }

 private:
  const Weights& weights_;
};

std::vector<std::byte> uploaded(const EmulatedDeviceOptions& options, const Weights& weights, std::size_t part_bytes) {
  EmulatedDevice device(options);
  ThreadPool pool(3, {});
  const PackedGroups groups = gpu::groups_of_weights(weights.type, weights.rows, weights.cols);
  const gpu::DeviceMemory memory(device, groups.bytes, "weights");
  gpu::WeightUploads uploads(device, pool, part_bytes);
  uploads.upload(weights.source(), groups, memory.data());
  std::vector<std::byte> out(groups.bytes);
  std::memcpy(out.data(), memory.data(), out.size());
  device.synchronize();
  return out;
}

}  // namespace

TEST_CASE("weights of every type are packed as the plain reference packs them") {
  std::mt19937 random(31);
  for (const DType type : kAllTypes) {
    INFO(dtype_info(type).name);
    const auto block = static_cast<std::int64_t>(dtype_info(type).block_size);
    for (const std::int64_t rows : {1, 8, 9, 16, 37}) {
      const auto cols = block * std::uniform_int_distribution<std::int64_t>(1, 1300 / block)(random);
      INFO(rows << " x " << cols);
      const Weights weights = random_weights(random, type, rows, cols);
      const RowsFromThree maker(weights);
      WeightSource made = weights.source();
      made.data = nullptr;
      made.maker = &maker;
      made.first_row = 3;
      for (const PackedGroups& groups :
           {gpu::groups_of_weights(type, rows, cols), gpu::groups_of_table(type, rows, cols)}) {
        const std::vector<std::byte> right = reference(weights, groups);
        REQUIRE(packed(weights.source(), groups) == right);
        REQUIRE(packed(made, groups) == right);
      }
    }
  }
}

TEST_CASE("weights go to the device in parts, packed by several threads") {
  std::mt19937 random(32);
  for (const DType type : {DType::kQ4_K, DType::kBF16, DType::kF32}) {
    const Weights weights = random_weights(random, type, 163, 512);
    const PackedGroups groups = gpu::groups_of_weights(type, 163, 512);
    const std::vector<std::byte> right = reference(weights, groups);
    // Less than sixteen outputs, several parts, one part.
    for (const std::size_t part_bytes : {std::size_t{1}, 3 * groups.group_bytes + 1, groups.bytes}) {
      for (std::uint64_t seed = 0; seed < 3; ++seed)
        CHECK(uploaded({.seed = seed}, weights, part_bytes) == right);
    }
    EmulatedDevice device({});
    const gpu::DeviceMemory memory(device, groups.bytes, "weights");
    gpu::upload_beside(device, weights.source(), groups, memory.data());
    CHECK(std::memcmp(memory.data(), right.data(), right.size()) == 0);
  }
}

TEST_CASE("each wait for a copy of weights is found where it is left out") {
  std::mt19937 random(33);
  const Weights weights = random_weights(random, DType::kQ8_0, 80, 256);
  const PackedGroups groups = gpu::groups_of_weights(DType::kQ8_0, 80, 256);
  const std::vector<std::byte> right = reference(weights, groups);
  for (int number = 0; number < 3; ++number)  // waits before the third to fifth part: their buffers are in use
    CHECK(uploaded({.ignored_wait = number}, weights, 1) != right);
}

TEST_CASE("a copy of weights that fails is an error of loading") {
  std::mt19937 random(34);
  const Weights weights = random_weights(random, DType::kQ8_0, 80, 256);
  for (int number = 0; number < 5; ++number)
    CHECK_THROWS_AS(uploaded({.failing_copy = number}, weights, 1), gpu::DeviceError);
}

}  // namespace quire::test
