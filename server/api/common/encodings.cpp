#include "server/api/common/encodings.h"

#include <openssl/evp.h>

#include <cstdint>

#include "core/base/result.h"

namespace quire {

std::string encode_base64(std::string_view bytes) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      group = (group << 8) | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (std::size_t j = 0; j < 4; ++j) {
      out += i + j <= bytes.size() ? kAlphabet[(group >> (18 - 6 * j)) & 63U] : '=';
    }
  }
  return out;
}

Sha256 sha256(std::string_view text) {
  Sha256 hash{};
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), hash.data(), &size, EVP_sha256(), nullptr) != 1) {
    throw StartupError("SHA-256 is not available from the cryptographic library");
  }
  return hash;
}

}  // namespace quire
