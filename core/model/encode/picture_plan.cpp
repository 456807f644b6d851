#include "core/model/encode/picture_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/model/encode/pictures/picture_sizes.h"
#include "core/model/encode/pictures/resize.h"
#include "kernels/check.h"

namespace quire {

namespace {

constexpr double kLongestContent = 1 << 30;  // sides before the middle is cut out

std::string replaced(std::string text, const std::string& what, std::int32_t number) {
  const std::size_t at = text.find(what);
  return at == std::string::npos ? text : text.replace(at, what.size(), std::to_string(number));
}

class Planner {
 public:
  Planner(const TowerSpec& spec, PictureSize picture, const PictureSettings& settings)
      : spec_(spec), rules_(spec.picture), picture_(picture), settings_(settings), limits_(limits()) {}

  PicturePlan plan() {
    if (wants_tiles()) choose_tiles();
    if (!overview_) choose_whole();
    lay_out();
    return std::move(plan_);
  }

 private:
  PixelLimits limits() const {
    const std::int64_t cell = std::int64_t{rules_.align} * rules_.align;
    PixelLimits limits{rules_.min_pixels, rules_.max_pixels};
    if (settings_.min_pixels) limits.least = *settings_.min_pixels;
    if (settings_.max_pixels) limits.most = *settings_.max_pixels;
    if (settings_.detail == PictureSettings::Detail::kLow) limits.most = std::min(limits.most, rules_.max_pixels / 4);
    limits.most = std::max(limits.most, cell);
    limits.least = std::clamp<std::int64_t>(limits.least, 0, limits.most);
    return limits;
  }

  bool wants_tiles() const {
    if (settings_.detail == PictureSettings::Detail::kLow) return false;
    switch (rules_.sizing) {
      case Sizing::kBestTiles:
        return rules_.always_tiles || picture_.width > rules_.image_size || picture_.height > rules_.image_size;
      case Sizing::kClosestTiles:
      case Sizing::kLlama4Tiles:
      case Sizing::kEdgeTiles: return true;
      case Sizing::kSlices:
        return slice_sizes(picture_, rules_.image_size, rules_.align, rules_.as_llama_cpp).grid.area() > 0;
      case Sizing::kLargeTiles: {
        constexpr std::int64_t kTolerance = 2;
        return smart_size(picture_, rules_.align, {0, std::int64_t{1} << 60}, rules_.as_llama_cpp).area() >
               kTolerance * rules_.max_pixels;
      }
      default: return false;
    }
  }

  void choose_tiles() {
    const std::int32_t side = rules_.image_size;
    switch (rules_.sizing) {
      case Sizing::kBestTiles:
        return cut(best_candidate(picture_, rules_.candidates, rules_.as_llama_cpp), {side, side}, rules_.tiles);
      case Sizing::kClosestTiles: {
        const PictureSize grid = closest_candidate(picture_, rules_.candidates, side);
        return cut({grid.width * side, grid.height * side}, {side, side}, rules_.tiles);
      }
      case Sizing::kLlama4Tiles:
        return cut(snuggest_candidate(picture_, rules_.candidates), {side, side}, rules_.tiles);
      case Sizing::kEdgeTiles: return cut_edges();
      case Sizing::kLargeTiles: {
        const PictureSize grid = closest_candidate(picture_, rules_.candidates, rules_.tile_size);
        const PictureSize tile = {rules_.tile_size, rules_.tile_size};
        return cut({grid.width * tile.width, grid.height * tile.height}, tile, rules_.tiles);
      }
      default: {
        const SliceSizes sizes = slice_sizes(picture_, side, rules_.align, rules_.as_llama_cpp);
        return cut(sizes.all, {sizes.all.width / sizes.grid.width, sizes.all.height / sizes.grid.height}, rules_.tiles);
      }
    }
  }

