#include "core/model/encode/pictures/resize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>

#include "kernels/check.h"

namespace quire {

namespace {

std::size_t num_bytes(std::int64_t width, std::int64_t height) {
  return static_cast<std::size_t>(width * height * kChannels);
}

Picture blank(PictureSize size) {
  return {size.width, size.height, std::vector<std::uint8_t>(num_bytes(size.width, size.height))};
}

// --- Pillow's separable filters, in 22 bits of fraction
// ---------------------------------------------------------------

constexpr int kFraction = 32 - 8 - 2;

struct Kernel {
  double support;
  double (*value)(double x);
};

double triangle(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

double cubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0.0;
}

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double lanczos(double x) {
  return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
}

Kernel kernel_of(ResizeFilter filter) {
  switch (filter) {
    case ResizeFilter::kPillowBilinear: return {1.0, triangle};
    case ResizeFilter::kPillowLanczos: return {3.0, lanczos};
    default: return {2.0, cubic};
  }
}

// Weights of the input pixels for each output pixel of one axis.
struct AxisWeights {
  struct Window {
    std::int32_t first = 0;
    std::int32_t count = 0;
  };
  std::vector<Window> windows;
  std::vector<std::int32_t> weights;  // [output][width]
  std::size_t width = 0;

  const std::int32_t* of(std::size_t index) const { return weights.data() + index * width; }
};

std::int32_t fixed(double weight, bool rounds_twice) {
  const double shifted = weight * (1 << kFraction) + (weight < 0 ? -0.5 : 0.5);
  return static_cast<std::int32_t>(rounds_twice ? std::round(shifted) : shifted);
}

// Weights of `count` output pixels from `first` on, where `from` pixels become `to`.
AxisWeights axis_weights(std::int32_t from, std::int32_t to, std::int32_t first_output, std::int32_t count_outputs,
                         ResizeFilter filter) {
  const Kernel kernel = kernel_of(filter);
  const double scale = static_cast<double>(from) / to;
  const double filter_scale = std::max(scale, 1.0);
  const double support = kernel.support * filter_scale;
  AxisWeights axis;
  axis.width = static_cast<std::size_t>(std::ceil(support)) * 2 + 1;
  axis.weights.resize(axis.width * static_cast<std::size_t>(count_outputs));
  std::vector<double> row(axis.width);
  for (std::int32_t i = first_output; i < first_output + count_outputs; ++i) {
    const double centre = (i + 0.5) * scale;
    const double inverse = 1.0 / filter_scale;
    const std::int32_t first = std::max(static_cast<std::int32_t>(centre - support + 0.5), 0);
    const std::int32_t count = std::min(static_cast<std::int32_t>(centre + support + 0.5), from) - first;
    double sum = 0.0;
    for (std::int32_t k = 0; k < count; ++k) {
      row[static_cast<std::size_t>(k)] = kernel.value((k + first - centre + 0.5) * inverse);
      sum += row[static_cast<std::size_t>(k)];
    }
    std::int32_t* const out = axis.weights.data() + static_cast<std::size_t>(i - first_output) * axis.width;
    for (std::int32_t k = 0; k < count; ++k) {
      const double weight = row[static_cast<std::size_t>(k)];
      out[k] = fixed(sum != 0.0 ? weight / sum : weight, filter == ResizeFilter::kRoundedBicubic);
    }
    axis.windows.push_back({first, count});
  }
  return axis;
}

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kFraction, 0, 255));
}

// A line of pixels at another width.
void resample_line(const std::uint8_t* line, const AxisWeights& axis, std::uint8_t* to) {
  for (std::size_t x = 0; x < axis.windows.size(); ++x) {
    const AxisWeights::Window window = axis.windows[x];
    const std::int32_t* const weights = axis.of(x);
    const std::uint8_t* pixel = line + window.first * kChannels;
    std::int32_t red = 1 << (kFraction - 1);
    std::int32_t green = red;
    std::int32_t blue = red;
    for (std::int32_t k = 0; k < window.count; ++k, pixel += kChannels) {
      red += pixel[0] * weights[k];
      green += pixel[1] * weights[k];
      blue += pixel[2] * weights[k];
    }
    *to++ = to_byte(red);
    *to++ = to_byte(green);
    *to++ = to_byte(blue);
  }
}

