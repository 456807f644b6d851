#include "core/model/encode/pictures/picture_sizes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

namespace quire {

namespace {

// Rounds halves away from zero in f32, or to even in f64: each engine rounds in its own way.
template <class Real>
std::int32_t nearest(Real value) {
  if constexpr (std::is_same_v<Real, float>) return static_cast<std::int32_t>(std::round(value));
  return static_cast<std::int32_t>(std::nearbyint(value));
}

// A side is never less than `align`, so the longer one gives way where the aspect is extreme.
PictureSize within(PictureSize size, std::int32_t align, std::int64_t most) {
  const auto longest = [&](std::int32_t other) {
    return static_cast<std::int32_t>(std::max<std::int64_t>(most / other / align * align, align));
  };
  if (size.area() <= most) return size;
  if (size.width > size.height) return {std::min(size.width, longest(size.height)), size.height};
  return {size.width, std::min(size.height, longest(size.width))};
}

// Rules that keep the aspect allow lines of any length: a picture whose short side is least is shortened.
PictureSize line_within(PictureSize size, std::int32_t align, std::int64_t most) {
  return std::min(size.width, size.height) > align ? size : within(size, align, most);
}

template <class Real>
PictureSize smart(PictureSize picture, std::int32_t align, PixelLimits limits) {
  const auto unit = static_cast<Real>(align);
  const auto width = static_cast<Real>(picture.width);
  const auto height = static_cast<Real>(picture.height);
  PictureSize out = {std::max(align, nearest(width / unit) * align), std::max(align, nearest(height / unit) * align)};
  const auto area = static_cast<Real>(picture.area());
  if (out.area() > limits.most) {
    const Real shrink = std::sqrt(area / static_cast<Real>(limits.most));
    const auto side = [&](Real length) {
      return std::max(align, static_cast<std::int32_t>(std::floor(length / shrink / unit)) * align);
    };
    return within({side(width), side(height)}, align, limits.most);
  }
  if (out.area() < limits.least) {
    const Real grow = std::sqrt(static_cast<Real>(limits.least) / area);
    const auto side = [&](Real length) { return static_cast<std::int32_t>(std::ceil(length * grow / unit)) * align; };
    return within({side(width), side(height)}, align, limits.most);
  }
  return out;
}

template <class Real>
Real scale_into(PictureSize picture, PictureSize frame) {
  return std::min(static_cast<Real>(frame.width) / static_cast<Real>(picture.width),
                  static_cast<Real>(frame.height) / static_cast<Real>(picture.height));
}

template <class Real>
PictureSize fitted_as(PictureSize picture, PictureSize frame, bool rounds_up) {
  const Real scale = scale_into<Real>(picture, frame);
  const auto side = [&](std::int32_t length, std::int32_t most) {
    const Real scaled = static_cast<Real>(length) * scale;
    return std::clamp(static_cast<std::int32_t>(rounds_up ? std::ceil(scaled) : std::floor(scaled)), 1, most);
  };
  return {side(picture.width, frame.width), side(picture.height, frame.height)};
}

template <class Real>
PictureSize best_of(PictureSize picture, std::span<const PictureSize> candidates) {
  PictureSize best = candidates.front();
  std::int64_t most_shown = 0;
  std::int64_t least_wasted = std::numeric_limits<std::int64_t>::max();
  for (const PictureSize candidate : candidates) {
    const Real scale = scale_into<Real>(picture, candidate);
    const auto width = static_cast<std::int64_t>(static_cast<Real>(picture.width) * scale);
    const auto height = static_cast<std::int64_t>(static_cast<Real>(picture.height) * scale);
    const std::int64_t shown = std::min(width * height, picture.area());
    const std::int64_t wasted = candidate.area() - shown;
    if (shown > most_shown || (shown == most_shown && wasted < least_wasted)) {
      most_shown = shown;
      least_wasted = wasted;
      best = candidate;
    }
  }
  return best;
}

// --- slices of MiniCPM-V
// ----------------------------------------------------------------------------------------------

constexpr std::int32_t kMostSlices = 9;
constexpr std::int64_t kMostOfLine = 4;  // pixels of a line, as a multiple of image_size squared

template <class Real>
std::int32_t to_multiple(std::int32_t length, std::int32_t unit) {
  return std::max(nearest(static_cast<Real>(length) / static_cast<Real>(unit)) * unit, unit);
}

// The picture's aspect at the area of image_size squared, where it is larger or may be enlarged.
template <class Real>
PictureSize aspect_size(PictureSize picture, std::int32_t image_size, std::int32_t align, bool enlarges) {
  if (enlarges || picture.area() > std::int64_t{image_size} * image_size) {
    const Real ratio = static_cast<Real>(picture.width) / static_cast<Real>(picture.height);
    picture.height = std::max(static_cast<std::int32_t>(static_cast<Real>(image_size) / std::sqrt(ratio)), 1);
    picture.width = static_cast<std::int32_t>(static_cast<Real>(picture.height) * ratio);
  }
  return line_within({to_multiple<Real>(picture.width, align), to_multiple<Real>(picture.height, align)}, align,
                     kMostOfLine * image_size * image_size);
}

template <class Real>
PictureSize best_grid(Real log_ratio, std::int32_t multiple) {
  PictureSize best = {1, 1};
  Real least = std::numeric_limits<Real>::infinity();
  for (std::int32_t count = multiple - 1; count <= multiple + 1; ++count) {
    if (count == 1 || count > kMostSlices) continue;
    for (std::int32_t columns = 1; columns <= count; ++columns) {
      if (count % columns != 0) continue;
      const PictureSize grid = {columns, count / columns};
      const auto error =
          static_cast<Real>(std::abs(static_cast<double>(log_ratio) - std::log(1.0 * grid.width / grid.height)));
      if (error < least) {
        best = grid;
        least = error;
      }
    }
  }
  return best;
}

template <class Real>
SliceSizes slices(PictureSize picture, std::int32_t image_size, std::int32_t align, bool as_llama_cpp) {
  const Real ratio = static_cast<Real>(picture.width) * static_cast<Real>(picture.height) /
                     static_cast<Real>(std::int64_t{image_size} * image_size);
  const auto multiple = static_cast<std::int32_t>(std::min(std::ceil(ratio), static_cast<Real>(kMostSlices)));
  const bool has_slices = as_llama_cpp ? picture.width > image_size || picture.height > image_size : multiple > 1;
  SliceSizes out;
  if (!has_slices) {
    out.overview =
        as_llama_cpp ? PictureSize{image_size, image_size} : aspect_size<Real>(picture, image_size, align, true);
    return out;
  }
  out.overview = aspect_size<Real>(picture, image_size, align, false);
  const auto log_ratio =
      static_cast<Real>(std::log(static_cast<Real>(picture.width) / static_cast<Real>(picture.height)));
  out.grid = best_grid<Real>(log_ratio, multiple);
  const PictureSize slice = {to_multiple<Real>(picture.width, out.grid.width) / out.grid.width,
                             to_multiple<Real>(picture.height, out.grid.height) / out.grid.height};
  const PictureSize sized = aspect_size<Real>(slice, image_size, align, true);
  out.all = {sized.width * out.grid.width, sized.height * out.grid.height};
  return out;
}

}  // namespace

PictureSize enlarged_size(PictureSize picture, std::int32_t align, ShortSide rule) {
  const std::int32_t shorter = std::min(picture.width, picture.height);
  if (rule == ShortSide::kKept || shorter >= align) return picture;
  const auto side = [&](std::int32_t length) {
    const double nearest = std::nearbyint(static_cast<double>(length) * align / shorter);
    const double below = length * (static_cast<double>(align) / shorter);
    return static_cast<std::int32_t>(rule == ShortSide::kEnlarged ? nearest : below);
  };
  return {side(picture.width), side(picture.height)};
}

PictureSize smart_size(PictureSize picture, std::int32_t align, PixelLimits limits, bool as_llama_cpp) {
  return as_llama_cpp ? smart<float>(picture, align, limits) : smart<double>(picture, align, limits);
}

PictureSize budget_size(PictureSize picture, std::int32_t align, std::int64_t most) {
  const double grow = std::sqrt(static_cast<double>(most) / static_cast<double>(picture.area()));
  const auto side = [&](std::int32_t length) {
    return static_cast<std::int32_t>(std::floor(grow * length / align)) * align;
  };
  const auto longest = static_cast<std::int32_t>(std::max<std::int64_t>(most / align / align, 1)) * align;
  PictureSize out = {side(picture.width), side(picture.height)};
  if (out.height == 0) return {std::clamp(picture.width / picture.height * align, align, longest), align};
  if (out.width == 0) return {align, std::clamp(picture.height / picture.width * align, align, longest)};
  return out;
}

PictureSize longest_edge_size(PictureSize picture, std::int32_t align, std::int32_t edge, std::int64_t most) {
  double ratio = static_cast<double>(std::max(picture.width, picture.height)) / edge;
  ratio = std::max(ratio, std::sqrt(static_cast<double>(picture.area()) / static_cast<double>(most)));
  const auto side = [&](std::int32_t length) {
    const auto shrunk = ratio > 1.0 ? static_cast<std::int32_t>(std::floor(length / ratio)) : length;
    return (std::max(shrunk, 1) - 1) / align * align + align;
  };
  return within({side(picture.width), side(picture.height)}, align,
                std::max<std::int64_t>(most, std::int64_t{align} * align));
}

PictureSize limited_size(PictureSize picture, std::int32_t patch, std::int64_t most) {
  const double patches = static_cast<double>(picture.width / patch) * (picture.height / patch);
  const double limit = static_cast<double>(most / (std::int64_t{patch} * patch));
  if (patches <= limit) return picture;
  const double scale = std::sqrt(limit / patches);
  return {std::max(static_cast<std::int32_t>(picture.width * scale), 1),
          std::max(static_cast<std::int32_t>(picture.height * scale), 1)};
}

PictureSize padded_size(PictureSize picture, std::int32_t align, std::int64_t most) {
  const auto up = [&](std::int32_t length) { return (length + align - 1) / align * align; };
  return line_within({up(picture.width), up(picture.height)}, align, most);
}

PictureSize best_candidate(PictureSize picture, std::span<const PictureSize> candidates, bool as_llama_cpp) {
  return as_llama_cpp ? best_of<float>(picture, candidates) : best_of<double>(picture, candidates);
}

PictureSize closest_candidate(PictureSize picture, std::span<const PictureSize> candidates, std::int32_t tile) {
  std::vector<PictureSize> ordered(candidates.begin(), candidates.end());
  std::ranges::stable_sort(ordered, {}, &PictureSize::area);
  const float aspect = static_cast<float>(picture.width) / static_cast<float>(picture.height);
  const auto area = static_cast<float>(picture.area());
  PictureSize best = {1, 1};
  float least = std::numeric_limits<float>::max();
  for (const PictureSize grid : ordered) {
    const float difference = std::abs(aspect - static_cast<float>(grid.width) / static_cast<float>(grid.height));
    const auto shown = static_cast<float>(std::int64_t{tile} * tile * grid.area());
    if (difference < least) {
      least = difference;
      best = grid;
    } else if (difference == least && area > 0.5F * shown) {
      best = grid;
    }
  }
  return best;
}

PictureSize snuggest_candidate(PictureSize picture, std::span<const PictureSize> candidates) {
  PictureSize best = candidates.front();
  double best_scale = 0.0;
  for (const PictureSize candidate : candidates) {
    const double scale = scale_into<double>(picture, candidate);
    const bool holds = scale >= 1.0;
    const bool best_holds = best_scale >= 1.0;
    const bool is_better = holds ? !best_holds || scale < best_scale : !best_holds && scale > best_scale;
    if (is_better || (scale == best_scale && candidate.area() < best.area())) {
      best = candidate;
      best_scale = scale;
    }
  }
  return best;
}

SliceSizes slice_sizes(PictureSize picture, std::int32_t image_size, std::int32_t align, bool as_llama_cpp) {
  return as_llama_cpp ? slices<float>(picture, image_size, align, true)
                      : slices<double>(picture, image_size, align, false);
}

PictureSize fitted(PictureSize picture, PictureSize frame, bool rounds_up, bool as_llama_cpp) {
  return as_llama_cpp ? fitted_as<float>(picture, frame, rounds_up) : fitted_as<double>(picture, frame, rounds_up);
}

}  // namespace quire
