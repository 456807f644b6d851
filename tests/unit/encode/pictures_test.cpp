// Sizes of pictures, tiles and rows, and resampling, where the numbers follow from the rule alone.
#include <algorithm>
#include <catch2/catch.hpp>

#include "core/model/encode/patch_grid.h"
#include "core/model/encode/picture_plan.h"
#include "core/model/encode/pictures/picture_sizes.h"
#include "core/model/encode/pictures/resize.h"
#include "tests/unit/encode/made_tower.h"

namespace quire::test {

namespace {

Picture gray_line(const std::vector<std::uint8_t>& values) {
  Picture out{static_cast<std::int32_t>(values.size()), 1, {}};
  for (const std::uint8_t value : values)
    out.rgb.insert(out.rgb.end(), 3, value);
  return out;
}

std::vector<std::uint8_t> reds(const Picture& picture) {
  std::vector<std::uint8_t> out;
  for (std::size_t i = 0; i < picture.rgb.size(); i += 3)
    out.push_back(picture.rgb[i]);
  return out;
}

Picture turned(const Picture& picture) {
  Picture out{picture.height, picture.width, std::vector<std::uint8_t>(picture.rgb.size())};
  for (std::int32_t y = 0; y < picture.height; ++y) {
    for (std::int32_t x = 0; x < picture.width; ++x) {
      for (std::int32_t c = 0; c < 3; ++c)
        out.rgb[static_cast<std::size_t>((x * picture.height + y) * 3 + c)] =
            picture.rgb[static_cast<std::size_t>((y * picture.width + x) * 3 + c)];
    }
  }
  return out;
}

// A tower of squares of 14 pixels, two by two to a row.
TowerSpec spec_of(Sizing sizing) {
  TowerSpec spec;
  spec.patch_size = 14;
  spec.cells = {2};
  spec.picture.sizing = sizing;
  spec.picture.patch_size = 14;
  spec.picture.align = 28;
  spec.picture.image_size = 56;
  spec.picture.min_pixels = 4 * 28 * 28;
  spec.picture.max_pixels = 64 * 28 * 28;
  return spec;
}

// Whether tiles are whole cells, canvases hold what is put on them, and the tower reads a bounded number of pixels.
bool is_bounded(const TowerSpec& spec, const PicturePlan& plan) {
  std::int64_t area = 0;
  for (const PictureTile& tile : plan.tiles) {
    area += tile.size.area();
    if (tile.size.area() == 0 || tile.size.width % 28 != 0 || tile.size.height % 28 != 0) return false;
  }
  for (const PictureCanvas& canvas : plan.canvases) {
    if (canvas.resize.fit != ResizeFit::kCover && canvas.content.area() > canvas.size.area()) return false;
  }
  return plan.layout.num_rows > 0 && area > 0 && area <= 4 * spec.picture.max_pixels;
}

void check_sizes(const TowerSpec& spec) {
  const std::int32_t sides[] = {1, 2, 13, 27, 28, 29, 100, 999, 5000, 65535};
  const std::vector<PictureSettings> settings = {{},
                                                 {.detail = PictureSettings::Detail::kLow},
                                                 {.max_pixels = 1},
                                                 {.max_pixels = 54321},
                                                 {.min_pixels = 30000, .max_pixels = 33333}};
  for (const std::int32_t width : sides) {
    for (const std::int32_t height : sides) {
      for (std::size_t i = 0; i < settings.size(); ++i) {
        if (is_bounded(spec, plan_picture(spec, {width, height}, settings[i]))) continue;
        FAIL_CHECK("rule " << static_cast<int>(spec.picture.sizing) << ", fit "
                           << static_cast<int>(spec.picture.whole.fit) << ", " << width << " x " << height
                           << ", setting " << i);
      }
    }
  }
}

}  // namespace

TEST_CASE("Antialiased filters weigh the pixels that an output pixel covers", "[encode][resize]") {
  // Weights 3/7, 3/7, 1/7 at the ends.
  const Picture line = gray_line({0, 70, 140, 210});
  CHECK(reds(resize(line, {2, 1}, ResizeFilter::kPillowBilinear)) == std::vector<std::uint8_t>{50, 160});
  CHECK(reds(resize(turned(line), {1, 2}, ResizeFilter::kPillowBilinear)) == std::vector<std::uint8_t>{50, 160});
  for (const ResizeFilter filter :
       {ResizeFilter::kPillowBilinear, ResizeFilter::kPillowBicubic, ResizeFilter::kPillowLanczos,
        ResizeFilter::kRoundedBicubic, ResizeFilter::kCornerBilinear, ResizeFilter::kFourPointsCubic}) {
    INFO("filter " << static_cast<int>(filter));
    const Picture flat{5, 7, std::vector<std::uint8_t>(5 * 7 * 3, 93)};
    for (const PictureSize size : {PictureSize{3, 2}, PictureSize{11, 4}, PictureSize{5, 19}, PictureSize{1, 1}}) {
      const Picture out = resize(flat, size, filter);
      CHECK(out.rgb == std::vector<std::uint8_t>(static_cast<std::size_t>(size.area()) * 3, 93));
    }
    const Picture picture = made_picture(9, 6);
    CHECK(resize(picture, {9, 6}, filter).rgb == picture.rgb);
  }
}

TEST_CASE("A part of a resized picture is the same pixels", "[encode][resize]") {
  const Picture picture = made_picture(23, 17);
  for (const PictureSize size : {PictureSize{9, 40}, PictureSize{23, 8}, PictureSize{31, 17}, PictureSize{23, 17}}) {
    const Picture whole = resize(picture, size, ResizeFilter::kPillowBicubic);
    const PicturePart part{3, 2, {size.width - 5, size.height - 4}};
    const Picture cut = resize_part(picture, size, part, ResizeFilter::kPillowBicubic);
    REQUIRE(cut.width == part.size.width);
    REQUIRE(cut.height == part.size.height);
    bool is_same = true;
    for (std::int32_t y = 0; y < cut.height; ++y) {
      const auto from = static_cast<std::ptrdiff_t>((y + part.y) * size.width + part.x) * 3;
      const auto to = static_cast<std::ptrdiff_t>(y) * cut.width * 3;
      is_same =
          is_same && std::equal(cut.rgb.begin() + to, cut.rgb.begin() + to + cut.width * 3, whole.rgb.begin() + from);
    }
    CHECK(is_same);
  }
}

TEST_CASE("Tiles form one raster of whole patches, without the rows that bars fill", "[encode]") {
  TowerSpec spec = spec_of(Sizing::kBestTiles);
  spec.cells = {};
  spec.picture.image_size = 55;  // three patches of 14 and a rest
  spec.picture.candidates = {{55, 55}, {110, 55}, {165, 55}, {55, 110}, {110, 110}};
  spec.picture.joins_tiles = spec.picture.always_tiles = spec.picture.overview_first = true;
  const auto rows_of = [&](PictureSize size) {
    const PicturePlan plan = plan_picture(spec, size, {});
    std::vector<std::int64_t> rows = plan.break_rows;
    for (const PictureTile& tile : plan.tiles) {
      for (std::size_t i = 0; i < 9; ++i) {
        if (tile.places.empty() || tile.places[i] >= 0)
          rows.push_back(tile.first_row + (tile.places.empty() ? static_cast<std::int64_t>(i) : tile.places[i]));
      }
    }
    std::ranges::sort(rows);
    for (std::size_t i = 0; i < rows.size(); ++i)
      CHECK(rows[i] == static_cast<std::int64_t>(i));
    CHECK(std::ssize(rows) == plan.layout.num_rows);
    return plan.layout.num_rows;
  };
  // Three tiles beside each other have three rows of nine; bars are cut off in equal parts above and below.
  CHECK(rows_of({900, 300}) == 9 + 9 * 3 + 3);
  CHECK(rows_of({900, 220}) == 9 + 9 * 3 + 3);
  CHECK(rows_of({900, 190}) == 9 + 9 * 1 + 1);
  CHECK(rows_of({900, 110}) == 9 + 9 * 1 + 1);
  CHECK(rows_of({300, 290}) == 9 + 6 * 6 + 6);
}

TEST_CASE("Learned positions of a smaller grid lie between two of the table, or are means of more", "[encode]") {
  TowerSpec spec = spec_of(Sizing::kSmart);
  spec.cells = {};
  PositionTable table{.rows = 1, .columns = 6, .values = {0.0F, 1.0F, 4.0F, 9.0F, 16.0F, 25.0F}};
  const PatchGrid grid = make_patch_grid(spec, {28, 14});
  const auto positions = [&](LearnedPositions kind) {
    spec.positions = kind;
    const GridPositions resized(spec, table, grid);
    std::vector<float> out(2);
    for (std::int32_t column = 0; column < 2; ++column)
      resized.add({0, column}, 1, &out[static_cast<std::size_t>(column)]);
    return out;
  };
  CHECK(positions(LearnedPositions::kHalfPixels) == std::vector<float>{1.0F, 16.0F});
  CHECK(positions(LearnedPositions::kAligned) == std::vector<float>{0.0F, 25.0F});
  // Weights fall by a third of the largest for each step from the centre.
  CHECK(positions(LearnedPositions::kAntialiased)[0] == Approx((2 * 0 + 3 * 1 + 2 * 4 + 1 * 9) / 8.0));
}

TEST_CASE("Corner-aligned bilinear keeps the corners and cuts fractions off", "[encode][resize]") {
  const Picture line = gray_line({0, 99});
  CHECK(reds(resize(line, {5, 1}, ResizeFilter::kCornerBilinear)) == std::vector<std::uint8_t>{0, 24, 49, 74, 99});
}

TEST_CASE("Sizes by the rules that the families were trained with", "[encode]") {
  const PictureSize full_hd = {1920, 1080};
  CHECK(smart_size(full_hd, 28, {3136, 12845056}, false) == PictureSize{1932, 1092});
  CHECK(smart_size(full_hd, 32, {65536, 16777216}, false) == PictureSize{1920, 1088});
  // Models were trained with halves rounded to the even multiple; llama.cpp rounds them away from zero.
  CHECK(smart_size({70, 70}, 28, {0, 1 << 20}, false) == PictureSize{56, 56});
  CHECK(smart_size({70, 70}, 28, {0, 1 << 20}, true) == PictureSize{84, 84});
  // A short side is enlarged to the multiple, the other one with it, by two rules of rounding.
  CHECK(enlarged_size({150, 3}, 28, ShortSide::kEnlarged) == PictureSize{1400, 28});
  CHECK(enlarged_size({9, 100}, 28, ShortSide::kEnlarged) == PictureSize{28, 311});
  CHECK(enlarged_size({9, 100}, 30, ShortSide::kEnlarged) == PictureSize{30, 333});
  CHECK(enlarged_size({11, 100}, 28, ShortSide::kEnlarged) == PictureSize{28, 255});
  CHECK(enlarged_size({11, 100}, 28, ShortSide::kEnlargedBelow) == PictureSize{28, 254});
  CHECK(enlarged_size({11, 100}, 28, ShortSide::kKept) == PictureSize{11, 100});
  CHECK(enlarged_size({28, 100}, 28, ShortSide::kEnlarged) == PictureSize{28, 100});
  TowerSpec smart = spec_of(Sizing::kSmart);
  CHECK(plan_picture(smart, {150, 3}, {}).tiles[0].size == PictureSize{140, 28});
  smart.picture.short_side = ShortSide::kEnlarged;
  CHECK(plan_picture(smart, {150, 3}, {}).tiles[0].size == PictureSize{1400, 28});
  // A line is shortened rather than given more pixels than the limit allows.
  CHECK(smart_size({1, 60000}, 28, {0, 100 * 28 * 28}, false) == PictureSize{28, 2800});
  CHECK(smart_size({60000, 1}, 28, {0, 100 * 28 * 28}, true) == PictureSize{2800, 28});
  CHECK(budget_size(full_hd, 48, 280 * 48 * 48) == PictureSize{1056, 576});
  CHECK(budget_size({20, 4000}, 48, 280 * 48 * 48) == PictureSize{48, 11328});
  CHECK(budget_size({5, 4000}, 48, 280 * 48 * 48) == PictureSize{48, 280 * 48});
  CHECK(longest_edge_size(full_hd, 16, 1024, 1024 * 1024) == PictureSize{1024, 576});
  CHECK(longest_edge_size({100, 40}, 16, 1024, 1024 * 1024) == PictureSize{112, 48});
  const PictureSize tiles[] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {3, 1}};
  CHECK(closest_candidate({900, 300}, tiles, 448) == PictureSize{3, 1});
  CHECK(closest_candidate({300, 300}, tiles, 448) == PictureSize{1, 1});
  CHECK(closest_candidate({900, 900}, tiles, 448) == PictureSize{2, 2});
}