// Lines of a picture, at the columns of a rectangle of the result. Only as many are kept as a line's filter covers.
class LineWindow {
 public:
  LineWindow(const Picture& picture, PictureSize size, const PicturePart& part, ResizeFilter filter, std::int32_t depth)
      : picture_(picture), offset_(num_bytes(part.x, 1)), stride_(num_bytes(part.size.width, 1)), depth_(depth) {
    if (picture.width == size.width) return;
    columns_ = axis_weights(picture.width, size.width, part.x, part.size.width, filter);
    lines_.resize(stride_ * static_cast<std::size_t>(depth));
  }

  // Lines are asked for in windows that move downwards.
  void move_to(std::int32_t first, std::int32_t end) {
    if (!columns_) return;
    for (next_ = std::max(next_, first); next_ < end; ++next_)
      resample_line(source(next_), *columns_, kept(next_));
  }
  const std::uint8_t* line(std::int32_t y) { return columns_ ? kept(y) : source(y) + offset_; }

 private:
  const std::uint8_t* source(std::int32_t y) const { return picture_.rgb.data() + num_bytes(picture_.width, y); }
  std::uint8_t* kept(std::int32_t y) { return lines_.data() + static_cast<std::size_t>(y % depth_) * stride_; }

  const Picture& picture_;
  const std::size_t offset_;
  const std::size_t stride_;
  const std::int32_t depth_;
  std::optional<AxisWeights> columns_;  // absent: the width stays
  std::vector<std::uint8_t> lines_;
  std::int32_t next_ = 0;
};

Picture resample(const Picture& picture, PictureSize size, const PicturePart& part, ResizeFilter filter) {
  Picture out = blank(part.size);
  const std::size_t stride = num_bytes(part.size.width, 1);
  std::uint8_t* to = out.rgb.data();
  if (picture.height == size.height) {
    LineWindow lines(picture, size, part, filter, 1);
    for (std::int32_t y = part.y; y < part.y + part.size.height; ++y, to += stride) {
      lines.move_to(y, y + 1);
      std::memcpy(to, lines.line(y), stride);
    }
    return out;
  }
  const AxisWeights rows = axis_weights(picture.height, size.height, part.y, part.size.height, filter);
  LineWindow lines(picture, size, part, filter, static_cast<std::int32_t>(rows.width));
  std::vector<std::int32_t> sums(stride);
  for (std::size_t y = 0; y < rows.windows.size(); ++y, to += stride) {
    const AxisWeights::Window window = rows.windows[y];
    lines.move_to(window.first, window.first + window.count);
    std::ranges::fill(sums, 1 << (kFraction - 1));
    for (std::int32_t k = 0; k < window.count; ++k) {
      const std::uint8_t* const line = lines.line(window.first + k);
      const std::int32_t weight = rows.of(y)[k];
      for (std::size_t i = 0; i < stride; ++i)
        sums[i] += line[i] * weight;
    }
    for (std::size_t i = 0; i < stride; ++i)
      to[i] = to_byte(sums[i]);
  }
  return out;
}

// --- llama.cpp's filters without antialiasing, in f32
// ------------------------------------------------------------------

struct Lerp {
  std::int32_t first;
  std::int32_t second;
  float share;
};

std::vector<Lerp> corner_lerps(std::int32_t from, std::int32_t to) {
  const float ratio = to > 1 ? static_cast<float>(from - 1) / static_cast<float>(to - 1) : 0.0F;
  std::vector<Lerp> out;
  for (std::int32_t i = 0; i < to; ++i) {
    const float at = static_cast<float>(i) * ratio;
    const std::int32_t first = std::min(static_cast<std::int32_t>(at), from - 1);
    out.push_back({first, std::min(first + 1, from - 1), at - static_cast<float>(first)});
  }
  return out;
}

Picture resize_corners(const Picture& picture, PictureSize size) {
  const std::vector<Lerp> columns = corner_lerps(picture.width, size.width);
  const std::vector<Lerp> rows = corner_lerps(picture.height, size.height);
  const auto lerp = [](float a, float b, float share) { return a + (b - a) * share; };
  Picture out = blank(size);
  std::uint8_t* to = out.rgb.data();
  for (const Lerp& row : rows) {
    const std::uint8_t* const upper = picture.rgb.data() + num_bytes(picture.width, row.first);
    const std::uint8_t* const lower = picture.rgb.data() + num_bytes(picture.width, row.second);
    for (const Lerp& column : columns) {
      for (std::int64_t c = 0; c < kChannels; ++c) {
        const std::int64_t a = column.first * kChannels + c;
        const std::int64_t b = column.second * kChannels + c;
        const float top = lerp(upper[a], upper[b], column.share);
        const float bottom = lerp(lower[a], lower[b], column.share);
        *to++ = static_cast<std::uint8_t>(lerp(top, bottom, row.share));
      }
    }
  }
  return out;
}

