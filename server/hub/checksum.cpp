#include "server/hub/checksum.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "core/base/message_text.h"

namespace quire::hub {

namespace {

constexpr std::size_t kSha256Digits = 64;

EVP_MD_CTX* as_context(void* context) {
  return static_cast<EVP_MD_CTX*>(context);
}

}  // namespace

void Checksum::Free::operator()(void* context) const {
  EVP_MD_CTX_free(as_context(context));
}

Checksum::Checksum(std::string_view expected, std::int64_t size) : context_(EVP_MD_CTX_new()) {
  const bool is_sha256 = expected.size() == kSha256Digits;
  EVP_DigestInit_ex(as_context(context_.get()), is_sha256 ? EVP_sha256() : EVP_sha1(), nullptr);
  if (is_sha256) return;
  const std::string head = fmt::format("blob {}", size);
  add({head.c_str(), head.size() + 1});  // including the terminating zero
}

void Checksum::add(std::string_view bytes) {
  EVP_DigestUpdate(as_context(context_.get()), bytes.data(), bytes.size());
}

std::string Checksum::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned int size = 0;
  EVP_DigestFinal_ex(as_context(context_.get()), bytes.data(), &size);
  return hex_digits(std::span(bytes).first(size));
}

}  // namespace quire::hub
