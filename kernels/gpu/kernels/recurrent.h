// Mixers that keep a state per sequence: short convolutions, the delta rule, state spaces, the selective scan, and the
// norm behind them. Formulas as on the CPU levels.
// Invariant: a recurrence advances token by token in one order, and a token's arithmetic is its own: sums over a
// state's rows are four chains, of every fourth row, added in one order, whatever tokens come together.
#pragma once

#include "kernels/gpu/kernels/graph_rows.h"

namespace quire::gpu {

// log(1 + exp(x)) = max(x, 0) + log(1 + t) with t = exp(-|x|), and log(1 + t) = 2 atanh(t / (2 + t)).
QUIRE_DEVICE float softplus_of(float x) {
  const float t = exp_of(x < 0.0f ? x : 0.0f - x);
  const float s = t / (t + 2.0f);
  const float square = s * s;
  float series = 2.0f / 15.0f;
  series = __builtin_fmaf(series, square, 2.0f / 13.0f);
  series = __builtin_fmaf(series, square, 2.0f / 11.0f);
  series = __builtin_fmaf(series, square, 2.0f / 9.0f);
  series = __builtin_fmaf(series, square, 2.0f / 7.0f);
  series = __builtin_fmaf(series, square, 2.0f / 5.0f);
  series = __builtin_fmaf(series, square, 2.0f / 3.0f);
  series = __builtin_fmaf(series, square, 2.0f);
  return __builtin_fmaf(series, s, greatest(x, 0.0f));
}

// A row-major matrix of activations.
struct RowsView {
  float* data = nullptr;
  std::int64_t stride = 0;

  QUIRE_DEVICE float* at(std::int64_t row) const { return data + row * stride; }
};

// The rows of a step's sequences, and the operation's floats in their states.
struct SequenceStates {
  const std::int32_t* query_start = nullptr;
  const std::int32_t* context_len = nullptr;
  const std::int32_t* state_ids = nullptr;
  float* states = nullptr;  // the operation's first float in the first state
  std::int64_t state_floats = 0;
};

struct SequenceRun {
  std::int64_t begin;
  std::int64_t end;
  float* state;
  bool fresh;  // starts from zeros

  QUIRE_DEVICE SequenceRun(const SequenceStates& args, std::int64_t sequence)
      : begin(args.query_start[sequence]),
        end(args.query_start[sequence + 1]),
        state(args.states + args.state_ids[sequence] * args.state_floats),
        fresh(args.context_len[sequence] == end - begin) {}
};

struct ShortConvArgs {
  SequenceStates sequences = {};
  std::int64_t channels = 0;
  int taps = 0;
  const float* weights = nullptr;  // [taps][channels]
  const float* bias = nullptr;     // [channels] or null
  bool silu = false;
  RowsView x = {};
  RowsView before = {};  // no data: 1
  RowsView after = {};
  RowsView out = {};
};

// A thread for each channel of each sequence: x blocks of channels, y sequences. State: [taps - 1][channels].
struct ShortConv {
  using Args = ShortConvArgs;
  static constexpr int kThreads = 128;
  static constexpr int kSharedBytes = 0;
  static constexpr int kMostTaps = 8;
  static constexpr int kTogether = 4;  // rows whose inputs are read before the first is written

  // Arrays end with the newest tap; those before `first` are not used.
  struct Window {
    float inputs[kMostTaps];
    float weights[kMostTaps];
    int first;

    QUIRE_DEVICE float sum(float value) const {
      QUIRE_UNROLL
      for (int j = 0; j < kMostTaps; ++j) {
        if (j >= first) value = __builtin_fmaf(weights[j], inputs[j], value);
      }
      return value;
    }
    QUIRE_DEVICE void take(float newest) {
      QUIRE_UNROLL
      for (int j = 0; j + 1 < kMostTaps; ++j)
        inputs[j] = inputs[j + 1];
      inputs[kMostTaps - 1] = newest;
    }
  };

