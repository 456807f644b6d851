#include "kernels/gpu/gpu_experts.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/gpu/kernels/experts.h"
#include "kernels/gpu/kernels/linear_f32.h"
#include "kernels/gpu/kernels/linear_half.h"
#include "kernels/gpu/kernels/round_rows.h"
#include "kernels/gpu/kernels/route.h"
#include "kernels/gpu/kernels/row_ops.h"
#include "kernels/gpu/pack/pack_weights.h"

namespace quire::gpu {
namespace {

constexpr std::int64_t kItemRows[] = {8, 32, 64};
constexpr std::size_t kFloats = 2;       // linear_f32 takes the largest items
constexpr std::size_t kMostOfCodes = 1;  // bytes per quantised weight at most

const GpuLinear& packed(const std::unique_ptr<Linear>& linear) {
  return static_cast<const GpuLinear&>(*linear);
}

}  // namespace

GpuExperts::GpuExperts(Device& device)
    : device_(device),
      route_(device.kernel("route")),
      group_(device.kernel("group_choices")),
      plan_(device.kernel("plan_experts")),
      combine_(device.kernel("combine_choices")),
      quantise_{&device.kernel("norm_quantise plain"), &device.kernel("norm_quantise normed"),
                &device.kernel("norm_quantise gated")},
      make_rows_{&device.kernel("make_rows plain"), &device.kernel("make_rows normed"),
                 &device.kernel("make_rows gated")},
      round_f16_{&device.kernel("round_rows F16 plain"), &device.kernel("round_rows F16 normed"),
                 &device.kernel("round_rows F16 gated")},
      round_bf16_{&device.kernel("round_rows BF16 plain"), &device.kernel("round_rows BF16 normed"),
                  &device.kernel("round_rows BF16 gated")} {
  for (std::size_t i = 0; i < std::size(items_); ++i)
    items_[i].rows = kItemRows[i];
}

void GpuExperts::reserve(DeviceMemory& memory, std::int64_t bytes) {
  grow(device_, memory, static_cast<std::size_t>(bytes), "rows of experts");
}

ExpertChoices GpuExperts::route(MatrixView logits, const RouteOptions& options) {
  check_route_shapes(logits, options);
  const std::int64_t count = logits.rows * options.num_chosen;
  reserve(ids_, count * 4);
  reserve(weights_, count * 4);
  reserve(groups_, logits.rows * options.num_groups * 4);
  const ExpertChoices choices{logits.rows, options.num_chosen, ids_.as<const std::int32_t>(),
                              weights_.as<const float>()};
  if (logits.rows == 0) return choices;
  const RouteArgs args{.logits = logits.data,
                       .stride = logits.stride,
                       .num_experts = logits.cols,
                       .options = options,
                       .groups = groups_.as<float>(),
                       .ids = ids_.as<std::int32_t>(),
                       .weights = weights_.as<float>()};
  device_.launch(route_, {.x = logits.rows}, args);
  return choices;
}

void GpuExperts::group(const ExpertChoices& choices, std::int64_t num_experts) {
  num_choices_ = choices.count();
  num_chosen_ = choices.num_chosen;
  num_experts_ = num_experts;
  reserve(ranges_, num_experts * static_cast<std::int64_t>(sizeof(ExpertRange)));
  for (DeviceMemory* each : {&sources_, &row_experts_, &places_})
    reserve(*each, num_choices_ * 4);
  for (Items& each : items_)
    each.is_planned = false;
  const GroupChoicesArgs args{.ids = choices.ids,
                              .num_choices = num_choices_,
                              .num_chosen = choices.num_chosen,
                              .num_experts = num_experts,
                              .ranges = ranges_.as<ExpertRange>(),
                              .sources = sources_.as<std::int32_t>(),
                              .experts = row_experts_.as<std::int32_t>(),
                              .places = places_.as<std::int32_t>()};
  device_.launch(group_, {.x = groups_of(num_experts, GroupChoices::kThreads / kWarpLanes)}, args);
}

// Every expert that has rows may have a last item that is not full.
const GpuExperts::Items& GpuExperts::items_of(std::size_t size) {
  Items& items = items_[size];
  if (items.is_planned) return items;
  items.count = (num_choices_ + (items.rows - 1) * std::min(num_choices_, num_experts_)) / items.rows;
  reserve(items.memory, items.count * static_cast<std::int64_t>(sizeof(ExpertItem)));
  const PlanExpertsArgs args{.ranges = ranges_.as<ExpertRange>(),
                             .num_experts = num_experts_,
                             .item_rows = static_cast<std::int32_t>(items.rows),
                             .num_items = items.count,
                             .items = items.memory.as<ExpertItem>()};
  device_.launch(plan_, {}, args);
  items.is_planned = true;
  return items;
}

const GpuExperts::Stack& GpuExperts::stack_of(Experts experts) {
  const auto found = stacks_.find(packed(experts.front()).serial());
  const auto serial_of = [](const std::unique_ptr<Linear>& expert) { return packed(expert).serial(); };
  if (found != stacks_.end() && std::ranges::equal(found->second.serials, experts, {}, {}, serial_of))
    return found->second;
  Stack& stack = stacks_[packed(experts.front()).serial()];
  stack = make_stack(experts);
  return stack;
}

GpuExperts::Stack GpuExperts::make_stack(Experts experts) {
  Stack stack;
  for (const std::unique_ptr<Linear>& expert : experts)
    stack.serials.push_back(packed(expert).serial());
  for (std::size_t number = 0; number < packed(experts.front()).parts().size(); ++number) {
    const GpuLinear& first = packed(experts.front());
    Part part{.first = &first.parts()[number]};
    const auto* const first_order = part.first->order.as<const std::int32_t>();
    if (first.bias() != nullptr) part.bias = first.bias() + part.first->first_output;
    std::vector<ExpertWeights> table;
    for (const std::unique_ptr<Linear>& expert : experts) {
      const GpuLinear& linear = packed(expert);
      const GpuLinear::Part& own = linear.parts()[number];
      const auto* const order = own.order.as<const std::int32_t>();
      const bool is_alike = own.rows == part.first->rows && &own.one_row() == &part.first->one_row() &&
                            (order == nullptr) == (first_order == nullptr) &&
                            (linear.bias() == nullptr) == (first.bias() == nullptr);
      QUIRE_CHECK(is_alike, "experts of one product are alike");
      table.push_back({.weights = own.weights.data() - part.first->weights.data(),
                       .bias = linear.bias() - first.bias(),
                       .order = order - first_order,
                       .scale = own.scale});
    }
    const std::span bytes = std::as_bytes(std::span(table));
    part.weights = DeviceMemory(device_, bytes.size(), "a table of experts");
    device_.upload(part.weights.data(), bytes.data(), bytes.size());
    stack.parts.push_back(std::move(part));
  }
  return stack;
}

void GpuExperts::multiply(Experts experts, const ProductInput& x, const std::int32_t* sources, MatrixView out) {
  const Stack& stack = stack_of(experts);
  const GpuLinear& first = packed(experts.front());
  QUIRE_CHECK(x.cols() == first.in_features() && out.cols == first.out_features() && out.rows == num_choices_,
              "a product of experts of shapes that do not fit");
  const std::int64_t each = groups_of(num_choices_, std::min(num_choices_, num_experts_));
  const std::size_t size = each <= kItemRows[0] ? 0 : each <= kItemRows[1] ? 1 : 2;
  const GpuLinear::Part* rounded = nullptr;  // the part before, whose input has the order of features of the next
  for (const Part& part : stack.parts) {
    const std::int32_t* const order = part.first->order.as<const std::int32_t>();
    const ExpertRows rows{.sources = sources,
                          .experts = row_experts_.as<const std::int32_t>(),
                          .ranges = ranges_.as<const ExpertRange>(),
                          .weights = part.weights.as<const ExpertWeights>()};
    const LinearOutput output{.rows = out.rows,
                              .outputs = part.first->rows,
                              .out = out.data + part.first->first_output,
                              .out_stride = out.stride,
                              .bias = part.bias};
    if (part.first->floats != nullptr) {
      const Items& items = items_of(kFloats);
      const MatrixView made = make_rows(x, order, rows);
      const LinearFloatArgs args{.weights = part.first->weights.data(),
                                 .x = made.data,
                                 .x_stride = made.stride,
                                 .depth = made.cols,
                                 .output = output,
                                 .experts = {items.memory.as<const ExpertItem>(), rows.weights}};
      device_.launch(*part.first->floats, {.x = groups_of(output.outputs, 64), .y = items.count}, args);
      continue;
    }
    const bool halves = lies_in_half_tiles(part.first->type);
    const Items& items = items_of(halves ? size : std::min(size, kMostOfCodes));
    const GpuLinear::Blocks& few = part.first->few_of(num_choices_ == num_chosen_ ? 1 : items.rows);
    const Grid grid{.x = few.grid(1, output.outputs).x, .y = items.count};
    const bool same_input = rounded != nullptr && order == nullptr && halves == lies_in_half_tiles(rounded->type) &&
                            (!halves || rounded->type == part.first->type);
    rounded = order == nullptr ? part.first : nullptr;
    if (halves) {
      if (!same_input) round(x, order, rows, part.first->type);
      const LinearHalfArgs args{.weights = part.first->weights.as<const WeightTile>(),
                                .x = half_tiles_.as<const HalfTile>(),
                                .row_scales = row_scales_.as<const float>(),
                                .num_blocks = groups_of(x.cols(), kHalfBlock),
                                .output = output,
                                .experts = {items.memory.as<const ExpertItem>(), rows.weights}};
      device_.launch(*few.kernel, grid, args);
      continue;
    }
    if (!same_input) quantise(x, order, rows);
    const LinearIntArgs args{.strips = part.first->weights.data(),
                             .tiles = tiles_.as<const ActTile>(),
                             .tiles_bytes = static_cast<std::uint32_t>(tile_stride() * sizeof(ActTile)),
                             .num_blocks = x.cols() / kBlockFeatures,
                             .output = output,
                             .experts = {items.memory.as<const ExpertItem>(), rows.weights}};
    device_.launch(*few.kernel, grid, args);
  }
}

void GpuExperts::quantise(const ProductInput& x, const std::int32_t* order, const ExpertRows& rows) {
  reserve(tiles_, tile_stride() * (x.cols() / kBlockFeatures) * static_cast<std::int64_t>(sizeof(ActTile)));
  NormQuantiseArgs args = made_by(x, order, rows);
  args.tiles = tiles_.as<ActTile>();
  args.tile_stride = tile_stride();
  const std::int64_t pieces = groups_of(x.cols(), args.piece);
  device_.launch(*quantise_[static_cast<std::size_t>(x.form)], {.x = num_choices_, .y = pieces}, args);
}

void GpuExperts::round(const ProductInput& x, const std::int32_t* order, const ExpertRows& rows, DType type) {
  reserve(half_tiles_, num_tiles() * groups_of(x.cols(), kHalfBlock) * static_cast<std::int64_t>(sizeof(HalfTile)));
  reserve(row_scales_, num_tiles() * kHalfRows * 4);
  const RoundRowsArgs args{
      .made = made_by(x, order, rows), .tiles = half_tiles_.as<HalfTile>(), .scales = row_scales_.as<float>()};
  const auto& kernels = type == DType::kF16 ? round_f16_ : round_bf16_;
  const std::int64_t pieces = groups_of(x.cols(), args.made.piece);
  device_.launch(*kernels[static_cast<std::size_t>(x.form)], {.x = num_choices_, .y = pieces}, args);
}

NormQuantiseArgs GpuExperts::made_by(const ProductInput& x, const std::int32_t* order, const ExpertRows& rows) const {
  return {.x = x.x.data,
          .stride = x.x.stride,
          .depth = x.cols(),
          .piece = made_piece(num_choices_, x.cols()),
          .norm_weight = x.norm_weight,
          .eps = x.eps,
          .order = order,
          .experts = rows};
}

// Every expert that has rows may have a last tile that is not full.
std::int64_t GpuExperts::num_tiles() const {
  return (num_choices_ + (kTileRows - 1) * std::min(num_choices_, num_experts_)) / kTileRows;
}

MatrixView GpuExperts::make_rows(const ProductInput& x, const std::int32_t* order, const ExpertRows& rows) {
  const std::int64_t count = num_choices_;
  reserve(made_rows_, count * x.cols() * 4);
  const MatrixView made{made_rows_.as<float>(), count, x.cols(), x.cols()};
  const RowsArgs args{.x = x.x.data,
                      .x_stride = x.x.stride,
                      .cols = x.cols(),
                      .weight = x.norm_weight,
                      .eps = x.eps,
                      .order = order,
                      .out = made.data,
                      .out_stride = made.stride,
                      .experts = rows};
  device_.launch(*make_rows_[static_cast<std::size_t>(x.form)], {.x = count}, args);
  return made;
}

void GpuExperts::combine(MatrixView results, const ExpertChoices& choices, MatrixView out) {
  const CombineArgs args{.results = results.data,
                         .results_stride = results.stride,
                         .places = places_.as<const std::int32_t>(),
                         .weights = choices.weights,
                         .each = choices.num_chosen,
                         .cols = out.cols,
                         .out = out.data,
                         .out_stride = out.stride};
  device_.launch(combine_, {.x = out.rows}, args);
}

}  // namespace quire::gpu
