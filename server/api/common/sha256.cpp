#include "server/api/common/sha256.h"

#include <openssl/evp.h>

#include "core/base/result.h"

namespace quire {

Sha256 sha256(std::string_view text) {
  Sha256 hash{};
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), hash.data(), &size, EVP_sha256(), nullptr) != 1) {
    throw StartupError("SHA-256 is not available from the cryptographic library");
  }
  return hash;
}

}  // namespace quire
