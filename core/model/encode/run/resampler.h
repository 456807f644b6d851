// Resampler: learned queries that look at all patches of a tile once, in MiniCPM-V 2.6 to 4.5 (arXiv 2308.12966,
// section 3). Engine thread; memory is there from allocate() on.
#pragma once

#include <memory>
#include <vector>

#include "core/model/encode/run/row_attention.h"
#include "core/model/encode/run/tower_outputs.h"

namespace quire {

class Resampler {
 public:
  // All arguments outlive the resampler.
  Resampler(const TowerWeights& weights, const TileRows& rows, const TowerOutputs& outputs);
  void add_stages(RowStages& stages);
  void allocate(Backend& backend);

 private:
  void fill_waves(std::int64_t begin, std::int64_t end);
  void store_keys(TowerOps& ops, std::int64_t begin, std::int64_t end);
  void answer_queries(TowerOps& ops, std::int64_t begin, std::int64_t end) const;

  const ResamplerWeights& weights_;
  const TowerSteps& projector_;
  const TileRows& rows_;
  const TowerOutputs& outputs_;
  RowAttention attention_;
  std::unique_ptr<KvStorage> keys_;
  std::vector<float> waves_;  // [places][width / 2]: sines and cosines of row and column numbers
};

}  // namespace quire
