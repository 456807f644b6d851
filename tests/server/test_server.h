// TestServer: a Server on a free port over a FakeEngine. One thread at a time.
#pragma once

#include <catch2/catch.hpp>
#include <string>

#include "core/text/chat_template.h"
#include "core/text/chat_template_capabilities.h"
#include "server/api/common/json.h"
#include "server/server.h"
#include "tests/server/fake_engine.h"
#include "tests/server/fake_tokenizer.h"
#include "tests/server/http_client.h"
#include "tests/support/ready_table.h"

namespace quire::test {

// Gives the model a template whose model may think: its generation prompt closes the section unless thinking is
// enabled.
inline void let_think(ServedModel& model) {
  constexpr const char* kTemplate =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n"
      "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}";
  model.chat_template = std::make_shared<ChatTemplate>(*ChatTemplate::parse(kTemplate));
  model.template_capabilities = probe_capabilities(*model.chat_template);
}

inline ServerOptions test_options() {
  ServerOptions options;
  options.port = 0;
  options.io_threads = 2;
  options.max_body_bytes = 1 << 20;
  options.access_log = AccessLog::kOff;
  return options;
}

// A script in which every choice says this text.
inline FakeEngine::Script says(std::string text) {
  return [text = std::move(text)](const Request&, std::int32_t) { return bytes(text); };
}

class TestServer {
 public:
  // `adjust` changes the fake model before it is served.
  explicit TestServer(FakeEngine::Script script = {}, const ServerOptions& options = test_options(),
                      const std::function<void(ServedModel&)>& adjust = {})
      : engine_(std::move(script)), server_(options) {
    server_.start();
    auto model = fake_model(engine_.queue());
    if (adjust) adjust(*model);
    server_.serve(std::make_shared<const ModelTable>(ready_table(std::move(model))));
  }
  // The engine's thread posts to the server's loops, so it ends first.
  ~TestServer() { engine_.stop(); }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  FakeEngine& engine() { return engine_; }
  Server& server() { return server_; }
  std::uint16_t port() const { return server_.port(); }

 private:
  FakeEngine engine_;
  Server server_;
};

// The engine's last prompt as text.
inline std::string prompt_text(TestServer& server) {
  std::string text;
  const ByteTokenizer tokenizer;
  for (const TokenId token : server.engine().last_request()->prompt)
    text += tokenizer.token_bytes(token);
  return text;
}

// The answer's body for a request that must succeed.
inline Json answer_to(HttpClient& client, const std::string& path, const std::string& body) {
  const HttpReply reply = client.post(path, body);
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  return Json::parse(reply.body);
}

// The parameter named by a request's refusal; empty if none.
inline std::string refused_param(HttpClient& client, const std::string& path, const std::string& body) {
  const HttpReply reply = client.post(path, body);
  INFO(reply.body);
  CHECK(reply.status == 400);
  const Json param = Json::parse(reply.body)["error"]["param"];
  return param.is_string() ? param.get<std::string>() : "";
}

}  // namespace quire::test
