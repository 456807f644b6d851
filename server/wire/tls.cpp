#include "server/wire/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "core/base/files/regular_file.h"
#include "core/base/result.h"

namespace quire {

namespace {

std::string last_complaint() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason == nullptr ? "it cannot be read" : reason;
}

[[noreturn]] void refuse_file(const char* setting, const std::string& file, const std::string& why) {
  throw StartupError(fmt::format("server.tls.{}: '{}': {}", setting, file, why));
}

struct BioFreer {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
struct X509Freer {
  void operator()(X509* certificate) const { X509_free(certificate); }
};
struct KeyFreer {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Certificate = std::unique_ptr<X509, X509Freer>;

// Refuses encrypted keys, because a daemon cannot ask for a password.
int no_password(char*, int, int, void*) {
  return 0;
}

std::string read_pem(const char* setting, const std::string& file) {
  auto text = read_regular_file(file, kMostPemBytes);
  if (!text) refuse_file(setting, file, text.error());
  return *std::move(text);
}

std::unique_ptr<BIO, BioFreer> open_pem(const std::string& text) {
  return std::unique_ptr<BIO, BioFreer>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// All certificates of a file, at least one.
std::vector<Certificate> read_certificates(const char* setting, const std::string& file) {
  const std::string text = read_pem(setting, file);
  const auto bio = open_pem(text);
  std::vector<Certificate> all;
  while (Certificate next{PEM_read_bio_X509_AUX(bio.get(), nullptr, &no_password, nullptr)})
    all.push_back(std::move(next));
  const unsigned long error = ERR_peek_last_error();
  const bool at_end = ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  if (!at_end || all.empty()) refuse_file(setting, file, at_end ? "it has no certificate" : last_complaint());
  ERR_clear_error();
  return all;
}

void use_certificate(SSL_CTX* context, const TlsOptions& options) {
  const std::vector<Certificate> chain = read_certificates("certificate", options.certificate);
  bool used = SSL_CTX_use_certificate(context, chain.front().get()) == 1 && SSL_CTX_clear_chain_certs(context) == 1;
  for (auto next = chain.begin() + 1; used && next != chain.end(); ++next)
    used = SSL_CTX_add1_chain_cert(context, next->get()) == 1;
  if (!used) refuse_file("certificate", options.certificate, last_complaint());
}

void use_key(SSL_CTX* context, const TlsOptions& options) {
  const std::string text = read_pem("key", options.key);
  const auto bio = open_pem(text);
  const std::unique_ptr<EVP_PKEY, KeyFreer> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &no_password, nullptr));
  // Either call refuses a key that does not match the certificate.
  if (key == nullptr || SSL_CTX_use_PrivateKey(context, key.get()) != 1 || SSL_CTX_check_private_key(context) != 1)
    refuse_file("key", options.key, last_complaint());
}

void trust_clients(SSL_CTX* context, const TlsOptions& options) {
  for (const Certificate& authority : read_certificates("client_ca", options.client_ca)) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) != 1 ||
        SSL_CTX_add_client_CA(context, authority.get()) != 1)
      refuse_file("client_ca", options.client_ca, last_complaint());
  }
}

// Browsers offer HTTP/2 first; choosing HTTP/1.1 here spares them a failed attempt.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* offered,
                    unsigned int offered_size, void*) {
  static constexpr unsigned char kHttp11[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};
  unsigned char* chosen = nullptr;
  const int found = SSL_select_next_proto(&chosen, out_size, kHttp11, sizeof kHttp11, offered, offered_size);
  *out = chosen;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;

int bounded(std::size_t size) {
  return static_cast<int>(std::min(size, kMostAtOnce));
}

}  // namespace

void TlsContext::Deleter::operator()(ssl_ctx_st* context) const {
  SSL_CTX_free(context);
}

std::shared_ptr<const TlsContext> open_tls(const TlsOptions& options) {
  if (options.certificate.empty()) {
    const char* const setting = !options.key.empty() ? "key" : !options.client_ca.empty() ? "client_ca" : nullptr;
    if (setting == nullptr) return nullptr;
    throw StartupError(
        fmt::format("server.tls.{} is set without server.tls.certificate: name the certificate", setting));
  }
  if (options.key.empty()) throw StartupError("server.tls.key: the certificate's key is needed too");
  return std::make_shared<const TlsContext>(options);
}

TlsContext::TlsContext(const TlsOptions& options) : context_(SSL_CTX_new(TLS_server_method())) {
  SSL_CTX* context = context_.get();
  if (context == nullptr) throw StartupError("server.tls: the TLS library cannot be set up");
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  // A write may be repeated from another address; an idle connection holds no buffers.
  SSL_CTX_set_mode(context,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context, &choose_protocol, nullptr);
  use_certificate(context, options);
  use_key(context, options);
  if (options.client_ca.empty()) return;
  trust_clients(context, options);
  const bool required = options.client_certificate == ClientCertificate::kRequired;
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | (required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0), nullptr);
  // A resumed session must have been verified by this context.
  static constexpr unsigned char kSessionContext[] = "quire";
  SSL_CTX_set_session_id_context(context, kSessionContext, sizeof kSessionContext - 1);
}

void TlsStream::Deleter::operator()(ssl_st* ssl) const {
  SSL_free(ssl);
}

TlsStream::TlsStream(ssl_ctx_st* context, int socket) : ssl_(SSL_new(context)) {
  if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), socket) != 1) throw std::bad_alloc();
  SSL_set_accept_state(ssl_.get());
}

IoResult TlsStream::result(int returned) const {
  if (returned > 0) return {IoProgress::kDone, static_cast<std::size_t>(returned)};
  const int error = SSL_get_error(ssl_.get(), returned);
  ERR_clear_error();  // the queue belongs to the thread, not to the connection
  if (error == SSL_ERROR_WANT_READ) return {IoProgress::kWantRead, 0};
  if (error == SSL_ERROR_WANT_WRITE) return {IoProgress::kWantWrite, 0};
  return {IoProgress::kGone, 0};
}

IoResult TlsStream::handshake() {
  return result(SSL_do_handshake(ssl_.get()));
}

IoResult TlsStream::read(char* data, std::size_t size) {
  return result(SSL_read(ssl_.get(), data, bounded(size)));
}

IoResult TlsStream::write(const char* data, std::size_t size) {
  return result(SSL_write(ssl_.get(), data, bounded(size)));
}

bool TlsStream::has_pending() const {
  return SSL_pending(ssl_.get()) > 0;
}

void TlsStream::say_goodbye() {
  if (SSL_is_init_finished(ssl_.get())) SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

std::int64_t TlsContext::expiry() const {
  const X509* const certificate = SSL_CTX_get0_certificate(context_.get());
  std::tm time{};
  if (certificate == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &time) != 1) return 0;
  return static_cast<std::int64_t>(::timegm(&time));
}

}  // namespace quire