  // The longest side becomes longest_edge, then both become multiples of a tile's.
  void cut_edges() {
    const std::int32_t side = rules_.image_size;
    const std::int32_t edge = rules_.longest_edge;
    const auto to_tiles = [&](double length) { return static_cast<std::int32_t>(std::ceil(length / side)) * side; };
    if (rules_.as_llama_cpp) {
      const float scale = std::min(static_cast<float>(edge) / static_cast<float>(picture_.width),
                                   static_cast<float>(edge) / static_cast<float>(picture_.height));
      const auto scaled = [&](std::int32_t length) {
        return static_cast<std::int32_t>(std::ceil(static_cast<float>(length) * scale / static_cast<float>(side))) *
               side;
      };
      return cut({scaled(picture_.width), scaled(picture_.height)}, {side, side}, rules_.tiles);
    }
    const double aspect = static_cast<double>(picture_.width) / picture_.height;
    const bool is_wide = picture_.width >= picture_.height;
    // The shorter side is even.
    const auto shorter = [&](double length) { return std::max((static_cast<std::int32_t>(length) + 1) / 2 * 2, 2); };
    const PictureSize before =
        is_wide ? PictureSize{edge, shorter(edge / aspect)} : PictureSize{shorter(edge * aspect), edge};
    const double shape = static_cast<double>(before.width) / before.height;
    PictureSize all;
    if (is_wide) {
      all.width = to_tiles(before.width);
      all.height = to_tiles(std::floor(all.width / shape));
    } else {
      all.height = to_tiles(before.height);
      all.width = to_tiles(std::floor(all.height * shape));
    }
    const PictureSize square = {side, side};
    if (all.area() > square.area()) cut(all, square, rules_.tiles, {before});
    add_overview({.size = square, .content = square, .resize = rules_.whole, .before = {before, all}});
  }

  void cut(PictureSize all, PictureSize tile, const ResizeSpec& resize, std::vector<PictureSize> before = {}) {
    PictureCanvas canvas = placed(all, resize);
    canvas.before = std::move(before);
    const std::size_t index = plan_.canvases.size();
    plan_.canvases.push_back(canvas);
    grid_ = {all.width / tile.width, all.height / tile.height};
    for (std::int32_t row = 0; row < grid_.height; ++row) {
      for (std::int32_t column = 0; column < grid_.width; ++column)
        tiles_.push_back({.canvas = index, .x = column * tile.width, .y = row * tile.height, .size = tile});
    }
  }

  PictureCanvas placed(PictureSize size, const ResizeSpec& resize) const {
    PictureCanvas canvas{.size = size, .content = size, .resize = resize};
    if (picture_ == size) return canvas;
    switch (resize.fit) {
      case ResizeFit::kStretch: break;
      case ResizeFit::kPadCentred:
        canvas.content = fitted(picture_, size, true, rules_.as_llama_cpp);
        canvas.x = (size.width - canvas.content.width) / 2;
        canvas.y = (size.height - canvas.content.height) / 2;
        break;
      case ResizeFit::kPadCorner: {
        // A small picture is enlarged to a tile at most.
        const std::int32_t side = rules_.image_size;
        const PictureSize frame = {std::min(std::max(picture_.width, side), size.width),
                                   std::min(std::max(picture_.height, side), size.height)};
        canvas.content = fitted(picture_, frame, false, false);
        break;
      }
      case ResizeFit::kPlace: {
        const PictureSize limited = limited_size(picture_, rules_.patch_size, limits_.most);
        canvas.content = {std::min(limited.width, size.width), std::min(limited.height, size.height)};
        break;
      }
      case ResizeFit::kCover: {
        const std::int32_t side = std::min(size.width, size.height);
        const bool is_wide = picture_.width >= picture_.height;
        const auto longer =
            static_cast<std::int32_t>(std::min(static_cast<double>(side) * std::max(picture_.width, picture_.height) /
                                                   std::min(picture_.width, picture_.height),
                                               kLongestContent));
        canvas.content = is_wide ? PictureSize{longer, side} : PictureSize{side, longer};
        canvas.x = -((canvas.content.width - size.width) / 2);
        canvas.y = -((canvas.content.height - size.height) / 2);
        break;
      }
    }
    return canvas;
  }

  PictureSize whole_size() const {
    const PictureSize square = {rules_.image_size, rules_.image_size};
    switch (rules_.sizing) {
      case Sizing::kSmart:
        return smart_size(enlarged_size(picture_, rules_.align, rules_.short_side), rules_.align, limits_,
                          rules_.as_llama_cpp);
      case Sizing::kLargeTiles: return smart_size(picture_, rules_.align, limits_, rules_.as_llama_cpp);
      case Sizing::kBudget: return budget_size(picture_, rules_.align, limits_.most);
      case Sizing::kLongestEdge: return longest_edge_size(picture_, rules_.align, rules_.longest_edge, limits_.most);
      case Sizing::kPatchLimit: {
        const PictureSize shrunk = limited_size(picture_, rules_.patch_size, limits_.most);
        return padded_size(shrunk, rules_.align, limits_.most);
      }
      case Sizing::kSlices: return slice_sizes(picture_, rules_.image_size, rules_.align, rules_.as_llama_cpp).overview;
      default: return square;
    }
  }

  void choose_whole() {
    if (rules_.overview_of_many_only && tiles_.size() == 1) return;
    add_overview(placed(whole_size(), rules_.whole));
  }

