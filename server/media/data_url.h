// Pictures inside a request's body: base64, and URLs with the scheme data. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"

namespace quire {

// RFC 4648's alphabet and the URL-safe one; white space is skipped, and padding may be absent. Decodes at most
// `max_bytes`. Errors: another character, padding before the end, an impossible length.
Result<std::string> decode_base64(std::string_view text, std::int64_t max_bytes);

bool is_data_url(std::string_view url);
struct DataUrl {
  std::string media_type;  // in lower case; empty if the URL has none
  std::string bytes;
};
// Decodes base64 or a data URL.
Result<std::string> decode_data(std::string_view text, std::int64_t max_bytes);
// data:[TYPE][;PARAMETER=VALUE]*;base64,DATA, or percent-encoded without ";base64".
Result<DataUrl> decode_data_url(std::string_view url, std::int64_t max_bytes);

}  // namespace quire
