// Layers that keep a state of fixed size for each sequence.
#include <algorithm>
#include <cmath>

#include "kernels/check.h"
#include "kernels/cpu/cpu_graph_ops.h"
#include "kernels/cpu/graph_math.h"

namespace quire {
namespace {

class CpuStateStorage final : public StateStorage {
 public:
  CpuStateStorage(std::int64_t num_slots, std::int64_t floats)
      : num_slots_(num_slots), floats_(floats), memory_(static_cast<std::size_t>(num_slots * floats) * sizeof(float)) {}
  std::int64_t num_slots() const override { return num_slots_; }
  std::int64_t floats() const override { return floats_; }
  void copy_slot(std::int32_t source, std::int32_t destination) override {
    if (source != destination) std::copy_n(at(source), floats_, at(destination));
  }
  void read_slot(std::int32_t slot, std::span<float> out) const override {
    QUIRE_CHECK(std::ssize(out) == floats_, "a state of another size");
    std::copy_n(at(slot), floats_, out.data());
  }
  void write_slot(std::int32_t slot, std::span<const float> in) override {
    QUIRE_CHECK(std::ssize(in) == floats_, "a state of another size");
    std::copy_n(in.data(), floats_, at(slot));
  }
  float* at(std::int32_t slot) const {
    QUIRE_CHECK(slot >= 0 && slot < num_slots_, "state slot out of range");
    return reinterpret_cast<float*>(memory_.data()) + slot * floats_;
  }

 private:
  std::int64_t num_slots_;
  std::int64_t floats_;
  AlignedMemory memory_;
};

// The rows of one sequence within a step.
struct Run {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool is_first = false;  // the sequence begins here: its state is zero
};

Run run_of(const AttentionBatch& batch, std::int64_t sequence) {
  const auto s = static_cast<std::size_t>(sequence);
  const std::int64_t begin = batch.query_start[s];
  const std::int64_t end = batch.query_start[s + 1];
  return {begin, end, batch.context_len[s] == end - begin};
}

float* state_of(const StateRef& state, std::int64_t sequence) {
  QUIRE_CHECK(state.storage != nullptr && sequence < std::ssize(state.slots), "a recurrent layer without states");
  return static_cast<CpuStateStorage*>(state.storage)->at(state.slots[static_cast<std::size_t>(sequence)]) +
         state.offset;
}

}  // namespace

std::unique_ptr<StateStorage> CpuGraphOps::allocate_states(std::int64_t num_slots, std::int64_t floats) {
  return std::make_unique<CpuStateStorage>(num_slots, floats);
}

void CpuGraphOps::short_conv(const AttentionBatch& batch, const StateRef& state, const float* kernel, const float* bias,
                             std::int64_t taps, MatrixView x) {
  constexpr std::int64_t kChannels = 256;  // of one piece
  const auto num_sequences = std::ssize(batch.context_len);
  const std::int64_t pieces = (x.cols + kChannels - 1) / kChannels;
  const std::int64_t past = taps - 1;
  pool_.run(num_sequences * pieces, [&](int, std::int64_t unit) {
    const Run run = run_of(batch, unit / pieces);
    float* kept = state_of(state, unit / pieces);  // [taps - 1][channels], the oldest row first
    const std::int64_t first = unit % pieces * kChannels;
    for (std::int64_t c = first; c < std::min(x.cols, first + kChannels); ++c) {
      float window[16] = {};
      QUIRE_CHECK(taps <= 16, "a convolution of more than 16 taps");
      for (std::int64_t j = 0; j < past; ++j)
        window[j] = run.is_first ? 0.0f : kept[j * x.cols + c];
      for (std::int64_t row = run.begin; row < run.end; ++row) {
        float& at = row_of(x, row)[c];
        window[past] = at;
        float sum = bias == nullptr ? 0.0f : bias[c];
        for (std::int64_t j = 0; j < taps; ++j)
          sum += kernel[c * taps + j] * window[j];
        at = sum;
        std::copy(window + 1, window + taps, window);
      }
      for (std::int64_t j = 0; j < past; ++j)
        kept[j * x.cols + c] = window[j];
    }
  });
}

void CpuGraphOps::delta_rule(const AttentionBatch& batch, const StateRef& state, const DeltaArgs& args, MatrixView q,
                             MatrixView k, MatrixView v, MatrixView decay, MatrixView beta, MatrixView out) {
  const auto num_sequences = std::ssize(batch.context_len);
  const std::int64_t share = args.value_heads / args.key_heads;
  const std::int64_t size = args.key_dim * args.value_dim;
  const auto query_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(args.key_dim)));
  pool_.run(num_sequences * args.value_heads, [&](int worker, std::int64_t unit) {
    const Run run = run_of(batch, unit / args.value_heads);
    const std::int64_t head = unit % args.value_heads;
    const std::int64_t key_head = args.grouped ? head / share : head % args.key_heads;
    float* s = state_of(state, unit / args.value_heads) + head * size;
    if (run.is_first) std::fill_n(s, size, 0.0f);
    float* room = scores_[static_cast<std::size_t>(worker)].get<float>(static_cast<std::size_t>(3 * args.key_dim));
    const auto normalised = [&](const float* from, float factor, float* to) {
      float squares = 0.0f;
      for (std::int64_t i = 0; i < args.key_dim; ++i)
        squares += from[i] * from[i];
      const float by = factor / std::max(std::sqrt(squares), args.eps);
      for (std::int64_t i = 0; i < args.key_dim; ++i)
        to[i] = from[i] * by;
    };
    for (std::int64_t row = run.begin; row < run.end; ++row) {
      float* decays = room + 2 * args.key_dim;
      for (std::int64_t i = 0; i < args.key_dim; ++i) {
        const std::int64_t at = args.per_channel ? head * args.key_dim + i : head;
        if (i > 0 && !args.per_channel) {
          decays[i] = decays[0];
        } else {
          decays[i] = std::exp(args.a[head] * softplus(row_of(decay, row)[at] + args.dt_bias[at]));
        }
      }
      normalised(row_of(q, row) + key_head * args.key_dim, query_scale, room);
      normalised(row_of(k, row) + key_head * args.key_dim, 1.0f, room + args.key_dim);
      const DeltaToken token{.key_dim = args.key_dim,
                             .value_dim = args.value_dim,
                             .q = room,
                             .k = room + args.key_dim,
                             .v = row_of(v, row) + head * args.value_dim,
                             .decay = decays,
                             .beta = sigmoid(row_of(beta, row)[head]),
                             .out = row_of(out, row) + head * args.value_dim};
      kernels_.delta_step(token, s);
    }
  });
}