  void add_overview(const PictureCanvas& canvas) {
    overview_ = PictureTile{.canvas = plan_.canvases.size(), .size = canvas.size};
    plan_.canvases.push_back(canvas);
  }

  void lay_out() {
    if (rules_.joins_tiles && !tiles_.empty()) return join_tiles();
    add_text(spec_.texts.begin);
    if (overview_ && rules_.overview_first) put_overview();
    put_tiles();
    if (overview_ && !rules_.overview_first) put_overview();
    add_text(spec_.texts.end);
  }

  void put_overview() {
    add_text(spec_.texts.overview_begin);
    put_rows(*overview_);
    add_text(spec_.texts.overview_end);
  }

  void put_tiles() {
    const PictureTexts& texts = spec_.texts;
    if (tiles_.size() == 1 && rules_.overview_of_many_only) {
      add_text(texts.overview_begin);
      return put_rows(tiles_.front());
    }
    for (std::size_t i = 0; i < tiles_.size(); ++i) {
      const auto row = static_cast<std::int32_t>(i) / grid_.width;
      const auto column = static_cast<std::int32_t>(i) % grid_.width;
      add_text(replaced(replaced(texts.tile_begin, "{row}", row + 1), "{column}", column + 1));
      put_rows(tiles_[i]);
      add_text(texts.tile_end);
      if (column + 1 < grid_.width)
        add_text(texts.tile_between);
      else if (row + 1 < grid_.height)
        add_text(texts.row_end);
    }
    if (!tiles_.empty()) add_text(texts.tiles_end);
  }

  void add_text(const std::string& text) {
    if (text.empty()) return;
    auto& parts = plan_.layout.parts;
    if (!parts.empty() && parts.back().num_rows == 0)
      parts.back().text += text;
    else
      parts.push_back({.text = text});
  }

  // Rows of a tile in the order in which the tower gives them.
  void put_rows(PictureTile tile) {
    const PictureSize grid = row_grid(tile.size);
    std::int64_t count = spec_.num_queries > 0 ? spec_.num_queries : grid.area();
    tile.first_row = plan_.layout.num_rows;
    if (spec_.breaks_rows) {
      for (std::int32_t i = 0; i < grid.area(); ++i)
        tile.places.push_back(i + i / grid.width);
      for (std::int32_t row = 1; row < grid.height; ++row)
        plan_.break_rows.push_back(tile.first_row + row * (grid.width + 1) - 1);
      count += grid.height - 1;
    }
    if (spec_.columns_first) {
      for (std::int32_t i = 0; i < grid.area(); ++i)
        tile.places.push_back(i % grid.width * grid.height + i / grid.width);
    }
    plan_.tiles.push_back(std::move(tile));
    LayoutPart part{.num_rows = count, .num_positions = count, .is_bidirectional = spec_.is_bidirectional};
    if (spec_.has_grid_positions) {
      part.grid_width = grid.width;
      part.grid_height = grid.height;
      part.num_positions = std::max(grid.width, grid.height);
    }
    add_rows(part);
  }

  void add_rows(const LayoutPart& part) {
    plan_.layout.parts.push_back(part);
    plan_.layout.num_rows += part.num_rows;
  }

  PictureSize row_grid(PictureSize pixels) const {
    const auto side = static_cast<std::int32_t>(spec_.merge() * spec_.patch_size);
    return {pixels.width / side, pixels.height / side};
  }

