#include "kernels/gpu/gpu_linear.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "kernels/check.h"
#include "kernels/gpu/form_names.h"
#include "kernels/gpu/kernels/linear_f32.h"
#include "kernels/gpu/kernels/linear_half.h"
#include "kernels/gpu/kernels/norm_quantise.h"
#include "kernels/gpu/kernels/round_rows.h"
#include "kernels/gpu/kernels/row_ops.h"
#include "kernels/gpu/pack/pack_weights.h"

namespace quire::gpu {
namespace {

template <class T>
DeviceMemory upload_array(Device& device, std::span<const T> values, std::string_view what,
                          DeviceMemory::Release release = DeviceMemory::Release::kNow) {
  DeviceMemory memory(device, values.size_bytes(), what, release);
  device.upload(memory.data(), reinterpret_cast<const std::byte*>(values.data()), values.size_bytes());
  return memory;
}

std::uint64_t next_serial() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

// Matrices one behind the other as the device's products read them; returns when the device has them.
DeviceMemory place_weights(Device& device, WeightUploads* uploads, std::span<const WeightSource> sources,
                           DeviceMemory::Release release) {
  std::vector<PackedGroups> groups;
  std::size_t bytes = 0;
  for (const WeightSource& source : sources) {
    groups.push_back(groups_of_weights(source.type, source.rows, source.cols));
    bytes += groups.back().bytes;
  }
  DeviceMemory memory(device, bytes, "weights", release);
  std::byte* to = memory.data();
  for (std::size_t i = 0; i < sources.size(); to += groups[i++].bytes) {
    if (uploads != nullptr) {
      uploads->upload(sources[i], groups[i], to);
    } else {
      upload_beside(device, sources[i], groups[i], to);
    }
  }
  return memory;
}

// Returns whether a product computes both at once: the second follows the first as its further outputs.
bool is_one_matrix(const WeightSource& first, const WeightSource& second) {
  return first.type == second.type && first.scale == second.scale && first.order == nullptr &&
         second.order == nullptr && first.rows % kStripOutputs == 0;
}

GpuLinear::Blocks half_blocks(Device& device, const std::string& name, const HalfShape& shape) {
  return {.kernel = &device.kernel(name), .rows = shape.rows(), .outputs = shape.outputs()};
}

// Blocks for nearly every multiprocessor of a large GPU.
constexpr std::int64_t kEnoughBlocks = 100;

void choose_half_kernels(Device& device, const std::string& name, GpuLinear::Part& part) {
  GpuLinear::Blocks middle = half_blocks(device, name + " middle", kHalfMiddle);
  GpuLinear::Blocks wide = half_blocks(device, name + " wide", kHalfWide);
  part.few = {half_blocks(device, name + " 1", kHalfFew[0]), half_blocks(device, name + " 4", kHalfFew[1]),
              half_blocks(device, name + " 8", kHalfFew[2])};
  part.few[0].most_rows = part.few[0].rows;
  part.few[1].most_rows = part.few[1].rows;
  wide.least_blocks = kEnoughBlocks;
  part.many = {wide, middle};
}

void choose_kernels(Device& device, DType type, std::int64_t depth, GpuLinear::Part& part) {
  const std::string form(form_name(type));
  if (lies_in_half_tiles(type)) return choose_half_kernels(device, "linear_half " + form, part);
  if (!lies_in_strips(type)) {
    part.floats = &device.kernel("linear_f32 " + form);
    return;
  }
  const auto blocks = [&](const std::string& name, std::int64_t rows, std::int64_t most_rows) {
    return GpuLinear::Blocks{
        .kernel = &device.kernel(name), .rows = rows, .outputs = kStripOutputs, .most_rows = most_rows};
  };
  const std::string row = "linear_row " + form;
  const std::string skinny = "linear_skinny " + form;
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  GpuLinear::Blocks of_32 = blocks(skinny + " 4 2", 32, kAny);
  of_32.outputs = 2 * kStripOutputs;
  of_32.least_blocks = 3 * kEnoughBlocks;
  if (depth > 4 * kDepthCut) {
    part.few = {blocks(row + " deep", 1, 1)};
  } else {
    part.few = {blocks(row, 1, 1), blocks(row + " few", 1, 1)};
    part.few[0].least_blocks = 5 * kEnoughBlocks;  // fewer have a multiprocessor's shared memory for themselves
  }
  part.few.insert(part.few.end(), {blocks(skinny + " 1", 8, 8), blocks(skinny + " 2", 16, 16),
                                   blocks(skinny + " 4", 32, 32), of_32, blocks(skinny + " 4", 32, kAny)});
  GpuLinear::Blocks wide = blocks("linear_wide " + form, 128, kAny);
  wide.outputs = 128;
  wide.least_blocks = kEnoughBlocks;
  part.many = {wide, of_32, blocks(skinny + " 4", 32, kAny)};
}

}  // namespace

DeviceMemory place_table(Device& device, WeightUploads& uploads, const WeightSource& source) {
  const PackedGroups groups = groups_of_table(source.type, source.rows, source.cols);
  DeviceMemory memory(device, groups.bytes, "weights");
  uploads.upload(source, groups, memory.data());
  return memory;
}

GpuLinear::GpuLinear(Device& device, std::span<const WeightSource> parts, std::span<const float> bias,
                     WeightUploads* uploads)
    : serial_(next_serial()) {
  QUIRE_CHECK(!parts.empty(), "a linear operation without weights");
  in_features_ = parts[0].cols;
  while (!parts.empty()) {
    std::size_t count = 1;
    while (count < parts.size() && is_one_matrix(parts[count - 1], parts[count]))
      ++count;
    add(device, uploads, parts.first(count), DeviceMemory::Release::kNow);
    parts = parts.subspan(count);
  }
  QUIRE_CHECK(bias.empty() || static_cast<std::int64_t>(bias.size()) == out_features_, "bias of another length");
  if (!bias.empty()) bias_ = upload_array<float>(device, bias, "a bias");
}

GpuLinear::GpuLinear(std::shared_ptr<Device> device, const WeightSource& matrix)
    : owner_(std::move(device)), in_features_(matrix.cols), serial_(next_serial()) {
  add(*owner_, nullptr, {&matrix, 1}, DeviceMemory::Release::kBehind);
}

void GpuLinear::add(Device& device, WeightUploads* uploads, std::span<const WeightSource> sources,
                    DeviceMemory::Release release) {
  const WeightSource& source = sources.front();
  Part part{.first_output = out_features_, .scale = source.scale, .type = source.type};
  for (const WeightSource& each : sources) {
    QUIRE_CHECK(each.cols == in_features_ && each.rows > 0, "stacked weights of different depth");
    QUIRE_CHECK(each.cols % dtype_info(each.type).block_size == 0, "weights cut through a block");
    part.rows += each.rows;
  }
  part.weights = place_weights(device, uploads, sources, release);
  if (source.order != nullptr) {
    const std::span order(source.order, static_cast<std::size_t>(source.cols));
    part.order = upload_array<std::int32_t>(device, order, "the order of input features", release);
  }
  choose_kernels(device, source.type, in_features_, part);
  out_features_ += part.rows;
  parts_.push_back(std::move(part));
}

std::size_t GpuLinear::bytes() const {
  std::size_t bytes = bias_.bytes();
  for (const Part& part : parts_)
    bytes += part.weights.bytes() + part.order.bytes();
  return bytes;
}

Grid GpuLinear::Blocks::grid(std::int64_t num_rows, std::int64_t num_outputs) const {
  return {.x = groups_of(num_outputs, outputs), .y = groups_of(num_rows, rows)};
}

const GpuLinear::Blocks& GpuLinear::Part::few_of(std::int64_t num_rows) const {
  return *std::ranges::find_if(few,
                               [&](const Blocks& each) { return each.rows >= num_rows && each.least_blocks == 0; });
}

// Rows padded to whole blocks of the kernel.
std::int64_t GpuLinearRunner::tile_stride(std::int64_t rows) const {
  return tiles_of_rows(rows, rows > options_.skinny_rows ? 128 : rows <= 8 ? 8 : rows <= 16 ? 16 : 32);
}

GpuLinearRunner::GpuLinearRunner(Device& device, const Options& options)
    : device_(device),
      options_(options),
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
  const std::int64_t tiles = tile_stride(x.x.rows) * (x.cols() / kBlockFeatures);
  grow(device_, tiles_, static_cast<std::size_t>(tiles) * sizeof(ActTile), "activations as int8");
  const NormQuantiseArgs args{.x = x.x.data,
                              .stride = x.x.stride,
                              .depth = x.cols(),
                              .piece = made_piece(x.x.rows, x.cols()),
                              .norm_weight = x.norm_weight,
                              .eps = x.eps,
                              .order = order,
                              .tiles = tiles_.as<ActTile>(),
                              .tile_stride = tile_stride(x.x.rows)};
  device_.launch(*quantise_[static_cast<std::size_t>(x.form)], {.x = x.x.rows, .y = groups_of(x.cols(), args.piece)},
                 args);
}

