// CutSums: sums over cuts of the depth that the four warps of a block compute in turn, added in the order of the depth.
// Used by the products of few rows; a lane's sums are fragments of mma (lane_row, lane_output).
#pragma once

#include "kernels/gpu/kernels/linear_int.h"

namespace quire::gpu {

template <int kTiles>
struct CutSums {
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * kWarpLanes;
  static constexpr int kFloats = kTiles * kLaneElements * kWarpLanes;  // of one warp's cut
  static constexpr int kBytes = kWarps * kFloats * static_cast<int>(sizeof(float));

  QUIRE_DEVICE explicit CutSums(float* shared) : sums(shared) {}

  // A warp's cut of the round that begins with `cut`. Every thread adds up kTiles elements of the block's results.
  template <class Thread>
  QUIRE_DEVICE void add(Thread& t, const float (&acc)[kTiles][kLaneElements], std::int64_t cut, std::int64_t num_cuts) {
    if (cut > 0) t.sync_block();  // the sums of the round before have been read
    for (int i = 0; i < kTiles * kLaneElements; ++i)
      sums[t.warp() * kFloats + i * kWarpLanes + t.lane()] = acc[i / kLaneElements][i % kLaneElements];
    t.sync_block();
    for (int i = 0; i < kTiles; ++i) {
      for (int warp = 0; warp < kWarps && cut + warp < num_cuts; ++warp) {
        const float part = sums[warp * kFloats + i * kThreads + t.index()];
        total[i] = cut + warp == 0 ? part : total[i] + part;
      }
    }
  }

  // Where total[i] belongs among the block's rows and outputs.
  template <class Thread>
  static QUIRE_DEVICE int row(Thread& t, int i) {
    return element(t, i) / kLaneElements * kTileRows + lane_row(t.lane(), element(t, i) % kLaneElements);
  }
  template <class Thread>
  static QUIRE_DEVICE int output(Thread& t, int i) {
    return lane_output(t.lane(), element(t, i) % kLaneElements);
  }
  template <class Thread>
  static QUIRE_DEVICE int element(Thread& t, int i) {
    return (i * kThreads + t.index()) / kWarpLanes;  // of a lane: tile * 4 + element
  }

  float* sums;
  float total[kTiles] = {};
};

}  // namespace quire::gpu
