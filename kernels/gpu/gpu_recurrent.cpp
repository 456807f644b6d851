#include "kernels/gpu/gpu_recurrent.h"

#include <algorithm>
#include <cmath>

#include "kernels/check.h"
#include "kernels/gpu/kernels/row_ops.h"

namespace quire::gpu {
namespace {

RowsView rows_view(MatrixView x) {
  return {x.data, x.stride};
}

}  // namespace

GpuStateStorage::GpuStateStorage(Device& device, const StateLayout& layout)
    : device_(device),
      layout_(layout),
      memory_(device, state_bytes() * static_cast<std::size_t>(layout.num_states), "recurrent states") {
  QUIRE_CHECK(layout.floats % kStatePanel == 0, "a recurrent state is not a whole number of panels");
  device.fill(memory_.data(), std::byte{0}, memory_.bytes(), Stream::kCompute);
}

std::size_t GpuStateStorage::state_bytes() const {
  return static_cast<std::size_t>(layout_.floats) * sizeof(float);
}

std::byte* GpuStateStorage::at(std::int32_t state) const {
  QUIRE_CHECK(state >= 0 && state < layout_.num_states, "recurrent state out of range");
  return memory_.data() + static_cast<std::size_t>(state) * state_bytes();
}

void GpuStateStorage::copy_state(std::int32_t source, std::int32_t destination) {
  copy(source, destination, Stream::kCompute);
}

void GpuStateStorage::copy(std::int32_t source, std::int32_t destination, Stream stream) {
  if (source == destination) return;
  const CopyBytesArgs args{
      .from = at(source), .to = at(destination), .bytes = static_cast<std::int64_t>(state_bytes())};
  device_.launch(device_.kernel("copy_bytes"), {.x = groups_of(args.bytes, CopyBytes::kThreads * 16)}, args, stream);
}

void GpuStateStorage::read_state(std::int32_t state, std::span<std::byte> out) const {
  QUIRE_CHECK(out.size() == state_bytes(), "recurrent state of another size");
  device_.copy_to_host(out.data(), at(state), out.size(), Stream::kCompute);
  device_.synchronize();
}

void GpuStateStorage::write_state(std::int32_t state, std::span<const std::byte> in) {
  QUIRE_CHECK(in.size() == state_bytes(), "recurrent state of another size");
  device_.copy_to_device(at(state), in.data(), in.size(), Stream::kCompute);
  device_.synchronize();
}

GpuRecurrentOps::GpuRecurrentOps(Device& device, StepUploads& uploads)
    : device_(device),
      uploads_(uploads),
      short_conv_(device.kernel("short_conv")),
      delta_(device.kernel("advance_state delta")),
      delta_per_channel_(device.kernel("advance_state channels")),
      state_space_(device.kernel("advance_state space")),
      selective_scan_(device.kernel("selective_scan")),
      gated_norm_(device.kernel("gated_norm")) {}

std::unique_ptr<StateStorage> GpuRecurrentOps::allocate_states(const StateLayout& layout) {
  return std::make_unique<GpuStateStorage>(device_, layout);
}

SequenceStates GpuRecurrentOps::sequences_of(const AttentionBatch& batch, const StatePart& part) {
  const auto& storage = static_cast<const GpuStateStorage&>(*part.storage);
  const StateLayout& layout = storage.layout();
  QUIRE_CHECK(batch.state_ids.size() == batch.context_len.size(), "a recurrent layer without states");
  QUIRE_CHECK(std::ranges::all_of(batch.state_ids, [&](std::int32_t id) { return id >= 0 && id < layout.num_states; }),
              "recurrent state out of range");
  return {.query_start = uploads_.put(batch.query_start),
          .context_len = uploads_.put(batch.context_len),
          .state_ids = uploads_.put(batch.state_ids),
          .states = storage.data() + part.offset,
          .state_floats = layout.floats};
}

void GpuRecurrentOps::short_conv(const AttentionBatch& batch, const StatePart& state, const ConvArgs& args,
                                 MatrixView x, MatrixView before, MatrixView after, MatrixView out) {
  QUIRE_CHECK(args.taps >= 2 && args.taps <= ShortConv::kMostTaps, "a convolution of fewer than 2 or more than 8 taps");
  if (x.rows == 0) return;
  const ShortConvArgs of_rows{.sequences = sequences_of(batch, state),
                              .channels = x.cols,
                              .taps = static_cast<int>(args.taps),
                              .weights = args.weights,
                              .bias = args.bias,
                              .silu = args.silu,
                              .x = rows_view(x),
                              .before = rows_view(before),
                              .after = rows_view(after),
                              .out = rows_view(out)};
  device_.launch(short_conv_, {.x = groups_of(x.cols, ShortConv::kThreads), .y = std::ssize(batch.context_len)},
                 of_rows);
}

void GpuRecurrentOps::advance(const Kernel& kernel, const AttentionBatch& batch, const AdvanceArgs& args) {
  device_.launch(kernel,
                 {.x = std::ssize(batch.context_len) * args.value_heads, .y = groups_of(args.value_dim, kStatePanel)},
                 args);
}

void GpuRecurrentOps::delta_rule(const AttentionBatch& batch, const StatePart& state, const DeltaArgs& args,
                                 MatrixView q, MatrixView k, MatrixView v, MatrixView decay, MatrixView beta,
                                 MatrixView out) {
  QUIRE_CHECK(q.cols == args.key_heads * args.key_dim && v.cols == args.value_heads * args.value_dim &&
                  args.value_heads % args.key_heads == 0 && args.key_dim <= most_key_dim() &&
                  decay.cols == args.value_heads * (args.per_channel ? args.key_dim : 1) &&
                  beta.cols == args.value_heads,
              "delta_rule: shapes do not fit");
  if (q.rows == 0) return;
  const AdvanceArgs of_rows{.sequences = sequences_of(batch, state),
                            .k = rows_view(k),
                            .q = rows_view(q),
                            .v = rows_view(v),
                            .decay = rows_view(decay),
                            .beta = rows_view(beta),
                            .out = rows_view(out),
                            .key_heads = args.key_heads,
                            .value_heads = args.value_heads,
                            .key_dim = args.key_dim,
                            .value_dim = args.value_dim,
                            .grouped = args.grouped,
                            .eps = args.eps,
                            .query_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(args.key_dim))),
                            .a = args.a,
                            .dt_bias = args.dt_bias};
  advance(args.per_channel ? delta_per_channel_ : delta_, batch, of_rows);
}

