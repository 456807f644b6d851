// SHA-256 (FIPS 180-4) of a text that is in memory, by OpenSSL. Pure function; any thread.
#pragma once

#include <array>
#include <string_view>

namespace quire {

using Sha256 = std::array<unsigned char, 32>;

// Throws StartupError where the cryptographic library has none.
Sha256 sha256(std::string_view text);

}  // namespace quire