void GpuLinearRunner::round(const ProductInput& x, const std::int32_t* order, DType type) {
  const std::int64_t tiles = groups_of(x.x.rows, kHalfRows) * groups_of(x.cols(), kHalfBlock);
  grow(device_, half_tiles_, static_cast<std::size_t>(tiles) * sizeof(HalfTile), "activations of 16 bits");
  grow(device_, row_scales_, static_cast<std::size_t>(x.x.rows) * sizeof(float), "scales of activations");
  const RoundRowsArgs args{.made = {.x = x.x.data,
                                    .stride = x.x.stride,
                                    .depth = x.cols(),
                                    .piece = made_piece(x.x.rows, x.cols()),
                                    .norm_weight = x.norm_weight,
                                    .eps = x.eps,
                                    .order = order},
                           .tiles = half_tiles_.as<HalfTile>(),
                           .scales = row_scales_.as<float>()};
  const auto& kernels = type == DType::kF16 ? round_f16_ : round_bf16_;
  device_.launch(*kernels[static_cast<std::size_t>(x.form)], {.x = x.x.rows, .y = groups_of(x.cols(), args.made.piece)},
                 args);
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

// Launches the kernel for this number of rows.
template <class Args>
void GpuLinearRunner::launch(const GpuLinear::Part& part, const Args& args) {
  const LinearOutput& output = args.output;
  const std::vector<GpuLinear::Blocks>& blocks = output.rows > options_.skinny_rows ? part.many : part.few;
  const auto fits = [&](const GpuLinear::Blocks& each) {
    const Grid grid = each.grid(output.rows, output.outputs);
    return output.rows <= each.most_rows && (options_.any_blocks || grid.x * grid.y >= each.least_blocks);
  };
  const GpuLinear::Blocks& chosen = *std::ranges::find_if(blocks, fits);
  device_.launch(*chosen.kernel, chosen.grid(output.rows, output.outputs), args);
}

void GpuLinearRunner::multiply(const GpuLinear::Part& part, std::int64_t depth, const LinearOutput& output) {
  launch(part, LinearIntArgs{.strips = part.weights.data(),
                             .tiles = tiles_.as<const ActTile>(),
                             .tiles_bytes = static_cast<std::uint32_t>(tile_stride(output.rows) * sizeof(ActTile)),
                             .num_blocks = depth / kBlockFeatures,
                             .output = output});
}

void GpuLinearRunner::multiply_halves(const GpuLinear::Part& part, std::int64_t depth, const LinearOutput& output) {
  launch(part, LinearHalfArgs{.weights = part.weights.as<const WeightTile>(),
                              .x = half_tiles_.as<const HalfTile>(),
                              .row_scales = row_scales_.as<const float>(),
                              .num_blocks = groups_of(depth, kHalfBlock),
                              .output = output});
}

}  // namespace quire::gpu
