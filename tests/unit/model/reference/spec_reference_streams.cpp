// Residual streams.
#include <cmath>
#include <numeric>

#include "tests/unit/model/reference/reference_math.h"
#include "tests/unit/model/reference/spec_reference.h"

namespace quire::test {

using Vector = SpecReference::Vector;
using Rows = SpecReference::Rows;
using Role = WeightRole;

namespace {

double length(const Vector& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

Vector as_long_as(const Vector& like, Vector x) {
  const double factor = length(like) / length(x);
  for (double& value : x)
    value *= factor;
  return x;
}

}  // namespace

std::vector<Rows> SpecReference::split_streams(const Rows& x) const {
  std::vector<Rows> streams;
  if (spec_.num_streams == 1) return streams;
  streams.push_back(x);
  for (std::size_t i = 0; i + 1 < static_cast<std::size_t>(spec_.num_streams); ++i) {
    Rows& stream = streams.emplace_back();
    for (const Vector& row : x)
      stream.push_back(as_long_as(row, product(Role::kStreamIn, -1, row, i * row.size(), row.size())));
  }
  return streams;
}

Rows SpecReference::merged(const std::vector<Rows>& streams) const {
  Rows out = streams[0];
  for (std::size_t t = 0; t < out.size(); ++t) {
    const std::size_t width = out[t].size();
    for (std::size_t i = 1; i < streams.size(); ++i)
      add_scaled(out[t],
                 as_long_as(streams[0][t], product(Role::kStreamOut, -1, streams[i][t], (i - 1) * width, width)));
    for (double& value : out[t])
      value /= static_cast<double>(streams.size());
  }
  return out;
}

Vector SpecReference::stream_factors(WeightRole role, std::int64_t index, const Vector& x) const {
  Vector in = norm(Role::kStreamRouterNorm, index, x);
  for (double& value : in)
    value /= static_cast<double>(in.size());
  Vector shares = product(Role::kStreamRouter, index, in);
  for (double& value : shares)
    value = std::tanh(value);
  return product(role, index, shares);
}

void SpecReference::run_streams(std::int64_t index, std::vector<Rows>& streams, const Rows& per_layer,
                                std::vector<Kv>& kv) const {
  const std::size_t count = streams.size();
  std::vector<Rows> predicted = streams;
  for (std::size_t t = 0; t < per_layer.size(); ++t) {
    const Vector factors = stream_factors(Role::kStreamPrediction, index, streams[0][t]);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t k = 0; k < count; ++k)
        add_scaled(predicted[i][t], streams[k][t], factors[i * count + k]);
    }
  }
  Rows x = predicted[0];
  run_layer(index, x, kv);
  for (std::size_t t = 0; t < x.size(); ++t) {
    const Vector factors = stream_factors(Role::kStreamCorrection, index, x[t]);
    Vector innovation = x[t];
    add_scaled(innovation, predicted[0][t], -1.0);
    for (std::size_t i = 0; i < count; ++i) {
      streams[i][t] = predicted[i][t];
      add_scaled(streams[i][t], innovation, 1.0 + factors[i]);
    }
    Vector first = streams[0][t];
    for (std::size_t i = 0; i < first.size(); ++i)
      first[i] *= values(Role::kStreamScale, index).at(i);
    const Vector branch = per_layer_branch(index, first, per_layer[t]);
    for (std::size_t i = 1; i < count; ++i)
      add_scaled(streams[i][t], branch);
  }
}

}  // namespace quire::test