  static QUIRE_DEVICE float input(const Args& args, std::int64_t row, std::int64_t channel) {
    const float x = args.x.at(row)[channel];
    return args.before.data == nullptr ? x : x * args.before.at(row)[channel];
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t channel = t.block_x() * kThreads + t.index();
    const SequenceRun run(args.sequences, t.block_y());
    if (channel >= args.channels || run.begin == run.end) return;
    Window window{};
    window.first = kMostTaps - args.taps;
    float* history = run.state + channel;
    QUIRE_UNROLL
    for (int j = 0; j < kMostTaps; ++j) {
      const std::int64_t tap = j - window.first;
      if (tap < 0) continue;
      window.weights[j] = args.weights[tap * args.channels + channel];
      // Each input starts one place ahead: the first row moves all by one.
      if (tap > 0) window.inputs[j] = run.fresh ? 0.0f : history[(tap - 1) * args.channels];
    }
    const float bias = args.bias == nullptr ? 0.0f : args.bias[channel];
    for (std::int64_t first = run.begin; first < run.end; first += kTogether) {
      float inputs[kTogether] = {};
      QUIRE_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        if (first + i < run.end) inputs[i] = input(args, first + i, channel);
      }
      QUIRE_UNROLL
      for (int i = 0; i < kTogether; ++i) {
        if (first + i >= run.end) break;
        window.take(inputs[i]);
        float value = window.sum(bias);
        if (args.silu) value = silu_of(value);
        if (args.after.data != nullptr) value = value * args.after.at(first + i)[channel];
        args.out.at(first + i)[channel] = value;
      }
    }
    QUIRE_UNROLL
    for (int j = 1; j < kMostTaps; ++j) {
      if (j > window.first) history[(j - window.first - 1) * args.channels] = window.inputs[j];
    }
  }
};

enum class StateForm : std::uint8_t { kDelta, kDeltaPerChannel, kStateSpace };

// The delta rule: k, q, v, decay inputs, beta inputs. A state space: b, c, x, and dt as the decay inputs.
struct AdvanceArgs {
  SequenceStates sequences = {};
  RowsView k = {};
  RowsView q = {};
  RowsView v = {};
  RowsView decay = {};
  RowsView beta = {};
  RowsView out = {};
  std::int64_t key_heads = 0;
  std::int64_t value_heads = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  bool grouped = false;  // value heads that follow each other share a key head
  float eps = 0.0f;
  float query_scale = 1.0f;
  const float* a = nullptr;
  const float* dt_bias = nullptr;
  const float* d = nullptr;  // a state space only
};

// A block has 32 columns of one head's state, in shared memory; eight columns a warp, four lanes a column, each with
// every fourth row. The factors of four tokens are computed at a time, one token by each warp. Grid: x sequences *
// value heads, y panels of 32 columns. State: [head][key_dim][columns], columns a multiple of 32.
template <StateForm kForm>
struct AdvanceState {
  using Args = AdvanceArgs;
  static constexpr int kThreads = 128;
  static constexpr int kColumns = 32;
  static constexpr int kLanes = 4;
  static constexpr int kMostKeys = 256;
  static constexpr int kTokens = 4;
  static constexpr bool kIsDelta = kForm != StateForm::kStateSpace;
  static constexpr int kFactors = kForm == StateForm::kDeltaPerChannel ? 4 : 2;  // k, q, decays, decays times k
  static constexpr int kTokenFloats = kFactors * kMostKeys + 4;                  // plus decay and beta
  static constexpr int kSharedBytes = (kMostKeys * kColumns + kTokens * kTokenFloats) * static_cast<int>(sizeof(float));

  struct Place {
    std::int64_t head;
    std::int64_t key_head;
    std::int64_t column;  // index among the head's values
    float* state;         // state of this thread's column
    std::int64_t stride;  // floats from one row of the state to the next
    bool is_used;         // the column exists
  };

  template <class Thread>
  static QUIRE_DEVICE Place place_of(Thread& t, const Args& args, const SequenceRun& run) {
    Place place{};
    place.head = t.block_x() % args.value_heads;
    const std::int64_t share = args.value_heads / args.key_heads;
    place.key_head = args.grouped ? place.head / share : place.head % args.key_heads;
    place.column = t.block_y() * kColumns + t.warp() * 8 + t.lane() % 8;
    place.stride = (args.value_dim + kColumns - 1) / kColumns * kColumns;
    place.state = run.state + place.head * args.key_dim * place.stride + place.column;
    place.is_used = place.column < args.value_dim;
    return place;
  }

