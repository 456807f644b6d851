// Routing of one row to experts, and the order in which experts compute their rows, on the host. Any thread; one at a
// time for an ExpertOrder. Devices route by gpu/kernels/route.h: the same formulas and order of the choice.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/graph_ops.h"

namespace quire {

// Scratch memory for routing one row.
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

// Choices ordered by expert, those of one expert by what changes their rows, then in the order of the rows.
struct ExpertOrder {
  // The choices of one expert: a range of that order.
  struct Rows {
    std::size_t expert;
    std::int64_t begin;
    std::int64_t end;
  };
  std::vector<std::int32_t> choices;
  std::vector<std::int32_t> sources;  // the row of each
  std::vector<std::int32_t> places;   // place in that order, by choice
  std::vector<Rows> rows;             // experts without rows are left out

  // ids: num_chosen for each row. What was there before is replaced. row_changes: of ExpertArgs.
  void group(std::span<const std::int32_t> ids, std::int64_t num_chosen,
             std::span<const std::int32_t> row_changes = {});
};

// Abort if the shapes do not fit.
void check_route_shapes(const MatrixView& logits, const RouteOptions& options);
void check_expert_shapes(const ExpertChoices& choices, const MatrixView& x, const MatrixView& gate_up,
                         const MatrixView& results, const MatrixView& out);

// Returns whether the experts' nonlinearity is plain SwiGLU, which the following product includes.
bool is_swiglu(const ExpertArgs& args);

}  // namespace quire
