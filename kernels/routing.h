// Routing of one row to experts, on the host: the same arithmetic for every backend. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/graph_ops.h"

namespace quire {

// What routing one row needs beside its results.
struct RouteRoom {
  std::vector<float> gates;   // [experts]
  std::vector<float> scores;  // [experts]
  std::vector<float> of_group;
  std::vector<std::int32_t> kept;
  std::vector<char> is_taken;
};

// ids, weights: [options.num_chosen], in the order of the choice. The options' arrays lie in the host's memory.
void route_row(std::span<const float> logits, const RouteOptions& options, std::int32_t* ids, float* weights,
               RouteRoom& room);

}  // namespace quire