  // Computes, by one warp, the factors by which the token of `row` changes the head's state.
  template <class Thread>
  static QUIRE_DEVICE void prepare(Thread& t, const Args& args, const Place& place, std::int64_t row, float* factors) {
    const float* k = args.k.at(row) + place.key_head * args.key_dim;
    const float* q = args.q.at(row) + place.key_head * args.key_dim;
    const float* decays = args.decay.at(row);
    const std::int64_t dim = args.key_dim;
    float by_k = 1.0f;
    float by_q = 1.0f;
    if constexpr (kIsDelta) {
      by_k = 1.0f / greatest(length(t, k, dim), args.eps);
      by_q = args.query_scale / greatest(length(t, q, dim), args.eps);
    }
    for (std::int64_t i = t.lane(); i < dim; i += kWarpLanes) {
      const float key = k[i] * by_k;
      factors[i] = key;
      factors[kMostKeys + i] = q[i] * by_q;
      if constexpr (kForm == StateForm::kDeltaPerChannel) {
        const std::int64_t at = place.head * dim + i;
        const float decay = exp_of(softplus_of(decays[at] + args.dt_bias[at]) * args.a[place.head]);
        factors[2 * kMostKeys + i] = decay;
        factors[3 * kMostKeys + i] = decay * key;
      }
    }
    if (t.lane() != 0) return;
    float* numbers = factors + kFactors * kMostKeys;
    float step = 0.0f;
    if constexpr (kForm != StateForm::kDeltaPerChannel) {
      step = softplus_of(decays[place.head] + args.dt_bias[place.head]);
      numbers[0] = exp_of(step * args.a[place.head]);
    }
    numbers[1] = kIsDelta ? sigmoid_of(args.beta.at(row)[place.head]) : step;
  }

  template <class Thread>
  static QUIRE_DEVICE float length(Thread& t, const float* x, std::int64_t count) {
    float sum = 0.0f;
    for (std::int64_t i = t.lane(); i < count; i += kWarpLanes)
      sum = __builtin_fmaf(x[i], x[i], sum);
    for (int distance = 16; distance > 0; distance /= 2)
      sum = sum + t.shuffle_xor(sum, distance);
    return __builtin_sqrtf(sum);
  }

  // Adds up the four lanes of a column.
  template <class Thread>
  static QUIRE_DEVICE float column_sum(Thread& t, float sum) {
    sum = sum + t.shuffle_xor(sum, 8);
    return sum + t.shuffle_xor(sum, 16);
  }

  template <class Thread>
  static QUIRE_DEVICE void advance(Thread& t, const Args& args, const Place& place, std::int64_t row,
                                   const float* factors, float* state) {
    const float decay = factors[kFactors * kMostKeys];
    const float beta = factors[kFactors * kMostKeys + 1];
    const int part = t.lane() / 8;
    const auto dim = static_cast<int>(args.key_dim);
    const std::int64_t at = place.head * args.value_dim + place.column;
    const float value = place.is_used ? args.v.at(row)[at] : 0.0f;
    float added = value;
    if constexpr (kIsDelta) {
      const float* key = factors + (kForm == StateForm::kDeltaPerChannel ? 3 * kMostKeys : 0);
      float seen = 0.0f;
      for (int i = part; i < dim; i += kLanes)
        seen = __builtin_fmaf(state[i / kLanes * kThreads], key[i], seen);
      seen = column_sum(t, seen);
      added = kForm == StateForm::kDelta ? __builtin_fmaf(-seen, decay, value) : value - seen;
    }
    added = added * beta;
    float read = 0.0f;
    for (int i = part; i < dim; i += kLanes) {
      const float by = kForm == StateForm::kDeltaPerChannel ? factors[2 * kMostKeys + i] : decay;
      float& s = state[i / kLanes * kThreads];
      s = __builtin_fmaf(factors[i], added, s * by);
      read = __builtin_fmaf(s, factors[kMostKeys + i], read);
    }
    read = column_sum(t, read);
    if constexpr (!kIsDelta) read = __builtin_fmaf(value, args.d[place.head], read);
    if (part == 0 && place.is_used) args.out.at(row)[at] = read;
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const SequenceRun run(args.sequences, t.block_x() / args.value_heads);
    if (run.begin == run.end) return;
    const Place place = place_of(t, args, run);
    float* state = reinterpret_cast<float*>(t.shared()) + t.index();  // read and written by this thread alone
    float* tokens = reinterpret_cast<float*>(t.shared()) + kMostKeys * kColumns;
    for (std::int64_t i = t.lane() / 8; i < args.key_dim; i += kLanes)
      state[i / kLanes * kThreads] = run.fresh ? 0.0f : place.state[i * place.stride];
    for (std::int64_t first = run.begin; first < run.end; first += kTokens) {
      if (first > run.begin) t.sync_block();  // the tokens before have been read
      if (first + t.warp() < run.end) prepare(t, args, place, first + t.warp(), tokens + t.warp() * kTokenFloats);
      t.sync_block();
      for (int i = 0; i < kTokens && first + i < run.end; ++i)
        advance(t, args, place, first + i, tokens + i * kTokenFloats, state);
    }
    for (std::int64_t i = t.lane() / 8; i < args.key_dim; i += kLanes)
      place.state[i * place.stride] = state[i / kLanes * kThreads];
  }
};

