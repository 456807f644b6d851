// Latent attention, and the mixers that keep a state.
#include <algorithm>
#include <cmath>

#include "tests/unit/model/reference/reference_math.h"
#include "tests/unit/model/reference/spec_reference.h"

namespace quire::test {

using Vector = SpecReference::Vector;
using Rows = SpecReference::Rows;
using Role = WeightRole;

namespace {

std::size_t size_of(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

Vector part_of(const Vector& x, std::size_t first, std::size_t count) {
  const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

Vector unit(Vector x, double least, double factor) {
  double squares = 0.0;
  for (const double value : x)
    squares += value * value;
  const double length = std::max(std::sqrt(squares), least);
  for (double& value : x)
    value *= factor / length;
  return x;
}

// A head of the gated delta rule: the state's prediction for the key is corrected towards the value.
class DeltaState {
 public:
  DeltaState(std::size_t key_dim, std::size_t value_dim) : state_(key_dim, Vector(value_dim)) {}

  // decay: one for each channel of the key.
  Vector step(const Vector& query, const Vector& key, const Vector& value, const Vector& decay, double beta) {
    Vector out(value.size());
    for (std::size_t j = 0; j < value.size(); ++j) {
      double predicted = 0.0;
      for (std::size_t i = 0; i < key.size(); ++i) {
        state_[i][j] *= decay[i];
        predicted += state_[i][j] * key[i];
      }
      const double correction = beta * (value[j] - predicted);
      for (std::size_t i = 0; i < key.size(); ++i) {
        state_[i][j] += key[i] * correction;
        out[j] += state_[i][j] * query[i];
      }
    }
    return out;
  }

 private:
  Rows state_;
};

}  // namespace

Rows SpecReference::mix(std::int64_t index, const Rows& in, std::vector<Kv>& kv) const {
  switch (spec_.layers[size_of(index)].mixer) {
    case Mixer::kNone: break;
    case Mixer::kAttention: return attention(index, in, kv);
    case Mixer::kLatent: return latent(index, in);
    case Mixer::kDeltaNet: return delta_net(index, in);
    case Mixer::kKimiDelta: return kimi_delta(index, in);
    case Mixer::kShortConv: return short_conv(index, in);
    case Mixer::kMamba: return mamba(index, in);
    case Mixer::kMamba2: return mamba2(index, in);
    case Mixer::kLightning: return lightning(index, in);
    case Mixer::kAttentionAndMamba2: {
      Rows sum = attention(index, in, kv);
      const Rows other = mamba2(index, in);
      for (std::size_t t = 0; t < sum.size(); ++t) {
        for (std::size_t i = 0; i < sum[t].size(); ++i)
          sum[t][i] += other[t][i];
      }
      return sum;
    }
  }
  return in;
}

// Keys and values are made from the latent rows, head by head, as in training.
Rows SpecReference::latent(std::int64_t index, const Rows& in) const {
  const LayerSpec& layer = spec_.layers[size_of(index)];
  const LatentSpec& spec = layer.latent;
  const auto heads = size_of(layer.attention.num_heads);
  const auto nope = size_of(spec.nope_dim);
  const auto turned = size_of(spec.rope_dim);
  const auto rank = size_of(spec.kv_rank);
  const auto value_dim = size_of(spec.value_dim);
  AttentionSpec whole = layer.attention;
  whole.num_kv_heads = whole.num_heads;
  whole.key_dim = spec.nope_dim + spec.rope_dim;
  whole.value_dim = spec.value_dim;
  Kv kv;
  Rows queries;
  for (std::size_t t = 0; t < in.size(); ++t) {
    Vector low = in[t];
    if (spec.query_rank > 0) {
      low = product(Role::kQueryA, index, in[t]);
      low = rms(low, &values(Role::kQueryANorm, index));
    }
    Vector q = product(spec.query_rank > 0 ? Role::kQueryB : Role::kQuery, index, low);
    rotate(q, nope + turned, nope, whole.rope, t);
    for (double& value : q)
      value *= temperature(whole, t);
    queries.push_back(q);
    const Vector both = product(Role::kKvA, index, in[t]);
    const Vector row = rms(part_of(both, 0, rank), &values(Role::kKvANorm, index));
    Vector shared = part_of(both, rank, turned);
    rotate(shared, turned, 0, whole.rope, t);
    Vector keys;
    Vector made;
    for (std::size_t head = 0; head < heads; ++head) {
      Vector key(nope);
      Vector value;
      if (spec.merged_kv) {
        key = product(Role::kKvB, index, row, head * (nope + value_dim), nope);
        value = product(Role::kKvB, index, row, head * (nope + value_dim) + nope, value_dim);
      } else {
        const Vector& matrix = values(Role::kKeyB, index);
        for (std::size_t r = 0; r < rank; ++r) {
          for (std::size_t i = 0; i < nope; ++i)
            key[i] += matrix.at((head * rank + r) * nope + i) * row[r];
        }
        value = product(Role::kValueB, index, row, head * value_dim, value_dim);
      }
      keys.insert(keys.end(), key.begin(), key.end());
      keys.insert(keys.end(), shared.begin(), shared.end());
      made.insert(made.end(), value.begin(), value.end());
    }
    kv.keys.push_back(keys);
    kv.values.push_back(made);
  }
  Rows out;
  for (std::size_t t = 0; t < in.size(); ++t)
    out.push_back(product(Role::kAttentionOutput, index, attend(whole, index, queries[t], kv, t)));
  return out;
}

// A causal convolution of each channel; files hold [channels][taps], the newest row's last.
Rows SpecReference::convolve(WeightRole role, std::int64_t index, const Rows& x, bool silu) const {
  const auto taps = size_of(spec_.layers[size_of(index)].recurrent.taps);
  const Vector& weights = values(role, index);
  Rows out;
  for (std::size_t t = 0; t < x.size(); ++t) {
    Vector& row = out.emplace_back(x[t].size());
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (has(role, index, ".bias")) row[c] = values(role, index, ".bias").at(c);
      for (std::size_t back = 0; back < std::min(taps, t + 1); ++back)
        row[c] += weights.at(c * taps + taps - 1 - back) * x[t - back][c];
      if (silu) row[c] *= sigmoid(row[c]);
    }
  }
  return out;
}

Rows SpecReference::delta_net(std::int64_t index, const Rows& in) const {
  const RecurrentSpec& net = spec_.layers[size_of(index)].recurrent;
  const auto key_heads = size_of(net.key_heads);
  const auto heads = size_of(net.value_heads);
  const auto key_dim = size_of(net.key_dim);
  const auto value_dim = size_of(net.value_dim);
  const std::size_t share = heads / key_heads;
  Rows mixed;
  for (const Vector& row : in)
    mixed.push_back(product(Role::kQkv, index, row));
  mixed = convolve(Role::kSsmConv, index, mixed, true);
  std::vector<DeltaState> states(heads, DeltaState(key_dim, value_dim));
  Rows out;
  for (std::size_t t = 0; t < in.size(); ++t) {
    const Vector z = product(Role::kAttentionGate, index, in[t]);
    const Vector both = net.fused_ba ? product(Role::kSsmBa, index, in[t]) : Vector{};
    const Vector beta = net.fused_ba ? Vector{} : product(Role::kSsmBeta, index, in[t]);
    const Vector alpha = net.fused_ba ? Vector{} : product(Role::kSsmAlpha, index, in[t]);
    Vector y;
    for (std::size_t head = 0; head < heads; ++head) {
      const std::size_t key_head = net.grouped_heads ? head / share : head % key_heads;
      const std::size_t fused = head / share * 2 * share + head % share;
      const double b = net.fused_ba ? both[fused] : beta[head];
      const double a = net.fused_ba ? both[fused + share] : alpha[head];
      const double decay = std::exp(values(Role::kSsmA, index)[head] * softplus(a + values(Role::kSsmDt, index)[head]));
      const double scale = 1.0 / std::sqrt(static_cast<double>(key_dim));
      const Vector query = unit(part_of(mixed[t], key_head * key_dim, key_dim), spec_.delta_eps, scale);
      const Vector key = unit(part_of(mixed[t], (key_heads + key_head) * key_dim, key_dim), spec_.delta_eps, 1.0);
      const Vector value = part_of(mixed[t], 2 * key_heads * key_dim + head * value_dim, value_dim);
      Vector o = states[head].step(query, key, value, Vector(key_dim, decay), sigmoid(b));
      o = rms(o, &values(Role::kSsmNorm, index));
      for (std::size_t i = 0; i < value_dim; ++i) {
        const double gate = z[head * value_dim + i];
        y.push_back(o[i] * gate * sigmoid(gate));
      }
    }
    out.push_back(product(Role::kSsmOut, index, y));
  }
  return out;
}

Rows SpecReference::kimi_delta(std::int64_t index, const Rows& in) const {
  const RecurrentSpec& net = spec_.layers[size_of(index)].recurrent;
  const auto heads = size_of(net.value_heads);
  const auto dim = size_of(net.key_dim);
  const auto convolved = [&](Role matrix, Role taps) {
    Rows rows;
    for (const Vector& row : in)
      rows.push_back(product(matrix, index, row));
    return convolve(taps, index, rows, true);
  };
  const Rows q = convolved(Role::kQuery, Role::kSsmConvQ);
  const Rows k = convolved(Role::kKey, Role::kSsmConvK);
  const Rows v = convolved(Role::kValue, Role::kSsmConvV);
  std::vector<DeltaState> states(heads, DeltaState(dim, dim));
  Rows out;
  for (std::size_t t = 0; t < in.size(); ++t) {
    const Vector speed = product(Role::kSsmFB, index, product(Role::kSsmFA, index, in[t]));
    const Vector gate = product(Role::kSsmGB, index, product(Role::kSsmGA, index, in[t]));
    const Vector beta = product(Role::kSsmBeta, index, in[t]);
    Vector y;
    for (std::size_t head = 0; head < heads; ++head) {
      Vector decay;
      for (std::size_t i = head * dim; i < (head + 1) * dim; ++i)
        decay.push_back(
            std::exp(values(Role::kSsmA, index)[head] * softplus(speed[i] + values(Role::kSsmDt, index)[i])));
      const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
      Vector o = states[head].step(unit(part_of(q[t], head * dim, dim), spec_.delta_eps, scale),
                                   unit(part_of(k[t], head * dim, dim), spec_.delta_eps, 1.0),
                                   part_of(v[t], head * dim, dim), decay, sigmoid(beta[head]));
      o = rms(o, &values(Role::kSsmNorm, index));
      for (std::size_t i = 0; i < dim; ++i)
        y.push_back(o[i] * sigmoid(gate[head * dim + i]));
    }
    out.push_back(product(Role::kAttentionOutput, index, y));
  }
  return out;
}

Rows SpecReference::short_conv(std::int64_t index, const Rows& in) const {
  const auto width = size_of(spec_.layers[size_of(index)].recurrent.inner_size);
  Rows gated;
  Rows outer;
  for (const Vector& row : in) {
    const Vector all = product(Role::kConvIn, index, row);
    outer.push_back(part_of(all, width, width));
    Vector& x = gated.emplace_back(part_of(all, 2 * width, width));
    for (std::size_t i = 0; i < width; ++i)
      x[i] *= all[i];
  }
  Rows out;
  const Rows mixed = convolve(Role::kConv, index, gated, false);
  for (std::size_t t = 0; t < in.size(); ++t) {
    Vector y = mixed[t];
    for (std::size_t i = 0; i < width; ++i)
      y[i] *= outer[t][i];
    out.push_back(product(Role::kConvOut, index, y));
  }
  return out;
}

Vector SpecReference::step_norm(WeightRole role, std::int64_t index, const Vector& x) const {
  const RecurrentSpec& net = spec_.layers[size_of(index)].recurrent;
  if (net.step_norm == StepNorm::kNone) return x;
  double squares = 0.0;
  for (const double value : x)
    squares += value * value;
  const double root = std::sqrt(squares / static_cast<double>(x.size()) + net.step_eps);
  Vector out;
  for (std::size_t i = 0; i < x.size(); ++i)
    out.push_back(x[i] / root * (net.step_norm == StepNorm::kWeighted ? values(role, index).at(i) : 1.0));
  return out;
}

Rows SpecReference::mamba(std::int64_t index, const Rows& in) const {
  const RecurrentSpec& net = spec_.layers[size_of(index)].recurrent;
  const auto inner = size_of(net.inner_size);
  const auto state_size = size_of(net.key_dim);
  const auto rank = size_of(net.step_rank);
  Rows x;
  Rows z;
  for (const Vector& row : in) {
    const Vector both = product(Role::kSsmIn, index, row);
    x.push_back(part_of(both, 0, inner));
    z.push_back(part_of(both, inner, inner));
  }
  x = convolve(Role::kSsmConv, index, x, true);
  std::vector<Vector> state(inner, Vector(state_size));
  Rows out;
  for (std::size_t t = 0; t < in.size(); ++t) {
    const Vector made = product(Role::kSsmX, index, x[t]);
    const Vector low = step_norm(Role::kSsmStepNorm, index, part_of(made, 0, rank));
    const Vector b = step_norm(Role::kSsmBNorm, index, part_of(made, rank, state_size));
    const Vector c = step_norm(Role::kSsmCNorm, index, part_of(made, rank + state_size, state_size));
    const Vector step = product(Role::kSsmStep, index, low);
    Vector y(inner);
    for (std::size_t i = 0; i < inner; ++i) {
      const double dt = softplus(step[i]);
      for (std::size_t n = 0; n < state_size; ++n) {
        state[i][n] =
            state[i][n] * std::exp(dt * values(Role::kSsmA, index).at(i * state_size + n)) + dt * x[t][i] * b[n];
        y[i] += state[i][n] * c[n];
      }
      y[i] = (y[i] + values(Role::kSsmD, index).at(i) * x[t][i]) * z[t][i] * sigmoid(z[t][i]);
    }
    out.push_back(product(Role::kSsmOut, index, y));
  }
  return out;
}

Rows SpecReference::mamba2(std::int64_t index, const Rows& in) const {
  const RecurrentSpec& net = spec_.layers[size_of(index)].recurrent;
  const auto inner = size_of(net.inner_size);
  const auto heads = size_of(net.value_heads);
  const auto dim = size_of(net.value_dim);
  const auto state_size = size_of(net.key_dim);
  const auto groups = size_of(net.num_groups);
  const std::size_t convolved = inner + 2 * groups * state_size;
  Rows all;
  Rows xbc;
  for (const Vector& row : in) {
    all.push_back(product(Role::kSsmIn, index, row));
    xbc.push_back(part_of(all.back(), inner, convolved));
  }
  xbc = convolve(Role::kSsmConv, index, xbc, true);
  std::vector<Vector> state(inner, Vector(state_size));
  Rows out;
  for (std::size_t t = 0; t < in.size(); ++t) {
    Vector y(inner);
    for (std::size_t i = 0; i < inner; ++i) {
      const std::size_t head = i / dim;
      const std::size_t group = head / (heads / groups);
      const double dt = softplus(all[t][inner + convolved + head] + values(Role::kSsmDt, index)[head]);
      const double decay = std::exp(dt * values(Role::kSsmA, index)[head]);
      for (std::size_t n = 0; n < state_size; ++n) {
        const double b = xbc[t][inner + group * state_size + n];
        const double c = xbc[t][inner + (groups + group) * state_size + n];
        state[i][n] = state[i][n] * decay + dt * xbc[t][i] * b;
        y[i] += state[i][n] * c;
      }
      y[i] += values(Role::kSsmD, index)[head] * xbc[t][i];
      y[i] *= all[t][i] * sigmoid(all[t][i]);
    }
    const std::size_t width = inner / groups;
    for (std::size_t group = 0; net.has_norm && group < groups; ++group) {
      const Vector weight = part_of(values(Role::kSsmNorm, index), group * width, width);
      const Vector normed = rms(part_of(y, group * width, width), &weight);
      std::ranges::copy(normed, y.begin() + static_cast<std::ptrdiff_t>(group * width));
    }
    out.push_back(product(Role::kSsmOut, index, y));
  }
  return out;
}

// Every token sees all earlier ones, weighted by its head's decay to the power of the distance.
Rows SpecReference::lightning(std::int64_t index, const Rows& in) const {
  const LayerSpec& layer = spec_.layers[size_of(index)];
  const RecurrentSpec& net = layer.recurrent;
  const auto heads = size_of(net.value_heads);
  const auto dim = size_of(net.value_dim);
  const std::size_t width = heads * dim;
  Rows queries;
  Rows keys;
  Rows inputs;
  for (std::size_t t = 0; t < in.size(); ++t) {
    Vector all = product(Role::kQkv, index, in[t]);
    for (double& value : all)
      value *= net.silu_inputs ? sigmoid(value) : 1.0;
    Vector query = part_of(all, 0, width);
    Vector key = part_of(all, width, width);
    for (std::size_t head = 0; layer.attention.qk_norm != QkNorm::kNone && head < heads; ++head) {
      const auto place = static_cast<std::ptrdiff_t>(head * dim);
      const Vector normed_query = rms(part_of(query, head * dim, dim), &values(Role::kQueryNorm, index));
      const Vector normed_key = rms(part_of(key, head * dim, dim), &values(Role::kKeyNorm, index));
      std::ranges::copy(normed_query, query.begin() + place);
      std::ranges::copy(normed_key, key.begin() + place);
    }
    rotate(query, dim, 0, layer.attention.rope, t);
    rotate(key, dim, 0, layer.attention.rope, t);
    queries.push_back(query);
    keys.push_back(key);
    inputs.push_back(part_of(all, 2 * width, width));
  }
  Rows out;
  for (std::size_t t = 0; t < in.size(); ++t) {
    Vector y(width);
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t head = i / dim;
      for (std::size_t past = 0; past <= t; ++past) {
        double match = 0.0;
        for (std::size_t n = head * dim; n < (head + 1) * dim; ++n)
          match += queries[t][n] * keys[past][n];
        const double distance = static_cast<double>(t - past);
        const double weight = std::exp(distance * net.decays[head]);
        y[i] += weight * match / std::sqrt(static_cast<double>(dim)) * inputs[past][i];
      }
    }
    const std::size_t group_width = width / size_of(net.num_groups);
    for (std::size_t first = 0; first < width; first += group_width) {
      const Vector weight = part_of(values(Role::kSsmNorm, index), first, group_width);
      const Vector normed = rms(part_of(y, first, group_width), &weight);
      std::ranges::copy(normed, y.begin() + static_cast<std::ptrdiff_t>(first));
    }
    const Vector gate = product(Role::kAttentionGate, index, in[t]);
    for (std::size_t i = 0; i < width; ++i)
      y[i] *= sigmoid(gate[i]);
    out.push_back(product(Role::kAttentionOutput, index, y));
  }
  return out;
}

}  // namespace quire::test