  // The overview, then one raster of all tiles without the rows of bars, each line ended by the break row.
  void join_tiles() {
    add_text(spec_.texts.begin);
    const PictureSize tile_grid = row_grid({rules_.image_size, rules_.image_size});
    const PictureSize raster = {tile_grid.width * grid_.width, tile_grid.height * grid_.height};
    const double aspect = static_cast<double>(picture_.width) / picture_.height;
    // Whole rows; digits behind the seventh are rounding errors.
    constexpr double kDigits = 1e7;
    const auto covered = [&](double rows) {
      return static_cast<std::int32_t>(std::nearbyint(rows * kDigits) / kDigits);
    };
    PictureSize cut;  // rows and columns left out on each side
    if (aspect > static_cast<double>(raster.width) / raster.height) {
      const double shown = picture_.height * (static_cast<double>(raster.width) / picture_.width);
      cut.height = (raster.height - covered(shown)) / 2;
    } else {
      const double shown = picture_.width * (static_cast<double>(raster.height) / picture_.height);
      cut.width = (raster.width - covered(shown)) / 2;
    }
    const PictureSize kept = {raster.width - 2 * cut.width, raster.height - 2 * cut.height};
    LayoutPart part{.num_rows = tile_grid.area() + kept.area() + kept.height,
                    .is_bidirectional = spec_.is_bidirectional};
    part.num_positions = part.num_rows;
    plan_.tiles.push_back(*overview_);
    const std::int64_t base = tile_grid.area();
    for (PictureTile& tile : tiles_) {
      tile.first_row = base;
      const PictureSize first = {tile.x / tile.size.width * tile_grid.width,
                                 tile.y / tile.size.height * tile_grid.height};
      for (std::int32_t i = 0; i < tile_grid.area(); ++i) {
        const std::int32_t x = first.width + i % tile_grid.width - cut.width;
        const std::int32_t y = first.height + i / tile_grid.width - cut.height;
        const bool is_kept = x >= 0 && y >= 0 && x < kept.width && y < kept.height;
        tile.places.push_back(is_kept ? y * (kept.width + 1) + x : -1);
      }
      plan_.tiles.push_back(std::move(tile));
    }
    for (std::int32_t y = 1; y <= kept.height; ++y)
      plan_.break_rows.push_back(base + y * (kept.width + 1) - 1);
    add_rows(part);
    add_text(spec_.texts.end);
  }

  const TowerSpec& spec_;
  const PictureSpec& rules_;
  const PictureSize picture_;
  const PictureSettings& settings_;
  const PixelLimits limits_;
  PicturePlan plan_;
  PictureSize grid_;
  std::vector<PictureTile> tiles_;
  std::optional<PictureTile> overview_;
};

// `from` at a place of `to`, as much as lies within.
void put(const Picture& from, std::int32_t x, std::int32_t y, Picture& to) {
  const std::int32_t left = std::max(0, -x);
  const std::int32_t count = std::min(from.width, to.width - x) - left;
  if (count <= 0) return;
  for (std::int32_t row = std::max(0, -y); row < std::min(from.height, to.height - y); ++row) {
    const auto source =
        (static_cast<std::size_t>(row) * static_cast<std::size_t>(from.width) + static_cast<std::size_t>(left)) * 3;
    const auto target =
        (static_cast<std::size_t>(row + y) * static_cast<std::size_t>(to.width) + static_cast<std::size_t>(x + left)) *
        3;
    std::memcpy(&to.rgb[target], &from.rgb[source], static_cast<std::size_t>(count) * 3);
  }
}

Picture bars(PictureSize size, const std::array<std::uint8_t, 3>& colour) {
  Picture out{size.width, size.height, std::vector<std::uint8_t>(static_cast<std::size_t>(size.area()) * 3)};
  for (std::size_t i = 0; i < out.rgb.size(); ++i)
    out.rgb[i] = colour[i % 3];
  return out;
}

Picture make_canvas(const PictureCanvas& canvas, const Picture& picture) {
  Picture content;
  const Picture* from = &picture;
  for (const PictureSize size : canvas.before) {
    content = resize(*from, size, canvas.resize.filter);
    from = &content;
  }
  if (canvas.resize.fit == ResizeFit::kCover)
    return resize_part(*from, canvas.content, {-canvas.x, -canvas.y, canvas.size}, canvas.resize.filter);
  content = resize(*from, canvas.content, canvas.resize.filter);
  if (canvas.content == canvas.size) return content;
  Picture out = bars(canvas.size, canvas.resize.bars);
  put(content, canvas.x, canvas.y, out);
  return out;
}

}  // namespace

PicturePlan plan_picture(const TowerSpec& spec, PictureSize size, const PictureSettings& settings) {
  QUIRE_CHECK(size.width > 0 && size.height > 0, "a picture without pixels");
  return Planner(spec, size, settings).plan();
}

std::vector<Picture> cut_tiles(const PicturePlan& plan, const Picture& picture) {
  std::vector<Picture> canvases;
  for (const PictureCanvas& canvas : plan.canvases)
    canvases.push_back(make_canvas(canvas, picture));
  std::vector<Picture> tiles;
  for (const PictureTile& tile : plan.tiles) {
    Picture& canvas = canvases[tile.canvas];
    if (canvas.width == tile.size.width && canvas.height == tile.size.height) {
      tiles.push_back(std::move(canvas));
      continue;
    }
    Picture out{tile.size.width, tile.size.height,
                std::vector<std::uint8_t>(static_cast<std::size_t>(tile.size.area()) * 3)};
    put(canvas, -tile.x, -tile.y, out);
    tiles.push_back(std::move(out));
  }
  return tiles;
}

}  // namespace quire
