// CutSums: sums over cuts of the depth that the four warps of a block compute in turn, added in the order of the depth.
// Used by the products of few rows; a lane's sums are fragments of mma (lane_row, lane_output).
#pragma once

#include "kernels/gpu/kernels/linear_int.h"

namespace quire::gpu {

template <int kTiles>
struct CutSums {
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * kWarpLanes;
  static constexpr int kFloats = kTiles * kLaneElements * kWarpLanes;  // floats of one warp's cut
  static constexpr int kBytes = kWarps * kFloats * static_cast<int>(sizeof(float));

  // Adds a warp's cut, one of the four from `cut` on; acc is zeros then. Every thread adds up kTiles elements of the
  // block's results. room: kBytes of shared memory; was_used: for sums before these.
  template <class Thread>
  QUIRE_DEVICE void add(Thread& t, float* room, float (&acc)[kTiles][kLaneElements], int cut, int num_cuts,
                        bool was_used) {
    if (was_used) t.sync_block();  // the earlier sums have been read
    QUIRE_UNROLL
    for (int i = 0; i < kTiles * kLaneElements; ++i) {
      float& mine = acc[i / kLaneElements][i % kLaneElements];
      room[t.warp() * kFloats + i * kWarpLanes + t.lane()] = mine;
      mine = 0.0f;
    }
    t.sync_block();
    QUIRE_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      for (int warp = 0; warp < kWarps && cut + warp < num_cuts; ++warp) {
        const float part = room[warp * kFloats + i * kThreads + t.index()];
        total[i] = cut + warp == 0 ? part : total[i] + part;
      }
    }
  }

  // Row of total[i] in the block; output() is its output.
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
    return (i * kThreads + t.index()) / kWarpLanes;  // tile * 4 + element of a lane
  }

  float total[kTiles] = {};
};

}  // namespace quire::gpu