TEST_CASE("A picture's settings bound its rows", "[encode]") {
  const TowerSpec spec = spec_of(Sizing::kSmart);
  const PictureSize large = {2000, 1500};
  const auto rows = [&](const PictureSettings& settings) {
    return plan_picture(spec, large, settings).layout.num_rows;
  };
  CHECK(rows({}) <= 64);
  CHECK(rows({}) > 48);
  CHECK(rows({.detail = PictureSettings::Detail::kLow}) <= 16);
  CHECK(rows({.detail = PictureSettings::Detail::kHigh}) == rows({}));
  CHECK(rows({.max_pixels = 8 * 28 * 28}) <= 8);
  CHECK(rows({.max_pixels = 1}) == 1);
  CHECK(plan_picture(spec, {30, 30}, {.min_pixels = 16 * 28 * 28}).layout.num_rows >= 16);
  CHECK(plan_picture(spec, {1, 60000}, {}).layout.num_rows <= 64);
}

TEST_CASE("No size of a picture and no setting makes more than a family's pixels", "[encode]") {
  constexpr Sizing kAll[] = {Sizing::kFixed,      Sizing::kSmart,     Sizing::kBudget,       Sizing::kLongestEdge,
                             Sizing::kPatchLimit, Sizing::kBestTiles, Sizing::kClosestTiles, Sizing::kLlama4Tiles,
                             Sizing::kEdgeTiles,  Sizing::kSlices,    Sizing::kLargeTiles};
  for (const Sizing sizing : kAll) {
    for (const ResizeFit fit : {ResizeFit::kStretch, ResizeFit::kPadCentred, ResizeFit::kPlace, ResizeFit::kCover}) {
      TowerSpec spec = spec_of(sizing);
      spec.picture.as_llama_cpp = fit == ResizeFit::kPadCentred && sizing != Sizing::kBudget;
      spec.picture.longest_edge = 224;
      spec.picture.tile_size = 56;
      spec.picture.whole.fit = spec.picture.tiles.fit = fit;
      const bool in_tiles = sizing == Sizing::kClosestTiles || sizing == Sizing::kLargeTiles;
      const std::int32_t unit = in_tiles ? 1 : 56;
      spec.picture.candidates = {{unit, 2 * unit}, {2 * unit, unit}, {2 * unit, 2 * unit}};
      check_sizes(spec);
    }
  }
}