void CpuGraphOps::mamba2(const AttentionBatch& batch, const StateRef& state, const MambaArgs& args, MatrixView x,
                         MatrixView b, MatrixView c, MatrixView dt, MatrixView out) {
  const auto num_sequences = std::ssize(batch.context_len);
  const std::int64_t size = args.head_dim * args.state_size;
  pool_.run(num_sequences * args.num_heads, [&](int, std::int64_t unit) {
    const Run run = run_of(batch, unit / args.num_heads);
    const std::int64_t head = unit % args.num_heads;
    const std::int64_t group = head / (args.num_heads / args.num_groups);
    float* s = state_of(state, unit / args.num_heads) + head * size;
    if (run.is_first) std::fill_n(s, size, 0.0f);
    for (std::int64_t row = run.begin; row < run.end; ++row) {
      const float step = softplus(row_of(dt, row)[head] + args.dt_bias[head]);
      const float decay = std::exp(step * args.a[head]);
      const float* in = row_of(x, row) + head * args.head_dim;
      float* to = row_of(out, row) + head * args.head_dim;
      for (std::int64_t i = 0; i < args.head_dim; ++i) {
        const float seen =
            kernels_.mamba_step(decay, in[i] * step, row_of(b, row) + group * args.state_size,
                                row_of(c, row) + group * args.state_size, args.state_size, s + i * args.state_size);
        to[i] = seen + args.d[head] * in[i];
      }
    }
  });
}

}  // namespace quire
