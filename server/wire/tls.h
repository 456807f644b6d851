// TlsContext: the server's certificate, its key, and the CA that client certificates are checked against. Immutable
// after construction; any thread. TlsStream: one connection's TLS over a non-blocking socket that its owner waits on,
// so that other code handles TLS and plain connections alike. One thread at a time. Must not outlive its socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct ssl_ctx_st;
struct ssl_st;

namespace quire {

enum class ClientCertificate { kRequired, kOptional };

// TLS settings; without a certificate the server speaks plain HTTP.
struct TlsOptions {
  std::string certificate;  // a PEM file: the certificate and its intermediates
  std::string key;          // a PEM file
  std::string client_ca;    // a PEM file; empty: client certificates are not requested
  ClientCertificate client_certificate = ClientCertificate::kRequired;
};

enum class IoProgress { kDone, kWantRead, kWantWrite, kGone };

struct IoResult {
  IoProgress progress = IoProgress::kDone;
  std::size_t count = 0;  // bytes, with kDone
};

class TlsStream {
 public:
  TlsStream(ssl_ctx_st* context, int socket);

  // kDone: the handshake is over.
  IoResult handshake();
  IoResult read(char* data, std::size_t size);
  IoResult write(const char* data, std::size_t size);
  // Whether decrypted bytes wait to be read: waiting on the socket does not report them.
  bool has_pending() const;
  // Tells the client that nothing more will be sent.
  void say_goodbye();

 private:
  struct Deleter {
    void operator()(ssl_st* ssl) const;
  };
  IoResult result(int returned) const;

  std::unique_ptr<ssl_st, Deleter> ssl_;
};

class TlsContext {
 public:
  // Throws StartupError with the setting, the file and the error in it.
  explicit TlsContext(const TlsOptions& options);

  // Expiry of the server's own certificate, Unix time.
  std::int64_t expiry() const;
  std::unique_ptr<TlsStream> open(int socket) const { return std::make_unique<TlsStream>(context_.get(), socket); }

 private:
  struct Deleter {
    void operator()(ssl_ctx_st* context) const;
  };
  std::unique_ptr<ssl_ctx_st, Deleter> context_;
};

// Null if the options name no certificate, key or CA. Throws StartupError.
std::shared_ptr<const TlsContext> open_tls(const TlsOptions& options);

}  // namespace quire
