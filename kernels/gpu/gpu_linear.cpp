#include "kernels/gpu/gpu_linear.h"

#include <atomic>
#include <string>

#include "kernels/check.h"
#include "kernels/gpu/form_names.h"
#include "kernels/gpu/kernels/linear_f32.h"
#include "kernels/gpu/kernels/linear_half.h"
#include "kernels/gpu/kernels/norm_quantise.h"
#include "kernels/gpu/kernels/round_rows.h"
#include "kernels/gpu/kernels/row_ops.h"
#include "kernels/gpu/pack_halves.h"
#include "kernels/gpu/pack_strips.h"

namespace quire::gpu {
namespace {

std::int64_t groups_of(std::int64_t count, std::int64_t group) {
  return (count + group - 1) / group;
}

template <class T>
DeviceMemory upload_array(Device& device, std::span<const T> values, std::string_view what,
                          DeviceMemory::Release release = DeviceMemory::Release::kNow) {
  DeviceMemory memory(device, values.size_bytes(), what, release);
  device.upload(memory.data(), reinterpret_cast<const std::byte*>(values.data()), values.size_bytes());
  return memory;
}

std::vector<std::byte> pack_strips(const WeightSource& source) {
  const std::size_t group_bytes = strip_group_bytes(source.type, source.cols);
  std::vector<std::byte> packed(strips_bytes(source.type, source.rows, source.cols));
  for (std::int64_t group = 0; group < groups_of(source.rows, kStripOutputs); ++group)
    pack_strip_group(source, group, packed.data() + static_cast<std::size_t>(group) * group_bytes);
  return packed;
}

std::vector<std::byte> make_all_rows(const WeightSource& source) {
  const std::size_t row_bytes = dtype_bytes(source.type, source.cols);
  std::vector<std::byte> made(row_bytes * static_cast<std::size_t>(source.rows));
  for (std::int64_t row = 0; row < source.rows; ++row)
    source.maker->make_row(source.first_row + row, made.data() + static_cast<std::size_t>(row) * row_bytes);
  return made;
}

std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

void choose_kernels(Device& device, DType type, GpuLinear::Part& part) {
  const std::string form(form_name(type));
  const bool halves = lies_in_half_tiles(type);
  if (!halves && !lies_in_strips(type)) {
    part.floats = &device.kernel("linear_f32 " + form);
    return;
  }
  const std::string few = (halves ? "linear_half " : "linear_skinny ") + form;
  part.skinny[0] = &device.kernel(few + " 1");
  part.skinny[1] = &device.kernel(few + " 4");
  part.skinny[2] = &device.kernel(few + " 8");
  if (halves) part.middle = &device.kernel(few + " middle");
  part.wide = &device.kernel(halves ? few + " wide" : "linear_wide " + form);
}

}  // namespace

DeviceMemory place_table(Device& device, const WeightSource& source, DeviceMemory::Release release) {
  const auto upload = [&](std::span<const std::byte> bytes) {
    return upload_array<std::byte>(device, bytes, "weights", release);
  };
  if (lies_in_strips(source.type)) return upload(pack_strips(source));
  if (source.maker != nullptr) return upload(make_all_rows(source));
  return upload({source.data, dtype_bytes(source.type, source.cols) * static_cast<std::size_t>(source.rows)});
}

DeviceMemory place_weights(Device& device, const WeightSource& source, DeviceMemory::Release release) {
  if (!lies_in_half_tiles(source.type)) return place_table(device, source, release);
  std::vector<std::byte> packed(half_tiles_bytes(source.rows, source.cols));
  pack_half_tiles(source, packed);
  return upload_array<std::byte>(device, packed, "weights", release);
}

std::size_t placed_bytes(DType type, std::int64_t rows, std::int64_t cols) {
  if (lies_in_half_tiles(type)) return half_tiles_bytes(rows, cols);
  if (lies_in_strips(type)) return strips_bytes(type, rows, cols);
  return dtype_bytes(type, cols) * static_cast<std::size_t>(rows);
}

GpuLinear::GpuLinear(Device& device, std::span<const WeightSource> parts, std::span<const float> bias)
    : serial_(next_serial()) {
  QUIRE_CHECK(!parts.empty(), "a linear operation without weights");
  in_features_ = parts[0].cols;
  for (const WeightSource& source : parts)
    add(device, source, DeviceMemory::Release::kNow);
  QUIRE_CHECK(bias.empty() || static_cast<std::int64_t>(bias.size()) == out_features_, "bias of another length");
  if (!bias.empty()) bias_ = upload_array<float>(device, bias, "a bias");
}

GpuLinear::GpuLinear(std::shared_ptr<Device> device, const WeightSource& matrix)
    : owner_(std::move(device)), in_features_(matrix.cols), serial_(next_serial()) {
  add(*owner_, matrix, DeviceMemory::Release::kBehind);
}

void GpuLinear::add(Device& device, const WeightSource& source, DeviceMemory::Release release) {
  QUIRE_CHECK(source.cols == in_features_ && source.rows > 0, "stacked weights of different depth");
  QUIRE_CHECK(source.cols % dtype_info(source.type).block_size == 0, "weights cut through a block");
  Part part{.rows = source.rows, .first_output = out_features_, .scale = source.scale, .type = source.type};
  part.weights = place_weights(device, source, release);
  if (source.order != nullptr) {
    const std::span order(source.order, static_cast<std::size_t>(source.cols));
    part.order = upload_array<std::int32_t>(device, order, "the order of input features", release);
  }
  choose_kernels(device, source.type, part);
  out_features_ += source.rows;
  parts_.push_back(std::move(part));
}

std::size_t GpuLinear::bytes() const {
  std::size_t bytes = bias_.bytes();
  for (const Part& part : parts_)
    bytes += part.weights.bytes() + part.order.bytes();
  return bytes;
}

GpuLinearRunner::GpuLinearRunner(Device& device, std::int64_t skinny_rows)
    : device_(device),
      skinny_rows_(skinny_rows),
      quantise_{&device.kernel("norm_quantise plain"), &device.kernel("norm_quantise normed"),
                &device.kernel("norm_quantise gated")},
      make_rows_{&device.kernel("make_rows plain"), &device.kernel("make_rows normed"),
                 &device.kernel("make_rows gated")},
      round_f16_{&device.kernel("round_rows F16 plain"), &device.kernel("round_rows F16 normed"),
                 &device.kernel("round_rows F16 gated")},
      round_bf16_{&device.kernel("round_rows BF16 plain"), &device.kernel("round_rows BF16 normed"),
                  &device.kernel("round_rows BF16 gated")} {}

void GpuLinearRunner::run(const GpuLinear& weights, const ProductInput& x, MatrixView out, bool accumulate) {
  QUIRE_CHECK(x.cols() == weights.in_features() && out.cols == weights.out_features() && x.x.rows == out.rows,
              "a product of shapes that do not fit");
  const GpuLinear::Part* in_tiles = nullptr;  // the part whose input the tiles hold
  const GpuLinear::Part* in_half_tiles = nullptr;
  for (const GpuLinear::Part& part : weights.parts()) {
    const auto* order = part.order.as<const std::int32_t>();
    const LinearOutput output{.rows = out.rows,
                              .outputs = part.rows,
                              .out = out.data + part.first_output,
                              .out_stride = out.stride,
                              .bias = weights.bias() == nullptr ? nullptr : weights.bias() + part.first_output,
                              .scale = part.scale,
                              .accumulate = accumulate};
    if (part.floats != nullptr) {
      const bool as_it_is = x.form == ProductInput::Form::kPlain && order == nullptr;
      multiply_floats(part, as_it_is ? x.x : make_rows(x, order), output);
      continue;
    }
    const bool halves = lies_in_half_tiles(part.type);
    const GpuLinear::Part*& rounded = halves ? in_half_tiles : in_tiles;
    const bool same_input = rounded != nullptr && rounded->order.data() == nullptr && order == nullptr &&
                            (!halves || rounded->type == part.type);
    rounded = &part;
    if (halves) {
      if (!same_input) round(x, order, part.type);
      multiply_halves(part, weights.in_features(), output);
    } else {
      if (!same_input) quantise(x, order);
      multiply(part, weights.in_features(), output);
    }
  }
}

void GpuLinearRunner::quantise(const ProductInput& x, const std::int32_t* order) {
  const auto tiles = static_cast<std::size_t>(groups_of(x.x.rows, kTileRows) * (x.cols() / kBlockFeatures));
  grow(device_, tiles_, tiles * sizeof(ActTile), "activations as int8");
  const NormQuantiseArgs args{.x = x.x.data,
                              .stride = x.x.stride,
                              .depth = x.cols(),
                              .norm_weight = x.norm_weight,
                              .eps = x.eps,
                              .order = order,
                              .tiles = tiles_.as<ActTile>()};
  device_.launch(*quantise_[static_cast<std::size_t>(x.form)], {.x = x.x.rows}, args);
}

void GpuLinearRunner::round(const ProductInput& x, const std::int32_t* order, DType type) {
  const std::int64_t tiles = groups_of(x.x.rows, kHalfRows) * groups_of(x.cols(), kHalfBlock);
  grow(device_, half_tiles_, static_cast<std::size_t>(tiles) * sizeof(HalfTile), "activations of 16 bits");
  grow(device_, row_scales_, static_cast<std::size_t>(x.x.rows) * sizeof(float), "scales of activations");
  const RoundRowsArgs args{.made = {.x = x.x.data,
                                    .stride = x.x.stride,
                                    .depth = x.cols(),
                                    .norm_weight = x.norm_weight,
                                    .eps = x.eps,
                                    .order = order},
                           .tiles = half_tiles_.as<HalfTile>(),
                           .scales = row_scales_.as<float>()};
  const auto& kernels = type == DType::kF16 ? round_f16_ : round_bf16_;
  device_.launch(*kernels[static_cast<std::size_t>(x.form)], {.x = x.x.rows}, args);
}

MatrixView GpuLinearRunner::make_rows(const ProductInput& x, const std::int32_t* order) {
  grow(device_, made_rows_, static_cast<std::size_t>(x.x.rows * x.cols()) * sizeof(float), "activations");
  const MatrixView made{made_rows_.as<float>(), x.x.rows, x.cols(), x.cols()};
  const RowsArgs args{.x = x.x.data,
                      .x_stride = x.x.stride,
                      .cols = x.cols(),
                      .weight = x.norm_weight,
                      .eps = x.eps,
                      .order = order,
                      .out = made.data,
                      .out_stride = made.stride};
  device_.launch(*make_rows_[static_cast<std::size_t>(x.form)], {.x = x.x.rows}, args);
  return made;
}

void GpuLinearRunner::multiply_floats(const GpuLinear::Part& part, MatrixView x, const LinearOutput& output) {
  const LinearFloatArgs args{
      .weights = part.weights.data(), .x = x.data, .x_stride = x.stride, .depth = x.cols, .output = output};
  device_.launch(*part.floats, {.x = groups_of(output.outputs, 64), .y = groups_of(output.rows, 64)}, args);
}

// The kernel for so many rows.
template <class Args>
void GpuLinearRunner::launch(const GpuLinear::Part& part, const Args& args) {
  const LinearOutput& output = args.output;
  if (output.rows > skinny_rows_) {
    device_.launch(*part.wide, {.x = groups_of(output.outputs, 128), .y = groups_of(output.rows, 128)}, args);
    return;
  }
  const std::size_t size = output.rows <= 8 ? 0 : output.rows <= 32 ? 1 : 2;
  constexpr std::int64_t kRows[] = {8, 32, 64};
  device_.launch(*part.skinny[size],
                 {.x = groups_of(output.outputs, kStripOutputs), .y = groups_of(output.rows, kRows[size])}, args);
}

void GpuLinearRunner::multiply(const GpuLinear::Part& part, std::int64_t depth, const LinearOutput& output) {
  launch(part, LinearIntArgs{.strips = part.weights.data(),
                             .tiles = tiles_.as<const ActTile>(),
                             .num_blocks = depth / kBlockFeatures,
                             .output = output});
}

void GpuLinearRunner::multiply_halves(const GpuLinear::Part& part, std::int64_t depth, const LinearOutput& output) {
  const LinearHalfArgs args{.weights = part.weights.as<const WeightTile>(),
                            .x = half_tiles_.as<const HalfTile>(),
                            .row_scales = row_scales_.as<const float>(),
                            .num_blocks = groups_of(depth, kHalfBlock),
                            .output = output};
  const auto grid_of = [&](const HalfShape& shape) {
    return Grid{.x = groups_of(output.outputs, shape.outputs()), .y = groups_of(output.rows, shape.rows())};
  };
  // Blocks enough for nearly every multiprocessor of a large GPU.
  const auto is_enough = [](const Grid& grid) { return grid.x * grid.y >= 100; };
  const bool many = output.rows > skinny_rows_;
  const std::size_t few = output.rows <= 8 ? 0 : output.rows <= 32 ? 1 : 2;
  if (many && (skinny_rows_ == 0 || is_enough(grid_of(kHalfWide)))) {
    device_.launch(*part.wide, grid_of(kHalfWide), args);
  } else if (many || (few == 2 && is_enough(grid_of(kHalfMiddle)))) {
    device_.launch(*part.middle, grid_of(kHalfMiddle), args);
  } else {
    device_.launch(*part.skinny[few], grid_of(kHalfFew[few]), args);
  }
}

}  // namespace quire::gpu
