#include "server/cli/bench/random_images.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>

namespace quire::bench {

namespace {

std::optional<std::int32_t> parse_side(std::string_view text) {
  std::int32_t side = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), side);
  if (error != std::errc() || end != text.data() + text.size() || side < 1 || side > kMostImageSide)
    return std::nullopt;
  return side;
}

std::optional<ImageSize> parse_size(std::string_view text) {
  const std::size_t cross = text.find('x');
  if (cross == std::string_view::npos) return std::nullopt;
  const auto width = parse_side(text.substr(0, cross));
  const auto height = parse_side(text.substr(cross + 1));
  if (!width || !height) return std::nullopt;
  return ImageSize{*width, *height};
}

}  // namespace

Result<std::vector<ImageSize>> parse_image_sizes(const std::string& text) {
  std::vector<ImageSize> sizes;
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.find(',');
    const auto size = parse_size(rest.substr(0, comma));
    if (!size) {
      return invalid(fmt::format("'{}' is not WIDTHxHEIGHT[,WIDTHxHEIGHT...], of sides from 1 to {} pixels", text,
                                 kMostImageSide));
    }
    sizes.push_back(*size);
    if (comma == std::string_view::npos) return sizes;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace quire::bench