// The cubic through values at -1, 0, 1 and 2; its coefficients are rounded to f32.
float through_four(const std::array<float, 4>& at, float t) {
  const float d0 = at[0] - at[1];
  const float d2 = at[2] - at[1];
  const float d3 = at[3] - at[1];
  const auto a1 = static_cast<float>(-1.0 / 3 * d0 + d2 - 1.0 / 6 * d3);
  const auto a2 = static_cast<float>(1.0 / 2 * d0 + 1.0 / 2 * d2);
  const auto a3 = static_cast<float>(-1.0 / 6 * d0 - 1.0 / 2 * d2 + 1.0 / 6 * d3);
  return at[1] + a1 * t + a2 * t * t + a3 * t * t * t;
}

struct FourPoints {
  std::array<std::int32_t, 4> index;
  float offset;
};

std::vector<FourPoints> four_points(std::int32_t from, std::int32_t to) {
  const float ratio = static_cast<float>(from) / static_cast<float>(to);
  std::vector<FourPoints> out;
  for (std::int32_t i = 0; i < to; ++i) {
    const float at = ratio * static_cast<float>(i);
    const auto whole = static_cast<std::int32_t>(at);
    FourPoints points{.index = {}, .offset = at - static_cast<float>(whole)};
    for (std::int32_t k = 0; k < 4; ++k)
      points.index[static_cast<std::size_t>(k)] = std::clamp(whole - 1 + k, 0, from - 1);
    out.push_back(points);
  }
  return out;
}

Picture resize_four_points(const Picture& picture, PictureSize size) {
  const std::vector<FourPoints> columns = four_points(picture.width, size.width);
  const std::vector<FourPoints> rows = four_points(picture.height, size.height);
  Picture out = blank(size);
  std::uint8_t* to = out.rgb.data();
  for (const FourPoints& row : rows) {
    for (const FourPoints& column : columns) {
      for (std::int64_t c = 0; c < kChannels; ++c) {
        std::array<float, 4> along{};
        for (std::size_t j = 0; j < 4; ++j) {
          const std::uint8_t* const line = picture.rgb.data() + num_bytes(picture.width, row.index[j]) + c;
          std::array<float, 4> values{};
          for (std::size_t i = 0; i < 4; ++i)
            values[i] = line[column.index[i] * kChannels];
          along[j] = through_four(values, column.offset);
        }
        *to++ = static_cast<std::uint8_t>(std::clamp(std::round(through_four(along, row.offset)), 0.0F, 255.0F));
      }
    }
  }
  return out;
}

void check_picture(const Picture& picture) {
  QUIRE_CHECK(picture.width > 0 && picture.height > 0, "a picture without pixels");
  QUIRE_CHECK(picture.rgb.size() == num_bytes(picture.width, picture.height), "pixels of another number");
}

}  // namespace

Picture resize(const Picture& picture, PictureSize size, ResizeFilter filter) {
  check_picture(picture);
  QUIRE_CHECK(size.width > 0 && size.height > 0, "a picture without pixels");
  if (picture.width == size.width && picture.height == size.height) return picture;
  switch (filter) {
    case ResizeFilter::kCornerBilinear: return resize_corners(picture, size);
    case ResizeFilter::kFourPointsCubic: return resize_four_points(picture, size);
    default: return resize_part(picture, size, {0, 0, size}, filter);
  }
}

Picture resize_part(const Picture& picture, PictureSize size, const PicturePart& part, ResizeFilter filter) {
  check_picture(picture);
  QUIRE_CHECK(part.x >= 0 && part.y >= 0 && part.size.width > 0 && part.size.height > 0 &&
                  part.x + part.size.width <= size.width && part.y + part.size.height <= size.height,
              "a part beyond the picture");
  QUIRE_CHECK(filter != ResizeFilter::kCornerBilinear && filter != ResizeFilter::kFourPointsCubic,
              "a part by a filter that reads corners");
  return resample(picture, size, part, filter);
}

}  // namespace quire
