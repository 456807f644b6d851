// Nonlinearities, norms and sums of rows over vectors of a level. Any thread. Included by an ISA level's file behind
// its Simd wrapper; internal linkage.
#pragma once

#include "kernels/activation.h"
#include "kernels/cpu/rows/elementwise_impl.h"

namespace quire {
namespace {

// The first n lanes at p; a whole vector without a mask.
[[gnu::always_inline]] inline typename Simd::F take(const float* p, std::int64_t n) {
  return n >= Simd::kLanes ? Simd::load(p) : Simd::load_partial(p, n);
}
[[gnu::always_inline]] inline void put(float* p, typename Simd::F a, std::int64_t n) {
  if (n >= Simd::kLanes) {
    Simd::store(p, a);
  } else {
    Simd::store_partial(p, a, n);
  }
}

// out = op(load) for every vector of `count` floats; load(p) gives the vector of p that lies at the same place.
template <class Op>
[[gnu::always_inline]] inline void for_vectors(std::int64_t count, float* out, const Op& op) {
  for (std::int64_t i = 0; i < count; i += Simd::kLanes)
    put(out + i, op([i, count](const float* p) { return take(p + i, count - i); }), count - i);
}

// log(1 + exp(x)) = max(x, 0) + log(1 + t) with t = exp(-|x|), and log(1 + t) = 2 atanh(t / (2 + t)), whose argument is
// at most a third.
[[gnu::always_inline]] inline typename Simd::F softplus_vector(typename Simd::F x) {
  using F = typename Simd::F;
  const F t = exp_vector(Simd::sub(Simd::zero(), Simd::abs(x)));
  const F s = Simd::div(t, Simd::add(t, Simd::set1(2.0f)));
  const F square = Simd::mul(s, s);
  F series = Simd::set1(2.0f / 15.0f);
  series = Simd::fma(series, square, Simd::set1(2.0f / 13.0f));
  series = Simd::fma(series, square, Simd::set1(2.0f / 11.0f));
  series = Simd::fma(series, square, Simd::set1(2.0f / 9.0f));
  series = Simd::fma(series, square, Simd::set1(2.0f / 7.0f));
  series = Simd::fma(series, square, Simd::set1(2.0f / 5.0f));
  series = Simd::fma(series, square, Simd::set1(2.0f / 3.0f));
  series = Simd::fma(series, square, Simd::set1(2.0f));
  return Simd::fma(series, s, Simd::max(x, Simd::zero()));
}

[[gnu::always_inline]] inline typename Simd::F sigmoid_vector(typename Simd::F x) {
  const typename Simd::F e = exp_vector(Simd::sub(Simd::zero(), x));
  return Simd::div(Simd::set1(1.0f), Simd::add(Simd::set1(1.0f), e));
}

[[gnu::always_inline]] inline typename Simd::F tanh_vector(typename Simd::F x) {
  const typename Simd::F e = exp_vector(Simd::add(x, x));
  return Simd::sub(Simd::set1(1.0f), Simd::div(Simd::set1(2.0f), Simd::add(e, Simd::set1(1.0f))));
}

// The tanh form (arXiv 1606.08415), with tanh(u) + 1 = 2 sigmoid(2 u).
[[gnu::always_inline]] inline typename Simd::F gelu_vector(typename Simd::F x) {
  const typename Simd::F cube = Simd::mul(Simd::mul(x, x), Simd::set1(0.044715f));
  const typename Simd::F u = Simd::mul(x, Simd::add(cube, Simd::set1(1.0f)));
  return Simd::mul(x, sigmoid_vector(Simd::mul(u, Simd::set1(1.59576912160573071176f))));
}

// GELU by the error function: x (1 + erf(x / sqrt 2)) / 2 = max(x, 0) - |x| (1 - erf(|x| / sqrt 2)) / 2. 1 - erf is
// Abramowitz and Stegun's 7.1.26, within 1.5e-7.
[[gnu::always_inline]] inline typename Simd::F gelu_of_error_vector(typename Simd::F x) {
  using F = typename Simd::F;
  const F size = Simd::abs(x);
  const F z = Simd::mul(size, Simd::set1(0.70710678118654752440f));
  const F t = Simd::div(Simd::set1(1.0f), Simd::fma(z, Simd::set1(0.3275911f), Simd::set1(1.0f)));
  F series = Simd::set1(1.061405429f);
  series = Simd::fma(series, t, Simd::set1(-1.453152027f));
  series = Simd::fma(series, t, Simd::set1(1.421413741f));
  series = Simd::fma(series, t, Simd::set1(-0.284496736f));
  series = Simd::fma(series, t, Simd::set1(0.254829592f));
  const F lacking = Simd::mul(Simd::mul(series, t), exp_vector(Simd::sub(Simd::zero(), Simd::mul(z, z))));
  return Simd::sub(Simd::max(x, Simd::zero()), Simd::mul(Simd::mul(size, Simd::set1(0.5f)), lacking));
}

// arXiv 2411.13010: quadratic above zero, exponential below. alpha_p and alpha_n went through softplus before.
[[gnu::always_inline]] inline typename Simd::F xielu_vector(typename Simd::F x, const ActivationArgs& args) {
  using F = typename Simd::F;
  const F above = Simd::max(x, Simd::zero());
  const F below = Simd::min(x, Simd::zero());
  const F grown = Simd::sub(exp_vector(Simd::min(below, Simd::set1(args.eps))), Simd::set1(1.0f));
  const F curved = Simd::zero_below(Simd::sub(grown, below), Simd::sub(Simd::zero(), x), 0.0f);  // zero for x > 0
  const F sum = Simd::fma(Simd::mul(above, above), Simd::set1(args.alpha_p), Simd::mul(x, Simd::set1(args.beta)));
  return Simd::fma(curved, Simd::set1(args.beta + args.alpha_n), sum);
}

template <Nonlinearity kKind>
[[gnu::always_inline]] inline typename Simd::F nonlinear(typename Simd::F x, const ActivationArgs& args) {
  if constexpr (kKind == Nonlinearity::kSilu) return silu(x);
  if constexpr (kKind == Nonlinearity::kGelu) return gelu_vector(x);
  if constexpr (kKind == Nonlinearity::kGeluOfError) return gelu_of_error_vector(x);
  if constexpr (kKind == Nonlinearity::kQuickGelu)
    return Simd::mul(x, sigmoid_vector(Simd::mul(x, Simd::set1(1.702f))));
  if constexpr (kKind == Nonlinearity::kRelu) return Simd::max(x, Simd::zero());
  if constexpr (kKind == Nonlinearity::kReluSquared) return Simd::mul(Simd::max(x, Simd::zero()), x);
  if constexpr (kKind == Nonlinearity::kXielu) return xielu_vector(x, args);
  if constexpr (kKind == Nonlinearity::kTanh) return tanh_vector(x);
  if constexpr (kKind == Nonlinearity::kSigmoid) return sigmoid_vector(x);
  return x;
}

[[gnu::always_inline]] inline typename Simd::F clamp(typename Simd::F x, float bound) {
  return Simd::min(Simd::max(x, Simd::set1(-bound)), Simd::set1(bound));
}

template <Nonlinearity kKind>
[[gnu::always_inline]] inline typename Simd::F gated_value(typename Simd::F gate, typename Simd::F up,
                                                           const ActivationArgs& args) {
  if constexpr (kKind == Nonlinearity::kSwigluOai) {
    const typename Simd::F x = Simd::min(gate, Simd::set1(7.0f));
    const typename Simd::F swish = Simd::mul(x, sigmoid_vector(Simd::mul(x, Simd::set1(1.702f))));
    return Simd::mul(swish, Simd::add(clamp(up, 7.0f), Simd::set1(1.0f)));
  }
  const typename Simd::F value = nonlinear<kKind>(gate, args);
  if (args.limit == 0.0f) return Simd::mul(value, up);
  return Simd::mul(Simd::min(value, Simd::set1(args.limit)), clamp(up, args.limit));
}

template <Nonlinearity kKind>
void activate_kind(const ActivationArgs& args, const float* gate, const float* up, std::int64_t count, float* out) {
  if (up == nullptr) return for_vectors(count, out, [&](auto load) { return nonlinear<kKind>(load(gate), args); });
  for_vectors(count, out, [&](auto load) { return gated_value<kKind>(load(gate), load(up), args); });
}

inline void activate(const ActivationArgs& args, const float* gate, const float* up, std::int64_t count, float* out) {
  switch (args.kind) {
    case Nonlinearity::kNone: return activate_kind<Nonlinearity::kNone>(args, gate, up, count, out);
    case Nonlinearity::kSilu: return activate_kind<Nonlinearity::kSilu>(args, gate, up, count, out);
    case Nonlinearity::kGelu: return activate_kind<Nonlinearity::kGelu>(args, gate, up, count, out);
    case Nonlinearity::kGeluOfError: return activate_kind<Nonlinearity::kGeluOfError>(args, gate, up, count, out);
    case Nonlinearity::kQuickGelu: return activate_kind<Nonlinearity::kQuickGelu>(args, gate, up, count, out);
    case Nonlinearity::kRelu: return activate_kind<Nonlinearity::kRelu>(args, gate, up, count, out);
    case Nonlinearity::kReluSquared: return activate_kind<Nonlinearity::kReluSquared>(args, gate, up, count, out);
    case Nonlinearity::kSwigluOai: return activate_kind<Nonlinearity::kSwigluOai>(args, gate, up, count, out);
    case Nonlinearity::kXielu: return activate_kind<Nonlinearity::kXielu>(args, gate, up, count, out);
    case Nonlinearity::kTanh: return activate_kind<Nonlinearity::kTanh>(args, gate, up, count, out);
    case Nonlinearity::kSigmoid: return activate_kind<Nonlinearity::kSigmoid>(args, gate, up, count, out);
  }
}

inline void softcap(const float* x, float cap, std::int64_t count, float* out) {
  const typename Simd::F bound = Simd::set1(cap);
  for_vectors(count, out, [&](auto load) { return Simd::mul(tanh_vector(Simd::div(load(x), bound)), bound); });
}

inline void add_scaled(const float* x, float factor, std::int64_t count, float* out) {
  const typename Simd::F by = Simd::set1(factor);
  for_vectors(count, out, [&](auto load) { return Simd::fma(load(x), by, load(out)); });
}

inline void scale(const float* x, float factor, std::int64_t count, float* out) {
  for_vectors(count, out, [&](auto load) { return Simd::mul(load(x), Simd::set1(factor)); });
}

inline void layer_norm(const float* x, const float* weight, const float* bias, float eps, std::int64_t count,
                       float* out) {
  using F = typename Simd::F;
  F sum = Simd::zero();
  for (std::int64_t i = 0; i < count; i += Simd::kLanes)
    sum = Simd::add(sum, take(x + i, count - i));
  const F mean = Simd::set1(Simd::reduce_add(sum) / static_cast<float>(count));
  F squares = Simd::zero();
  for (std::int64_t i = 0; i < count; i += Simd::kLanes) {
    const F d = Simd::sub(take(x + i, count - i), mean);
    const F kept = count - i >= Simd::kLanes ? d : Simd::keep_first(d, count - i, 0.0f);
    squares = Simd::fma(kept, kept, squares);
  }
  const F factor = Simd::set1(1.0f / __builtin_sqrtf(Simd::reduce_add(squares) / static_cast<float>(count) + eps));
  for_vectors(count, out, [&](auto load) {
    const F d = Simd::mul(Simd::sub(load(x), mean), factor);
    return bias == nullptr ? Simd::mul(d, load(weight)) : Simd::fma(d, load(weight), load(bias));
  });
}

}  // namespace
}  // namespace quire
