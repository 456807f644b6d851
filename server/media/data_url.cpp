#include "server/media/data_url.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/percent.h"

namespace quire {

namespace {

constexpr std::uint8_t kInvalid = 0xFF;
constexpr std::uint8_t kSpace = 0xFE;
constexpr std::uint8_t kPadding = 0xFD;

constexpr std::array<std::uint8_t, 256> make_values() {
  std::array<std::uint8_t, 256> values{};
  values.fill(kInvalid);
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < kAlphabet.size(); ++i)
    values[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::uint8_t>(i);
  values['-'] = 62;
  values['_'] = 63;
  for (const char c : {' ', '\t', '\r', '\n'})
    values[static_cast<unsigned char>(c)] = kSpace;
  values['='] = kPadding;
  return values;
}

constexpr std::array<std::uint8_t, 256> kValues = make_values();

tl::unexpected<Error> not_base64(std::string_view why) {
  return invalid(fmt::format("the data is not base64: {}", why), "", "invalid_base64");
}

tl::unexpected<Error> too_long(std::int64_t max_bytes) {
  return invalid(fmt::format("the file has more than {} bytes (media.max_file_bytes)", max_bytes), "",
                 "image_too_large");
}

Result<std::string> decode_percents(std::string_view text, std::int64_t max_bytes) {
  const std::ptrdiff_t num_escapes = std::ranges::count(text, '%');
  if (std::cmp_greater(std::ssize(text) - 2 * num_escapes, max_bytes)) return too_long(max_bytes);
  auto bytes = percent_decoded(text);
  if (!bytes) return invalid("the data URL has a '%' without two hexadecimal digits", "", "invalid_url");
  return *std::move(bytes);
}

}  // namespace

Result<std::string> decode_base64(std::string_view text, std::int64_t max_bytes) {
  std::string bytes;
  bytes.reserve(std::min(text.size() / 4 * 3 + 3, static_cast<std::size_t>(max_bytes)));
  std::uint32_t group = 0;
  int num_digits = 0;
  int num_padding = 0;
  for (const char c : text) {
    const std::uint8_t value = kValues[static_cast<unsigned char>(c)];
    if (value < 64) {
      if (num_padding > 0) return not_base64("'=' stands before its end");
      group = (group << 6) | value;
      if (++num_digits < 4) continue;
      if (std::cmp_greater(bytes.size() + 3, max_bytes)) return too_long(max_bytes);
      bytes += static_cast<char>(group >> 16);
      bytes += static_cast<char>(group >> 8);
      bytes += static_cast<char>(group);
      group = 0;
      num_digits = 0;
    } else if (value == kPadding) {
      if (++num_padding > 2) return not_base64("more than two '=' at its end");
    } else if (value != kSpace) {
      return not_base64("a character that is none of its alphabet");
    }
  }
  if (num_digits == 1) return not_base64("its length is impossible");
  if (num_padding > 0 && num_padding != (4 - num_digits) % 4)
    return not_base64("it has another number of '=' than it lacks digits");
  if (num_digits >= 2) bytes += static_cast<char>(group >> (num_digits == 2 ? 4 : 10));
  if (num_digits == 3) bytes += static_cast<char>(group >> 2);
  if (std::cmp_greater(bytes.size(), max_bytes)) return too_long(max_bytes);
  return bytes;
}

Result<std::string> decode_data(std::string_view text, std::int64_t max_bytes) {
  if (!is_data_url(text)) return decode_base64(text, max_bytes);
  auto url = decode_data_url(text, max_bytes);
  if (!url) return tl::make_unexpected(url.error());
  return std::move(url->bytes);
}

bool is_data_url(std::string_view url) {
  return lowered(url.substr(0, 5)) == "data:";
}

Result<DataUrl> decode_data_url(std::string_view url, std::int64_t max_bytes) {
  const std::size_t comma = url.find(',');
  if (comma == std::string_view::npos) return invalid("the data URL has no ','", "", "invalid_url");
  const std::string head = lowered(url.substr(5, comma - 5));
  constexpr std::string_view kBase64 = ";base64";
  std::string_view body = url.substr(comma + 1);
  const bool is_base64 = head.ends_with(kBase64);
  const bool is_escaped = !is_base64 || body.find('%') != std::string_view::npos;
  auto bytes = is_escaped ? decode_percents(body, is_base64 ? std::ssize(body) : max_bytes) : Result<std::string>();
  if (bytes && is_base64) bytes = decode_base64(is_escaped ? std::string_view(*bytes) : body, max_bytes);
  if (!bytes) return tl::make_unexpected(bytes.error());
  return DataUrl{head.substr(0, head.find(';')), *std::move(bytes)};
}

}  // namespace quire
