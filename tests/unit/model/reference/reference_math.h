// The scalar functions that SpecReference's parts share. Any thread.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "core/model/parts/model_config.h"
#include "kernels/graph_ops.h"

namespace quire::test {

double sigmoid(double x);
double softplus(double x);
// The product of an activated gate and the other factor.
double activated(const ActivationArgs& args, double gate, double up);
void add_scaled(std::vector<double>& x, const std::vector<double>& y, double scale = 1.0);

// Radians by which a pair of dimensions turns from one position to the next.
double rotation_speed(const RopeConfig& rope, std::size_t pair);

// The experts of a token with their weights. `bias`: added for the choice, or empty.
std::vector<std::pair<std::size_t, double>> routed(const RouteOptions& route, const std::vector<double>& logits,
                                                   const std::vector<double>& bias);

}  // namespace quire::test
