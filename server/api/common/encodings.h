// Base64 (RFC 4648) and SHA-256 (FIPS 180-4, by OpenSSL) of a text in memory. Pure functions; any thread.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace quire {

std::string encode_base64(std::string_view bytes);

using Sha256 = std::array<unsigned char, 32>;

// Throws StartupError where the cryptographic library has none.
Sha256 sha256(std::string_view text);

}  // namespace quire