TEST_CASE("The middle of a line is cut out without the rest", "[encode][resize]") {
  TowerSpec spec = spec_of(Sizing::kFixed);
  spec.picture.whole = {ResizeFilter::kPillowBicubic, ResizeFit::kCover};
  const Picture line{65535, 1, std::vector<std::uint8_t>(65535 * 3, 77)};
  const std::vector<Picture> tiles = cut_tiles(plan_picture(spec, {65535, 1}, {}), line);
  REQUIRE(tiles.size() == 1);
  CHECK(tiles[0].rgb == std::vector<std::uint8_t>(56 * 56 * 3, 77));
}

TEST_CASE("Tiles and texts stand in the order of the prompt", "[encode]") {
  TowerSpec spec = spec_of(Sizing::kBestTiles);
  spec.picture.candidates = {{112, 56}, {56, 112}, {112, 112}};
  spec.texts.begin = "<b>";
  spec.texts.tile_begin = "<r{row}c{column}>";
  spec.texts.row_end = "\n";
  spec.texts.tiles_end = "|";
  spec.texts.end = "</b>";
  const auto text_of = [&](PictureSize size, const PictureSettings& settings = {}) {
    std::string text;
    for (const LayoutPart& part : plan_picture(spec, size, settings).layout.parts)
      text += part.num_rows > 0 ? "[" + std::to_string(part.num_rows) + "]" : part.text;
    return text;
  };
  CHECK(text_of({100, 100}) == "<b><r1c1>[4]<r1c2>[4]\n<r2c1>[4]<r2c2>[4]|[4]</b>");
  CHECK(text_of({100, 50}) == "<b><r1c1>[4]<r1c2>[4]|[4]</b>");
  CHECK(text_of({50, 50}) == "<b>[4]</b>");
  CHECK(text_of({100, 100}, {.detail = PictureSettings::Detail::kLow}) == "<b>[4]</b>");
  spec.picture.overview_first = true;
  CHECK(text_of({100, 50}) == "<b>[4]<r1c1>[4]<r1c2>[4]|</b>");
}

TEST_CASE("Joined tiles lose their bars and end lines with the break row", "[encode]") {
  TowerSpec spec = spec_of(Sizing::kBestTiles);
  spec.cells = {};
  spec.picture.candidates = {{112, 112}};
  spec.picture.always_tiles = spec.picture.overview_first = spec.picture.joins_tiles = true;
  // Two of 8 lines of 8 patches are left out above and below; the overview has 16 rows.
  const PicturePlan plan = plan_picture(spec, {112, 56}, {});
  CHECK(plan.layout.num_rows == 16 + 4 * (8 + 1));
  CHECK(plan.break_rows == std::vector<std::int64_t>{24, 33, 42, 51});
  REQUIRE(plan.tiles.size() == 5);
  CHECK(plan.tiles[1].first_row == 16);
  CHECK(plan.tiles[1].places[0] == -1);
  CHECK(plan.tiles[1].places[8] == 0);
  CHECK(plan.tiles[2].places[8] == 4);
}

}  // namespace quire::test
