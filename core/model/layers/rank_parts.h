// A model cut for devices that compute it together (tensor parallelism; arXiv 1909.08053): each rank has a share of
// attention's heads, of the columns of feed-forwards and experts and of the head's rows, and all other weights in full;
// only rank 0 has weights that are added once (biases after a sum). Any thread.
// Invariants: the shares of the ranks make up the whole; a matrix is cut between blocks of its type, so that no weight
// is rounded again.
#pragma once

#include <cstdint>
#include <string>

#include "core/model/layers/weight_sources.h"

namespace quire {

// The reason why the model cannot be cut for that many devices; empty: it can.
std::string why_not_cut(const ModelSpec& spec, const WeightSources& weights, int num_ranks);
// Throws StartupError, one line with the reason and the numbers of devices that fit.
void require_cut(const ModelSpec& spec, const WeightSources& weights, int num_ranks);

struct RankPart {
  ModelSpec spec;         // vocabulary: the whole one on rank 0, else the rank's share
  WeightSources weights;  // views into the whole model's weights
};
RankPart part_of_rank(const ModelSpec& spec, const WeightSources& weights, int rank, int num_ranks);

}  // namespace quire
