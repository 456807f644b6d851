#include "core/model/encode/patch_grid.h"

#include <algorithm>
#include <cmath>

namespace quire {

namespace {

// Visits the squares of one level within a rectangle, row by row, and those of the level below within each.
class Orderer {
 public:
  Orderer(std::vector<std::int64_t> sides, PatchGrid& grid) : sides_(std::move(sides)), grid_(grid) {}

  void visit(std::size_t level, std::int64_t top, std::int64_t left, std::int64_t bottom, std::int64_t right) {
    if (level == 0) {
      grid_.places.push_back({static_cast<std::int32_t>(top), static_cast<std::int32_t>(left)});
      return;
    }
    const std::int64_t side = sides_[level - 1];
    for (std::int64_t y = top; y < bottom; y += side) {
      for (std::int64_t x = left; x < right; x += side)
        visit(level - 1, y, x, std::min(y + side, bottom), std::min(x + side, right));
    }
  }

 private:
  std::vector<std::int64_t> sides_;
  PatchGrid& grid_;
};

}  // namespace

PatchGrid make_patch_grid(const TowerSpec& spec, PictureSize pixels) {
  PatchGrid grid;
  grid.rows = pixels.height / spec.patch_size;
  grid.columns = pixels.width / spec.patch_size;
  std::vector<std::int64_t> sides = {1};
  for (const std::int64_t cell : spec.cells)
    sides.push_back(sides.back() * cell);
  const std::int64_t merge = sides.back();
  const std::int64_t window = spec.window_cells * merge;
  if (window > 0) sides.push_back(window);
  Orderer(sides, grid).visit(sides.size(), 0, 0, grid.rows, grid.columns);
  for (std::int64_t y = 0; window > 0 && y < grid.rows; y += window) {
    for (std::int64_t x = 0; x < grid.columns; x += window) {
      const std::int64_t before = grid.windows.empty() ? 0 : grid.windows.back();
      if (grid.windows.empty()) grid.windows.push_back(0);
      grid.windows.push_back(before + std::min(window, grid.rows - y) * std::min(window, grid.columns - x));
    }
  }
  for (std::int64_t i = 0; i < grid.size(); i += merge * merge) {
    const PatchGrid::Place place = grid.places[static_cast<std::size_t>(i)];
    grid.cell_rows.push_back(
        static_cast<std::int32_t>(place.row / merge * (grid.columns / merge) + place.column / merge));
  }
  return grid;
}

GridPositions::GridPositions(const TowerSpec& spec, const PositionTable& table, const PatchGrid& grid)
    : table_(table),
      kind_(spec.positions),
      first_(spec.class_token == ClassToken::kFirst ? 1 : 0),
      buckets_(spec.position_buckets),
      grid_rows_(grid.rows),
      grid_columns_(grid.columns) {
  const auto resized = [&](Axis (*make)(std::int64_t from, std::int64_t to)) {
    row_taps_ = make(table.rows, grid.rows);
    column_taps_ = make(table.columns, grid.columns);
  };
  if (kind_ == LearnedPositions::kAligned) resized(aligned);
  if (kind_ == LearnedPositions::kAntialiased) resized(antialiased);
  if (kind_ == LearnedPositions::kHalfPixels) resized(half_pixels);
  if (kind_ == LearnedPositions::kCubic) resized(cubic);
}

GridPositions::Axis GridPositions::aligned(std::int64_t from, std::int64_t to) {
  Axis axis;
  const double step = to > 1 ? static_cast<double>(from - 1) / static_cast<double>(to - 1) : 0.0;
  for (std::int64_t i = 0; i < to; ++i) {
    const double at = static_cast<double>(i) * step;
    const std::int64_t first = std::min(static_cast<std::int64_t>(at), from - 1);
    const auto share = static_cast<float>(at - static_cast<double>(first));
    axis.push_back({{first, 1.0F - share}, {std::min(first + 1, from - 1), share}});
  }
  return axis;
}

GridPositions::Axis GridPositions::antialiased(std::int64_t from, std::int64_t to) {
  Axis axis;
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double support = std::max(1.0, scale);
  for (std::int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const std::int64_t first = std::max<std::int64_t>(static_cast<std::int64_t>(centre - support + 0.5), 0);
    const std::int64_t end = std::min(static_cast<std::int64_t>(centre + support + 0.5), from);
    std::vector<double> weights;
    double sum = 0.0;
    for (std::int64_t k = first; k < end; ++k) {
      const double distance = std::abs((static_cast<double>(k) - centre + 0.5) / support);
      weights.push_back(std::max(1.0 - distance, 0.0));
      sum += weights.back();
    }
    std::vector<Tap>& taps = axis.emplace_back();
    for (std::int64_t k = first; k < end; ++k)
      taps.push_back({k, static_cast<float>(weights[static_cast<std::size_t>(k - first)] / sum)});
  }
  return axis;
}

GridPositions::Axis GridPositions::half_pixels(std::int64_t from, std::int64_t to) {
  Axis axis;
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  for (std::int64_t i = 0; i < to; ++i) {
    const double at = std::max((static_cast<double>(i) + 0.5) * scale - 0.5, 0.0);
    const std::int64_t first = std::min(static_cast<std::int64_t>(at), from - 1);
    const auto share = static_cast<float>(at - static_cast<double>(first));
    axis.push_back({{first, 1.0F - share}, {std::min(first + 1, from - 1), share}});
  }
  return axis;
}

// The cubic kernel of a = -0.75, half-pixel centres.
GridPositions::Axis GridPositions::cubic(std::int64_t from, std::int64_t to) {
  constexpr double kA = -0.75;
  const auto near = [](double x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
  Axis axis;
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  for (std::int64_t i = 0; i < to; ++i) {
    const double at = (static_cast<double>(i) + 0.5) * scale - 0.5;
    const double whole = std::floor(at);
    const double t = at - whole;
    const double weights[] = {far(t + 1), near(t), near(1 - t), far(2 - t)};
    std::vector<Tap>& taps = axis.emplace_back();
    for (std::int64_t k = 0; k < 4; ++k) {
      const std::int64_t index = std::clamp<std::int64_t>(static_cast<std::int64_t>(whole) - 1 + k, 0, from - 1);
      taps.push_back({index, static_cast<float>(weights[k])});
    }
  }
  return axis;
}

void GridPositions::add(PatchGrid::Place place, std::int64_t width, float* out) const {
  const auto add_row = [&](std::int64_t row, std::int64_t column, float weight) {
    const float* const from = table_.values.data() + (row * table_.columns + column) * width;
    for (std::int64_t i = 0; i < width; ++i)
      out[i] += weight * from[i];
  };
  switch (kind_) {
    case LearnedPositions::kNone: return;
    case LearnedPositions::kByRow: return add_row(0, first_ + place.row * grid_columns_ + place.column, 1.0F);
    case LearnedPositions::kAxes:
      add_row(0, std::min<std::int64_t>(place.column, table_.columns - 1), 1.0F);
      return add_row(1, std::min<std::int64_t>(place.row, table_.columns - 1), 1.0F);
    case LearnedPositions::kBuckets:
      return add_row(0, place.row * buckets_ / grid_rows_ * buckets_ + place.column * buckets_ / grid_columns_, 1.0F);
    default: break;
  }
  for (const Tap& row : row_taps_[static_cast<std::size_t>(place.row)]) {
    for (const Tap& column : column_taps_[static_cast<std::size_t>(place.column)])
      add_row(row.index, column.index, row.weight * column.weight);
  }
}

}  // namespace quire
