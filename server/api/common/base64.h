// Base64 (RFC 4648) of raw bytes. Pure function; any thread.
#pragma once

#include <string>
#include <string_view>

namespace quire {

std::string encode_base64(std::string_view bytes);

}  // namespace quire
