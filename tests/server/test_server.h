// TestServer: a Server on a free port over a FakeEngine. One thread at a time.
#pragma once

#include "server/http/server.h"
#include "tests/server/fake_engine.h"
#include "tests/server/fake_tokenizer.h"
#include "tests/server/http_client.h"

namespace quire::test {

inline ServerOptions test_options() {
  ServerOptions options;
  options.port = 0;
  options.io_threads = 2;
  options.max_body_bytes = 1 << 20;
  return options;
}

// Every choice says this text.
inline FakeEngine::Script says(std::string text) {
  return [text = std::move(text)](const Request&, std::int32_t) { return bytes(text); };
}

class TestServer {
 public:
  explicit TestServer(FakeEngine::Script script = {}, const ServerOptions& options = test_options())
      : engine_(std::move(script)), server_(options) {
    server_.start();
    auto service = std::make_shared<Service>();
    service->models = ModelTable({fake_model(engine_.queue())});
    server_.serve(service);
  }

  FakeEngine& engine() { return engine_; }
  Server& server() { return server_; }
  std::uint16_t port() const { return server_.port(); }

 private:
  FakeEngine engine_;
  Server server_;
};

}  // namespace quire::test
