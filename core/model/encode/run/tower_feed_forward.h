// The feed-forwards of a tower as stages: that of each block, and the merger within MiniCPM-V 4.6's tower.
#pragma once

#include "core/model/encode/run/row_stages.h"
#include "core/model/encode/run/tower_attention.h"

namespace quire {

// x += feed_forward(norm(x)). All arguments but the stages outlive them.
void add_feed_forward(const TowerBlock& block, const TileRows& rows, RowStages& stages);
// Attention in squares of four patches, which then become one row: rows.count falls to a quarter.
void add_vit_merger(const VitMergerWeights& merger, TowerAttention& attention, TileRows& rows, RowStages& stages);

}  // namespace quire