void GpuRecurrentOps::state_space(const AttentionBatch& batch, const StatePart& state, const StateSpaceArgs& args,
                                  MatrixView x, MatrixView b, MatrixView c, MatrixView dt, MatrixView out) {
  QUIRE_CHECK(x.cols == args.num_heads * args.head_dim && b.cols == args.num_groups * args.state_size &&
                  c.cols == b.cols && dt.cols == args.num_heads && args.num_heads % args.num_groups == 0 &&
                  args.state_size <= most_key_dim(),
              "state_space: shapes do not fit");
  if (x.rows == 0) return;
  const AdvanceArgs of_rows{.sequences = sequences_of(batch, state),
                            .k = rows_view(b),
                            .q = rows_view(c),
                            .v = rows_view(x),
                            .decay = rows_view(dt),
                            .out = rows_view(out),
                            .key_heads = args.num_groups,
                            .value_heads = args.num_heads,
                            .key_dim = args.state_size,
                            .value_dim = args.head_dim,
                            .grouped = true,
                            .a = args.a,
                            .dt_bias = args.dt_bias,
                            .d = args.d};
  advance(state_space_, batch, of_rows);
}

void GpuRecurrentOps::selective_scan(const AttentionBatch& batch, const StatePart& state, const SelectiveScanArgs& args,
                                     MatrixView x, MatrixView b, MatrixView c, MatrixView dt, MatrixView out) {
  QUIRE_CHECK(b.cols == args.state_size && c.cols == args.state_size && dt.cols == x.cols && out.cols == x.cols,
              "selective_scan: shapes do not fit");
  if (x.rows == 0) return;
  const SelectiveScanRowsArgs of_rows{.sequences = sequences_of(batch, state),
                                      .channels = x.cols,
                                      .state_size = args.state_size,
                                      .x = rows_view(x),
                                      .b = rows_view(b),
                                      .c = rows_view(c),
                                      .dt = rows_view(dt),
                                      .out = rows_view(out),
                                      .a = args.a,
                                      .d = args.d,
                                      .dt_bias = args.dt_bias};
  device_.launch(selective_scan_, {.x = groups_of(x.cols, SelectiveScan::kThreads), .y = std::ssize(batch.context_len)},
                 of_rows);
}

void GpuRecurrentOps::gated_norm(const GatedNormArgs& args, MatrixView gate, MatrixView x) {
  using Order = GatedNormArgs::Order;
  QUIRE_CHECK(gate.cols == x.cols && args.group > 0 && x.cols % args.group == 0, "gated_norm: shapes do not fit");
  if (x.rows == 0) return;
  const GatedNormRowsArgs of_rows{.gate = rows_view(gate),
                                  .x = rows_view(x),
                                  .group = args.group,
                                  .gates_first = args.order != Order::kNormThenGate,
                                  .norms = args.order != Order::kGateOnly,
                                  .sigmoid = args.sigmoid,
                                  .shared_weight = args.shared_weight,
                                  .weight = args.weight,
                                  .eps = args.eps};
  device_.launch(gated_norm_, {.x = x.rows, .y = x.cols / args.group}, of_rows);
}

}  // namespace quire::gpu
