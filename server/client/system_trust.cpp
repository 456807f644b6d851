#include "server/client/system_trust.h"

#include <openssl/x509.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace quire {

namespace {

// Debian and Arch, Fedora and RHEL, SUSE, Alpine.
const std::vector<std::string> kFiles = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                         "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

bool is_there(const char* path) {
  return ::access(path, R_OK) == 0;
}

bool openssl_finds_authorities() {
  return std::getenv(X509_get_default_cert_file_env()) != nullptr ||
         std::getenv(X509_get_default_cert_dir_env()) != nullptr || is_there(X509_get_default_cert_file()) ||
         is_there(X509_get_default_cert_dir());
}

}  // namespace

std::string first_readable(std::span<const std::string> files) {
  for (const std::string& file : files) {
    if (is_there(file.c_str())) return file;
  }
  return "";
}

void trust_system(boost::asio::ssl::context& context, boost::system::error_code& failed) {
  context.set_default_verify_paths(failed);
  if (failed || openssl_finds_authorities()) return;
  const std::string file = first_readable(kFiles);
  if (!file.empty()) context.load_verify_file(file, failed);
}

}  // namespace quire
