// Layout of rows when each takes some experts: choices are ordered by expert, those of one expert by row. Kernels make
// and read these arrays, so that the host waits for none. Invariant: a range of tiles holds rows of one expert alone.
#pragma once

#include "kernels/gpu/kernels/portable.h"

namespace quire::gpu {

// The choices of one expert: consecutive places of that order.
struct ExpertRange {
  std::int32_t begin;
  std::int32_t count;
  std::int32_t first_tile;  // first tile of eight rows with its quantised rows
};

// Work of one block of rows of a product; rows: 0 if there is none.
struct ExpertItem {
  std::int32_t expert;
  std::int32_t first_tile;
  std::int32_t first_row;
  std::int32_t rows;
};

// Place of an expert's matrix: its distance from the first expert's, so that compilers know the kind of memory.
struct ExpertWeights {
  std::int64_t weights = 0;  // bytes
  std::int64_t bias = 0;     // floats
  std::int64_t order = 0;    // indices
  float scale = 1.0f;
};

// A product in which each expert has rows of its own; null: one matrix for all rows.
struct ExpertProduct {
  const ExpertItem* items = nullptr;  // indexed by block of rows
  const ExpertWeights* weights = nullptr;
};

// The rows to quantise and the places of their quants; null: each row at its own place.
struct ExpertRows {
  const std::int32_t* sources = nullptr;  // the row that is made, by place
  const std::int32_t* experts = nullptr;  // indexed by place
  const ExpertRange* ranges = nullptr;
  const ExpertWeights* weights = nullptr;

  QUIRE_DEVICE std::int64_t source(std::int64_t place) const { return sources == nullptr ? place : sources[place]; }
  QUIRE_DEVICE std::int64_t tile_row(std::int64_t place) const {
    if (experts == nullptr) return place;
    const ExpertRange range = ranges[experts[place]];
    return 8 * static_cast<std::int64_t>(range.first_tile) + place - range.begin;
  }
  QUIRE_DEVICE const std::int32_t* order(std::int64_t place, const std::int32_t* of_first) const {
    return experts == nullptr || of_first == nullptr ? of_first : of_first + weights[experts[place]].order;
  }
};

}  // namespace quire::gpu
