// The recurrences over vectors of a level. Any thread. Included by an ISA level's file behind elementwise_impl.h;
// internal linkage.
// Invariant: a column of a state is a chain over the rows of the state in their order, token after token, so neither
// the tokens advanced together nor the other columns reach it.
#pragma once

#include "kernels/cpu/recurrent_table.h"
#include "kernels/cpu/rows/activation_impl.h"

namespace quire {
namespace {

void softplus(const float* x, const float* bias, std::int64_t count, float* out) {
  for_vectors(count, out, [&](auto load) { return softplus_vector(Simd::add(load(x), load(bias))); });
}

void exp_scaled(const float* x, const float* factors, float factor, std::int64_t count, float* out) {
  for_vectors(count, out, [&](auto load) {
    return exp_vector(Simd::mul(load(x), factors == nullptr ? Simd::set1(factor) : load(factors)));
  });
}

void multiply(const float* x, const float* y, std::int64_t count, float* out) {
  for_vectors(count, out, [&](auto load) { return Simd::mul(load(x), load(y)); });
}

void sigmoid_gate(const float* gate, const float* x, std::int64_t count, float* out) {
  for_vectors(count, out, [&](auto load) {
    const typename Simd::F g = sigmoid_vector(load(gate));
    return x == nullptr ? g : Simd::mul(g, load(x));
  });
}

void unit_norm(const float* x, float eps, float factor, std::int64_t count, float* out) {
  using F = typename Simd::F;
  F sum = Simd::zero();
  for (std::int64_t i = 0; i < count; i += Simd::kLanes) {
    const F v = take(x + i, count - i);
    sum = Simd::fma(v, v, sum);
  }
  const float norm = __builtin_sqrtf(Simd::reduce_add(sum));
  const F scale = Simd::set1(factor / (norm > eps ? norm : eps));
  for_vectors(count, out, [&](auto load) { return Simd::mul(load(x), scale); });
}

// Rows on the outside, because neighbouring rows lie far apart; the last taps - 1 inputs wait in a ring.
void short_conv(const ConvPiece& p) {
  using F = typename Simd::F;
  const std::int64_t past = p.taps - 1;
  alignas(64) float ring[kMaxTaps - 1][kConvColumns];
  // The history comes from memory. Whole vectors ask for all of it at once.
  for (std::int64_t j = 0; j < past; ++j) {
    for (std::int64_t c = 0; c < p.columns; c += Simd::kLanes) {
      const std::int64_t n = p.columns - c;
      put(ring[j] + c, p.fresh ? Simd::zero() : take(p.history + j * p.history_stride + c, n), n);
    }
  }
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const float* older[kMaxTaps] = {};
    for (std::int64_t j = 0; j < past; ++j)
      older[j] = ring[(row + j) % past];
    float* newest = ring[row % past];  // replaces the oldest
    const float* x = p.x + row * p.x_stride;
    const float* before = p.before == nullptr ? nullptr : p.before + row * p.before_stride;
    const float* after = p.after == nullptr ? nullptr : p.after + row * p.after_stride;
    float* out = p.out + row * p.out_stride;
    for (std::int64_t c = 0; c < p.columns; c += Simd::kLanes) {
      const std::int64_t n = p.columns - c;
      F in = take(x + c, n);
      if (before != nullptr) in = Simd::mul(in, take(before + c, n));
      F sum = p.bias == nullptr ? Simd::zero() : take(p.bias + c, n);
      for (std::int64_t j = 0; j < past; ++j) {
        const F w = take(p.weights + j * p.weight_stride + c, n);
        sum = Simd::fma(w, take(older[j] + c, n), sum);
      }
      sum = Simd::fma(take(p.weights + past * p.weight_stride + c, n), in, sum);
      put(newest + c, in, n);
      if (p.silu) sum = silu(sum);
      if (after != nullptr) sum = Simd::mul(sum, take(after + c, n));
      put(out + c, sum, n);
    }
  }
  for (std::int64_t j = 0; j < past; ++j) {
    const float* row = ring[(p.rows + j) % past];
    for (std::int64_t c = 0; c < p.columns; c += Simd::kLanes)
      put(p.history + j * p.history_stride + c, take(row + c, p.columns - c), p.columns - c);
  }
}

enum class StateForm { kDelta, kDeltaPerChannel, kStateSpace };

constexpr int kStateVecs = static_cast<int>(kStateColumns) / Simd::kLanes;

// seen += the state's product with the token's key, before the token's decay if that is one number.
[[gnu::always_inline]] inline void look_up(const float* key, std::int64_t key_dim, const float* state,
                                           typename Simd::F* seen) {
  using F = typename Simd::F;
  F sum[kStateVecs];
  for (int j = 0; j < kStateVecs; ++j)
    sum[j] = Simd::zero();
  for (std::int64_t i = 0; i < key_dim; ++i) {
    const F k = Simd::set1(key[i]);
    for (int j = 0; j < kStateVecs; ++j)
      sum[j] = Simd::fma(Simd::load(state + i * kStateColumns + j * Simd::kLanes), k, sum[j]);
  }
  for (int j = 0; j < kStateVecs; ++j)
    seen[j] = sum[j];
}

// Updates the state and reads it with the query; in the same pass it is looked up with the key of the next token.
template <StateForm kForm, bool kHasNext>
[[gnu::always_inline]] inline void update(const StateToken& token, const float* next_key, std::int64_t key_dim,
                                          const typename Simd::F* added, float* state, typename Simd::F* read,
                                          typename Simd::F* seen) {
  using F = typename Simd::F;
  F out[kStateVecs];
  F next[kStateVecs];
  for (int j = 0; j < kStateVecs; ++j)
    out[j] = next[j] = Simd::zero();
  const F decay = Simd::set1(token.decay);
  for (std::int64_t i = 0; i < key_dim; ++i) {
    const F k = Simd::set1(token.k[i]);
    const F q = Simd::set1(token.q[i]);
    const F by = kForm == StateForm::kDeltaPerChannel ? Simd::set1(token.decays[i]) : decay;
    float* row = state + i * kStateColumns;
    for (int j = 0; j < kStateVecs; ++j) {
      const F s = Simd::fma(k, added[j], Simd::mul(Simd::load(row + j * Simd::kLanes), by));
      Simd::store(row + j * Simd::kLanes, s);
      out[j] = Simd::fma(s, q, out[j]);
      if constexpr (kHasNext) next[j] = Simd::fma(s, Simd::set1(next_key[i]), next[j]);
    }
  }
  for (int j = 0; j < kStateVecs; ++j) {
    read[j] = out[j];
    seen[j] = next[j];
  }
}

template <StateForm kForm>
void advance(const StateToken* tokens, std::int64_t num_tokens, std::int64_t key_dim, std::int64_t columns,
             float* state) {
  using F = typename Simd::F;
  constexpr bool kDelta = kForm != StateForm::kStateSpace;
  const auto key = [](const StateToken& t) { return kForm == StateForm::kDeltaPerChannel ? t.decayed : t.k; };
  F seen[kStateVecs];
  if constexpr (kDelta) look_up(key(tokens[0]), key_dim, state, seen);
  for (std::int64_t t = 0; t < num_tokens; ++t) {
    const StateToken& token = tokens[t];
    F values[kStateVecs];
    F added[kStateVecs];
    for (int j = 0; j < kStateVecs; ++j) {
      values[j] = take(token.v + j * Simd::kLanes, columns - j * Simd::kLanes);
      F d = values[j];
      if constexpr (kForm == StateForm::kDelta) d = Simd::fnma(seen[j], Simd::set1(token.decay), d);
      if constexpr (kForm == StateForm::kDeltaPerChannel) d = Simd::sub(d, seen[j]);
      added[j] = Simd::mul(d, Simd::set1(token.beta));
    }
    F read[kStateVecs];
    if (kDelta && t + 1 < num_tokens) {
      update<kForm, kDelta>(token, key(tokens[t + 1]), key_dim, added, state, read, seen);
    } else {
      update<kForm, false>(token, nullptr, key_dim, added, state, read, seen);
    }
    for (int j = 0; j < kStateVecs; ++j) {
      if constexpr (!kDelta) read[j] = Simd::fma(values[j], Simd::set1(token.skip), read[j]);
      put(token.out + j * Simd::kLanes, read[j], columns - j * Simd::kLanes);
    }
  }
}

void scan(const ScanToken* tokens, std::int64_t num_tokens, std::int64_t state_size, std::int64_t columns,
          const float* a, std::int64_t a_stride, const float* d, float* state) {
  using F = typename Simd::F;
  for (std::int64_t c = 0; c < columns; c += Simd::kLanes) {
    const std::int64_t n = columns - c;
    for (std::int64_t t = 0; t < num_tokens; ++t) {
      const ScanToken& token = tokens[t];
      const F x = take(token.x + c, n);
      const F dt = take(token.dt + c, n);
      const F added = Simd::mul(x, dt);
      F sum = Simd::mul(x, take(d + c, n));
      for (std::int64_t i = 0; i < state_size; ++i) {
        float* at = state + i * kStateColumns + c;
        const F decay = exp_vector(Simd::mul(dt, take(a + i * a_stride + c, n)));
        const F s = Simd::fma(added, Simd::set1(token.b[i]), Simd::mul(Simd::load(at), decay));
        Simd::store(at, s);
        sum = Simd::fma(s, Simd::set1(token.c[i]), sum);
      }
      put(token.out + c, sum, n);
    }
  }
}

constexpr RecurrentTable recurrent_table() {
  return RecurrentTable{
      .short_conv = short_conv,
      .delta = advance<StateForm::kDelta>,
      .delta_per_channel = advance<StateForm::kDeltaPerChannel>,
      .state_space = advance<StateForm::kStateSpace>,
      .scan = scan,
      .softplus = softplus,
      .exp_scaled = exp_scaled,
      .unit_norm = unit_norm,
      .multiply = multiply,
      .sigmoid_gate = sigmoid_gate,
  };
}

}  // namespace
}  // namespace quire