struct SelectiveScanRowsArgs {
  SequenceStates sequences = {};
  std::int64_t channels = 0;
  std::int64_t state_size = 0;
  RowsView x = {};
  RowsView b = {};
  RowsView c = {};
  RowsView dt = {};
  RowsView out = {};
  const float* a = nullptr;        // [state_size][channels]
  const float* d = nullptr;        // [channels]
  const float* dt_bias = nullptr;  // [channels]
};

// A thread for each channel of each sequence: x blocks of channels, y sequences. State: [state_size][channels], columns
// a multiple of 32.
struct SelectiveScan {
  using Args = SelectiveScanRowsArgs;
  static constexpr int kThreads = 128;
  static constexpr int kSharedBytes = 0;

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t channel = t.block_x() * kThreads + t.index();
    const SequenceRun run(args.sequences, t.block_y());
    if (channel >= args.channels) return;
    float* state = run.state + channel;
    const std::int64_t stride = (args.channels + 31) / 32 * 32;
    for (std::int64_t row = run.begin; row < run.end; ++row) {
      const bool from_zeros = run.fresh && row == run.begin;
      const float x = args.x.at(row)[channel];
      const float dt = softplus_of(args.dt.at(row)[channel] + args.dt_bias[channel]);
      const float added = x * dt;
      float sum = x * args.d[channel];
      for (std::int64_t i = 0; i < args.state_size; ++i) {
        const float before = from_zeros ? 0.0f : state[i * stride];
        const float s =
            __builtin_fmaf(added, args.b.at(row)[i], before * exp_of(dt * args.a[i * args.channels + channel]));
        state[i * stride] = s;
        sum = __builtin_fmaf(s, args.c.at(row)[i], sum);
      }
      args.out.at(row)[channel] = sum;
    }
  }
};

struct GatedNormRowsArgs {
  RowsView gate = {};
  RowsView x = {};
  std::int64_t group = 0;
  bool gates_first = false;
  bool norms = true;
  bool sigmoid = false;
  bool shared_weight = false;
  const float* weight = nullptr;
  float eps = 0.0f;
};

// Works in place, with a block for each group of each row: x rows, y groups.
struct GatedNorm {
  using Args = GatedNormRowsArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 8 * static_cast<int>(sizeof(float));

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t first = static_cast<std::int64_t>(t.block_y()) * args.group;
    float* x = args.x.at(t.block_x()) + first;
    const float* gate = args.gate.at(t.block_x()) + first;
    const auto gated = [&](std::int64_t i, float value) {
      return (args.sigmoid ? sigmoid_of(gate[i]) : silu_of(gate[i])) * value;
    };
    float sum = 0.0f;
    for (std::int64_t i = t.index(); i < args.group; i += kThreads) {
      if (args.gates_first) x[i] = gated(i, x[i]);
      sum = __builtin_fmaf(x[i], x[i], sum);
    }
    if (!args.norms) return;  // true for all threads
    sum = block_sum(t, sum, reinterpret_cast<float*>(t.shared()));
    const float factor = 1.0f / __builtin_sqrtf(sum / static_cast<float>(args.group) + args.eps);
    const float* weight = args.weight + (args.shared_weight ? 0 : first);
    for (std::int64_t i = t.index(); i < args.group; i += kThreads) {
      const float value = x[i] * factor * weight[i];
      x[i] = args.gates_first ? value : gated(i, value);
    }
  }
};

}  // namespace quire::gpu
