#include "kernels/cpu/cpu_state_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/check.h"
#include "kernels/cpu/rows/graph_math.h"

namespace quire {
namespace {

static_assert(kStatePanel == kStateColumns);

constexpr std::int64_t kNormGrain = 8192;  // elements of one piece of a row-wise operation at least

std::int64_t panels_of(std::int64_t columns) {
  return (columns + kStatePanel - 1) / kStatePanel;
}

// The factors of one token for one value head, made of its rows; room: 2 key_dim floats, per channel 4.
StateToken delta_token(const RecurrentTable& level, const DeltaArgs& args, std::int64_t head, const float* q,
                       const float* k, const float* decay, float* room) {
  const std::int64_t dim = args.key_dim;
  const std::int64_t key_head = args.grouped ? head / (args.value_heads / args.key_heads) : head % args.key_heads;
  const auto query_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  StateToken token;
  level.unit_norm(k + key_head * dim, args.eps, 1.0f, dim, room);
  level.unit_norm(q + key_head * dim, args.eps, query_scale, dim, room + dim);
  token.k = room;
  token.q = room + dim;
  if (args.per_channel) {
    float* decays = room + 2 * dim;
    level.softplus(decay + head * dim, args.dt_bias + head * dim, dim, decays);
    level.exp_scaled(decays, nullptr, args.a[head], dim, decays);
    level.multiply(decays, room, dim, decays + dim);
    token.decays = decays;
    token.decayed = decays + dim;
  } else {
    level.softplus(decay + head, args.dt_bias + head, 1, &token.decay);
    level.exp_scaled(&token.decay, nullptr, args.a[head], 1, &token.decay);
  }
  return token;
}

}  // namespace

CpuStateStorage::CpuStateStorage(const StateLayout& layout)
    : layout_(layout), memory_(state_bytes() * static_cast<std::size_t>(layout.num_states)) {
  QUIRE_CHECK(layout.floats % kStatePanel == 0, "a recurrent state is not a whole number of panels");
}

std::size_t CpuStateStorage::state_bytes() const {
  return static_cast<std::size_t>(layout_.floats) * sizeof(float);
}

float* CpuStateStorage::at(std::int32_t state) const {
  QUIRE_CHECK(state >= 0 && state < layout_.num_states, "recurrent state out of range");
  return reinterpret_cast<float*>(memory_.data()) + state * layout_.floats;
}

void CpuStateStorage::copy_state(std::int32_t source, std::int32_t destination) {
  if (source != destination) std::memcpy(at(destination), at(source), state_bytes());
}

void CpuStateStorage::read_state(std::int32_t state, std::span<std::byte> out) const {
  QUIRE_CHECK(out.size() == state_bytes(), "recurrent state of another size");
  std::memcpy(out.data(), at(state), out.size());
}

void CpuStateStorage::write_state(std::int32_t state, std::span<const std::byte> in) {
  QUIRE_CHECK(in.size() == state_bytes(), "recurrent state of another size");
  std::memcpy(at(state), in.data(), in.size());
}

std::unique_ptr<StateStorage> CpuRecurrentOps::allocate_states(const StateLayout& layout) {
  return std::make_unique<CpuStateStorage>(layout);
}

CpuRecurrentOps::Run CpuRecurrentOps::run_of(const AttentionBatch& batch, const StatePart& part,
                                             std::int64_t sequence) const {
  const auto s = static_cast<std::size_t>(sequence);
  Run run{.begin = batch.query_start[s], .end = batch.query_start[s + 1], .state = nullptr, .fresh = false};
  run.fresh = batch.context_len[s] == run.end - run.begin;
  run.state = static_cast<const CpuStateStorage&>(*part.storage).at(batch.state_ids[s]) + part.offset;
  return run;
}

template <class Body>
void CpuRecurrentOps::for_parts(const AttentionBatch& batch, const StatePart& state, std::int64_t parts,
                                const Body& body) {
  const auto num_sequences = std::ssize(batch.context_len);
  QUIRE_CHECK(std::ssize(batch.state_ids) == num_sequences, "a recurrent layer without states");
  pool_.run(num_sequences * parts, [&](int worker, std::int64_t unit) {
    const Run run = run_of(batch, state, unit / parts);
    if (run.end > run.begin) body(worker, run, unit % parts);
  });
}

void CpuRecurrentOps::short_conv(const AttentionBatch& batch, const StatePart& state, const ConvArgs& args,
                                 MatrixView x, MatrixView before, MatrixView after, MatrixView out) {
  QUIRE_CHECK(args.taps >= 2 && args.taps <= kMaxTaps, "a convolution of fewer than 2 or more than 8 taps");
  const std::int64_t pieces = (x.cols + kConvColumns - 1) / kConvColumns;
  for_parts(batch, state, pieces, [&](int, const Run& run, std::int64_t part) {
    const std::int64_t first = part * kConvColumns;
    const auto at = [&](MatrixView view) { return view.data == nullptr ? nullptr : row_of(view, run.begin) + first; };
    ConvPiece piece;
    piece.rows = run.end - run.begin;
    piece.columns = std::min(kConvColumns, x.cols - first);
    piece.taps = args.taps;
    piece.x = at(x);
    piece.x_stride = x.stride;
    piece.before = at(before);
    piece.before_stride = before.stride;
    piece.after = at(after);
    piece.after_stride = after.stride;
    piece.out = at(out);
    piece.out_stride = out.stride;
    piece.weights = args.weights + first;
    piece.weight_stride = x.cols;
    piece.bias = args.bias == nullptr ? nullptr : args.bias + first;
    piece.silu = args.silu;
    piece.fresh = run.fresh;
    piece.history = run.state + first;
    piece.history_stride = x.cols;
    kernels_.recurrent.short_conv(piece);
  });
}

void CpuRecurrentOps::advance_head(Advance advance, StateToken* tokens, std::int64_t num_tokens, std::int64_t key_dim,
                                   std::int64_t value_dim, float* state) const {
  for (std::int64_t first = 0; first < value_dim; first += kStatePanel) {
    advance(tokens, num_tokens, key_dim, std::min(kStatePanel, value_dim - first), state + first * key_dim);
    for (std::int64_t t = 0; t < num_tokens; ++t) {
      tokens[t].v += kStatePanel;
      tokens[t].out += kStatePanel;
    }
  }
}

void CpuRecurrentOps::delta_rule(const AttentionBatch& batch, const StatePart& state, const DeltaArgs& args,
                                 MatrixView q, MatrixView k, MatrixView v, MatrixView decay, MatrixView beta,
                                 MatrixView out) {
  QUIRE_CHECK(q.cols == args.key_heads * args.key_dim && v.cols == args.value_heads * args.value_dim &&
                  args.value_heads % args.key_heads == 0 &&
                  decay.cols == args.value_heads * (args.per_channel ? args.key_dim : 1) &&
                  beta.cols == args.value_heads,
              "delta_rule: shapes do not fit");
  const RecurrentTable& level = kernels_.recurrent;
  const std::int64_t dim = args.key_dim;
  const std::int64_t floats = matrix_state_floats(1, dim, args.value_dim);
  const std::int64_t room_each = (args.per_channel ? 4 : 2) * dim;
  for_parts(batch, state, args.value_heads, [&](int worker, const Run& run, std::int64_t head) {
    float* own = run.state + head * floats;
    if (run.fresh) std::fill_n(own, floats, 0.0f);
    float* room =
        scratch_[static_cast<std::size_t>(worker)].get<float>(static_cast<std::size_t>(kTokenTile * room_each));
    StateToken tokens[kTokenTile];
    for (std::int64_t begin = run.begin; begin < run.end; begin += kTokenTile) {
      const std::int64_t count = std::min(kTokenTile, run.end - begin);
      for (std::int64_t t = 0; t < count; ++t) {
        const std::int64_t row = begin + t;
        tokens[t] =
            delta_token(level, args, head, row_of(q, row), row_of(k, row), row_of(decay, row), room + t * room_each);
        level.sigmoid_gate(row_of(beta, row) + head, nullptr, 1, &tokens[t].beta);
        tokens[t].v = row_of(v, row) + head * args.value_dim;
        tokens[t].out = row_of(out, row) + head * args.value_dim;
      }
      advance_head(args.per_channel ? level.delta_per_channel : level.delta, tokens, count, dim, args.value_dim, own);
    }
  });
}

void CpuRecurrentOps::state_space(const AttentionBatch& batch, const StatePart& state, const StateSpaceArgs& args,
                                  MatrixView x, MatrixView b, MatrixView c, MatrixView dt, MatrixView out) {
  QUIRE_CHECK(x.cols == args.num_heads * args.head_dim && b.cols == args.num_groups * args.state_size &&
                  c.cols == b.cols && dt.cols == args.num_heads && args.num_heads % args.num_groups == 0,
              "state_space: shapes do not fit");
  const RecurrentTable& level = kernels_.recurrent;
  const std::int64_t share = args.num_heads / args.num_groups;
  const std::int64_t floats = matrix_state_floats(1, args.state_size, args.head_dim);
  for_parts(batch, state, args.num_heads, [&](int, const Run& run, std::int64_t head) {
    float* own = run.state + head * floats;
    if (run.fresh) std::fill_n(own, floats, 0.0f);
    StateToken tokens[kTokenTile];
    for (std::int64_t begin = run.begin; begin < run.end; begin += kTokenTile) {
      const std::int64_t count = std::min(kTokenTile, run.end - begin);
      for (std::int64_t t = 0; t < count; ++t) {
        const std::int64_t row = begin + t;
        StateToken& token = tokens[t] = {};
        token.k = row_of(b, row) + head / share * args.state_size;
        token.q = row_of(c, row) + head / share * args.state_size;
        level.softplus(row_of(dt, row) + head, args.dt_bias + head, 1, &token.beta);
        level.exp_scaled(&token.beta, nullptr, args.a[head], 1, &token.decay);
        token.skip = args.d[head];
        token.v = row_of(x, row) + head * args.head_dim;
        token.out = row_of(out, row) + head * args.head_dim;
      }
      advance_head(level.state_space, tokens, count, args.state_size, args.head_dim, own);
    }
  });
}

void CpuRecurrentOps::selective_scan(const AttentionBatch& batch, const StatePart& state, const SelectiveScanArgs& args,
                                     MatrixView x, MatrixView b, MatrixView c, MatrixView dt, MatrixView out) {
  QUIRE_CHECK(b.cols == args.state_size && c.cols == args.state_size && dt.cols == x.cols && out.cols == x.cols,
              "selective_scan: shapes do not fit");
  const RecurrentTable& level = kernels_.recurrent;
  const std::int64_t floats = args.state_size * kStatePanel;
  for_parts(batch, state, panels_of(x.cols), [&](int, const Run& run, std::int64_t panel) {
    const std::int64_t first = panel * kStatePanel;
    const std::int64_t columns = std::min(kStatePanel, x.cols - first);
    float* own = run.state + panel * floats;
    if (run.fresh) std::fill_n(own, floats, 0.0f);
    ScanToken tokens[kTokenTile];
    float steps[kTokenTile][kStatePanel];
    for (std::int64_t begin = run.begin; begin < run.end; begin += kTokenTile) {
      const std::int64_t count = std::min(kTokenTile, run.end - begin);
      for (std::int64_t t = 0; t < count; ++t) {
        const std::int64_t row = begin + t;
        level.softplus(row_of(dt, row) + first, args.dt_bias + first, columns, steps[t]);
        tokens[t] = {row_of(b, row), row_of(c, row), steps[t], row_of(x, row) + first, row_of(out, row) + first};
      }
      level.scan(tokens, count, args.state_size, columns, args.a + first, x.cols, args.d + first, own);
    }
  });
}

void CpuRecurrentOps::gated_norm(const GatedNormArgs& args, MatrixView gate, MatrixView x) {
  using Order = GatedNormArgs::Order;
  QUIRE_CHECK(gate.cols == x.cols && args.group > 0 && x.cols % args.group == 0, "gated_norm: shapes do not fit");
  const std::int64_t step = std::max<std::int64_t>(1, kNormGrain / std::max<std::int64_t>(1, x.cols));
  const auto gate_row = [&](const float* by, float* row) {
    if (args.sigmoid) {
      kernels_.recurrent.sigmoid_gate(by, row, x.cols, row);
    } else {
      kernels_.swiglu(by, row, x.cols, row);
    }
  };
  pool_.run((x.rows + step - 1) / step, [&](int, std::int64_t piece) {
    for (std::int64_t r = piece * step; r < std::min(x.rows, (piece + 1) * step); ++r) {
      float* row = row_of(x, r);
      const float* by = row_of(gate, r);
      if (args.order != Order::kNormThenGate) gate_row(by, row);
      for (std::int64_t at = 0; at < x.cols && args.order != Order::kGateOnly; at += args.group) {
        const float* weight = args.weight + (args.shared_weight ? 0 : at);
        kernels_.rms_norm(row + at, weight, args.eps, args.group, row + at);
      }
      if (args.order == Order::kNormThenGate) gate_row(by, row);
    }
  });
}

}  // namespace quire
