#include "tests/server/wire/certificate.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

namespace quire::test {

std::string temporary(const std::string& name) {
  return (std::filesystem::temp_directory_path() / ("quire-" + std::to_string(::getpid()) + "-" + name)).string();
}

Certificate::Certificate() {
  EVP_PKEY* pair = EVP_EC_gen("P-256");
  X509* made = X509_new();
  X509_set_version(made, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(made), 1);
  X509_gmtime_adj(X509_getm_notBefore(made), -60);
  X509_gmtime_adj(X509_getm_notAfter(made), 3600);
  X509_set_pubkey(made, pair);
  X509_NAME* name = X509_get_subject_name(made);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("quire"), -1, -1, 0);
  X509_set_issuer_name(made, name);
  X509_EXTENSION* address = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
  X509_add_ext(made, address, -1);
  X509_EXTENSION_free(address);
  X509_sign(made, pair, EVP_sha256());
  std::FILE* file = std::fopen(certificate.c_str(), "w");
  PEM_write_X509(file, made);
  std::fclose(file);
  file = std::fopen(key.c_str(), "w");
  PEM_write_PrivateKey(file, pair, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  X509_free(made);
  EVP_PKEY_free(pair);
}

const Certificate& certificate() {
  static const Certificate kMade;
  return kMade;
}

}  // namespace quire::test
