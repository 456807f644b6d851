// A model cut for devices that compute it together (tensor parallelism; arXiv 1909.08053): each rank has a part of the
// heads of attention, of the columns of feed-forwards and experts and of the rows of the head, and all of the rest;
// rank 0 alone has what is added once (biases behind a sum). Any thread.
// Invariants: the parts of the ranks make up the whole; a matrix is cut between blocks of its type, so that no weight
// is rounded again.
#pragma once

#include <cstdint>
#include <string>

#include "core/model/layers/weight_sources.h"

namespace quire {

// Why the model cannot be cut for so many devices; empty: it can.
std::string why_not_cut(const ModelSpec& spec, const WeightSources& weights, int num_ranks);
// Throws StartupError, one line that says why and which numbers of devices fit.
void require_cut(const ModelSpec& spec, const WeightSources& weights, int num_ranks);

struct RankPart {
  ModelSpec spec;         // its vocabulary: on rank 0 the whole one, else the rank's part
  WeightSources weights;  // views into the whole model's
};
RankPart part_of_rank(const ModelSpec& spec, const WeightSources& weights, int rank, int num_ranks);

}  // namespace quire
