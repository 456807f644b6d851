// PatchGrid: the order in which a tower holds the patches of one picture, and their places. Immutable; any thread.
// Patches of a cell are neighbours, cell by cell, so that merging them reads consecutive rows.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/encode/towers/tower_spec.h"
#include "core/model/encode/towers/tower_weights.h"

namespace quire {

struct PatchGrid {
  struct Place {
    std::int32_t row = 0;
    std::int32_t column = 0;
  };
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<Place> places;            // place of each patch
  std::vector<std::int64_t> windows;    // first row of each attention window, and the end; empty: none
  std::vector<std::int32_t> cell_rows;  // index in raster order of each outermost cell

  std::int64_t size() const { return rows * columns; }
};

PatchGrid make_patch_grid(const TowerSpec& spec, PictureSize pixels);

// Learned positions of one grid: each is a sum of rows of the table.
class GridPositions {
 public:
  GridPositions(const TowerSpec& spec, const PositionTable& table, const PatchGrid& grid);
  // out[width] += the position of a patch.
  void add(PatchGrid::Place place, std::int64_t width, float* out) const;

 private:
  struct Tap {
    std::int64_t index = 0;
    float weight = 1.0F;
  };
  using Axis = std::vector<std::vector<Tap>>;  // for each row or column
  static Axis aligned(std::int64_t from, std::int64_t to);
  static Axis antialiased(std::int64_t from, std::int64_t to);
  static Axis half_pixels(std::int64_t from, std::int64_t to);
  static Axis cubic(std::int64_t from, std::int64_t to);

  const PositionTable& table_;
  LearnedPositions kind_;
  std::int64_t first_ = 0;  // row of the first patch
  std::int64_t buckets_ = 0;
  std::int64_t grid_rows_ = 0;
  std::int64_t grid_columns_ = 0;
  Axis row_taps_;
  Axis column_taps_;
};

}  // namespace quire
