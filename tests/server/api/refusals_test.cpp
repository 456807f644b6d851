// Each condition has one status and one code on every API, whatever the form of its errors.
#include <fmt/core.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>

#include "server/api/generation/generation_fields.h"
#include "tests/server/models/models_server.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

struct Api {
  const char* path;
  std::string body;  // TEXT stands for the text
};

// The APIs that take a place in a model's queue.
const std::vector<Api>& queued_apis() {
  static const std::vector<Api> kApis = {
      {"/v1/completions", R"({"prompt":"TEXT","max_tokens":1})"},
      {"/completion", R"({"prompt":"TEXT","n_predict":1})"},
      {"/infill", R"({"input_prefix":"TEXT","input_suffix":"b","n_predict":1})"},
      {"/v1/chat/completions", R"({"messages":[{"role":"user","content":"TEXT"}],"max_tokens":1})"},
      {"/v1/messages", R"({"messages":[{"role":"user","content":"TEXT"}],"max_tokens":1})"},
      {"/v1/responses", R"({"input":"TEXT","max_output_tokens":1})"},
      {"/v1/embeddings", R"({"input":"TEXT"})"},
      {"/pooling", R"({"input":"TEXT"})"},
      {"/classify", R"({"input":"TEXT"})"},
      {"/rerank", R"({"query":"a","documents":["TEXT"]})"},
      {"/score", R"({"text_1":"a","text_2":"TEXT"})"},
  };
  return kApis;
}

std::string body_with(const Api& api, const std::string& text) {
  std::string body = api.body;
  return body.replace(body.find("TEXT"), 4, text);
}

void check_refusal(const HttpReply& reply, const std::string& path, int status, const std::string& code) {
  INFO(path << ": " << reply.body);
  CHECK(reply.status == status);
  CHECK(error_code(reply) == code);
  CHECK((reply.fields.count("retry-after") == 1) == (status == 503));
}

}  // namespace

TEST_CASE("a full queue is server_overloaded on every API, before the body is looked at") {
  FakeEngine engine(says("x"), QueueOptions{.max_queued_requests = 1});
  Server server(test_options());
  server.start();
  server.serve(std::make_shared<const ModelTable>(ready_table(fake_model(engine.queue()))));
  engine.hold(true);
  HttpClient first(server.port());
  first.send(posted_completion(R"({"prompt":"a","max_tokens":1})"));
  engine.wait_live(1);
  for (const Api& api : queued_apis()) {
    HttpClient client(server.port());
    check_refusal(client.post(api.path, "no json"), api.path, 503, "server_overloaded");
  }
  engine.hold(false);
  CHECK(first.receive().status == 200);
  engine.stop();
}

TEST_CASE("an engine that shuts down is server_draining on every API") {
  TestServer server(says("x"));
  server.engine().queue().close();
  for (const Api& api : queued_apis()) {
    HttpClient client(server.port());
    check_refusal(client.post(api.path, body_with(api, "a")), api.path, 503, "server_draining");
  }
}

TEST_CASE("a server that drains is server_draining on every API") {
  TestServer server(says("x"));
  server.engine().hold(true);
  HttpClient running(server.port());
  running.send(posted_completion(R"({"prompt":"a","max_tokens":1})"));
  server.engine().wait_live(1);
  HttpClient late(server.port());
  REQUIRE(late.get("/readyz").status == 200);
  server.server().stop();
  while (late.get("/readyz").status == 200) {
  }
  for (const Api& api : queued_apis()) {
    HttpClient client(server.port());
    check_refusal(client.post(api.path, body_with(api, "a")), api.path, 503, "server_draining");
  }
  server.engine().hold(false);
  CHECK(running.receive().status == 200);
}

TEST_CASE("a model that is not served is model_not_found on every API") {
  TestServer server(says("x"));
  for (const Api& api : queued_apis()) {
    HttpClient client(server.port());
    const std::string body = R"({"model":"absent",)" + body_with(api, "a").substr(1);
    check_refusal(client.post(api.path, body), api.path, 404, "model_not_found");
  }
}

TEST_CASE("a prompt far beyond the context is context_length_exceeded on every API") {
  TestServer server(says("x"), test_options(), [](ServedModel& model) { model.info.pooling = Pooling::kMean; });
  // The context has 2,048 tokens, each a byte: twice as many are counted, for the message.
  const std::string counted(4'000, 'x');
  const std::string far(500'000, 'x');
  for (const Api& api : queued_apis()) {
    const std::string path = api.path;
    if (path == "/infill" || path == "/classify") continue;  // cut to the context; needs a classifier
    HttpClient client(server.port());
    check_refusal(client.post(path, body_with(api, counted)), path, 400, "context_length_exceeded");
    const HttpReply refused = client.post(path, body_with(api, far));
    check_refusal(refused, path, 400, "context_length_exceeded");
    INFO(refused.body);
    // Anthropic's clients recognise Anthropic's wording.
    const bool in_its_words = path.starts_with("/v1/messages");
    CHECK(refused.body.find(in_its_words ? "prompt is too long: 4096 tokens > " : "more than 4096 tokens") !=
          std::string::npos);
  }
}

TEST_CASE("a text that is only counted, or cut to a length, is read in bounds too") {
  TestServer server(says("x"), test_options(), [](ServedModel& model) { model.info.pooling = Pooling::kMean; });
  HttpClient client(server.port());
  // Each byte is a token: 131,072 are read.
  const std::string most(100'000, 'x');
  const std::string far(140'000, 'x');
  const std::vector<Api> apis = {
      {"/tokenize", R"({"prompt":"TEXT"})"},
      {"/tokenize", R"({"content":"TEXT"})"},
      {"/tokenize", R"({"messages":[{"role":"user","content":"TEXT"}]})"},
      {"/v1/messages/count_tokens", R"({"messages":[{"role":"user","content":"TEXT"}]})"},
      {"/v1/responses/input_tokens", R"({"input":"TEXT"})"},
      {"/v1/completions", R"({"prompt":"TEXT","truncate_prompt_tokens":8,"max_tokens":1})"},
      {"/v1/embeddings", R"({"input":"TEXT","truncate_prompt_tokens":8})"},
      {"/rerank", R"({"query":"a","documents":["TEXT"],"max_tokens_per_doc":8})"},
  };
  for (const Api& api : apis) {
    INFO(api.body);
    CHECK(client.post(api.path, body_with(api, most)).status == 200);
    check_refusal(client.post(api.path, body_with(api, far)), api.path, 400, "context_length_exceeded");
  }
}

TEST_CASE("lists of tokens are no longer than there are tokens, and words are short") {
  TestServer server(says("x"));
  HttpClient client(server.port());
  const auto refused_field = [&](const char* path, Json body, const char* field, Json value) {
    body[field] = std::move(value);
    const HttpReply reply = client.post(path, dump_json(body));
    CHECK(reply.status == 400);
    return Json::parse(reply.body)["error"]["param"];
  };
  const Json request{{"prompt", "a"}, {"max_tokens", 1}};
  const std::string word(2'000, 'x');  // a token each byte
  for (const char* field : {"stop_token_ids", "allowed_token_ids"})
    CHECK(refused_field("/v1/completions", request, field, std::vector<int>(261, 5)) == field);
  CHECK(refused_field("/v1/completions", request, "logit_bias", std::vector<Json>(261, Json::array({5, 1.0}))) ==
        "logit_bias");
  const std::string half(200, 'x');
  CHECK(refused_field("/v1/completions", request, "logit_bias", std::vector<Json>(2, Json::array({half, 1.0}))) ==
        "logit_bias");
  CHECK(refused_field("/v1/completions", request, "bad_words", Json::array({word})) == "bad_words");
  Json dry = request;
  dry["dry_multiplier"] = 1.0;
  CHECK(refused_field("/v1/completions", dry, "dry_sequence_breakers", Json::array({word})) == "dry_sequence_breakers");
  CHECK(refused_field("/detokenize", Json::object(), "tokens", std::vector<int>(140'000, 'x')) == "tokens");
}

TEST_CASE("texts that are kept as long as an answer is made are short on every API") {
  TestServer server(says("x"));
  HttpClient client(server.port());
  const auto post_with = [&](const Api& api, const char* field, Json value) {
    Json body = Json::parse(body_with(api, "a"));
    body[field] = std::move(value);
    return client.post(api.path, dump_json(body));
  };
  const std::string stop(kMaxStopBytes / 2, 'y');
  const std::string hint(fields::kMostHintBytes, 'h');
  for (const char* path : {"/v1/completions", "/completion", "/v1/chat/completions", "/v1/messages", "/v1/responses"}) {
    const auto api =
        std::find_if(queued_apis().begin(), queued_apis().end(), [&](const Api& each) { return each.path == path; });
    INFO(path);
    const std::string_view name = path;
    const char* const field = name == "/v1/messages" ? "stop_sequences" : "stop";
    if (name != "/v1/responses") {
      CHECK(post_with(*api, field, Json::array({stop, stop})).status == 200);
      check_refusal(post_with(*api, field, Json::array({stop, stop, "y"})), path, 400, "invalid_value");
    }
    CHECK(post_with(*api, "cache_salt", hint).status == 200);
    check_refusal(post_with(*api, "cache_salt", hint + "h"), path, 400, "invalid_value");
  }
  const Api responses{"/v1/responses", R"({"input":"TEXT","max_output_tokens":1})"};
  for (const char* field : {"user", "safety_identifier", "prompt_cache_key"}) {
    INFO(field);
    CHECK(post_with(responses, field, hint).status == 200);
    check_refusal(post_with(responses, field, hint + "h"), responses.path, 400, "invalid_value");
  }
  for (const char* path : {"/v1/responses", "/v1/chat/completions"}) {
    const auto api =
        std::find_if(queued_apis().begin(), queued_apis().end(), [&](const Api& each) { return each.path == path; });
    CHECK(post_with(*api, "metadata", Json{{"a", std::string(kMaxMetadataBytes / 2, 'm')}}).status == 200);
    check_refusal(post_with(*api, "metadata", Json{{"a", std::string(kMaxMetadataBytes, 'm')}}), path, 400,
                  "invalid_value");
  }
}

TEST_CASE("what each event of a response repeats of its request is bounded") {
  ServerOptions options = test_options();
  options.max_body_bytes = std::int64_t{4} << 20;
  TestServer server(says("x"), options);
  HttpClient client(server.port());
  const auto reply_to = [&](std::size_t num_bytes) {
    Json body{{"input", "a"}, {"max_output_tokens", 1}, {"tool_choice", "none"}};
    body["tools"] = Json::array({{{"type", "function"},
                                  {"name", "f"},
                                  {"description", std::string(num_bytes, 'd')},
                                  {"parameters", Json::object()}}});
    return client.post("/v1/responses", dump_json(body));
  };
  CHECK(reply_to(1'000'000).status == 200);
  check_refusal(reply_to(1'100'000), "/v1/responses", 400, "invalid_value");
}

TEST_CASE("what a response keeps of its input's items beside the prompt is bounded") {
  ServerOptions options = test_options();
  options.max_body_bytes = std::int64_t{8} << 20;
  TestServer server(says("x"), options);
  HttpClient client(server.port());
  const auto reply_to = [&](Json item) {
    const Json input = Json::array({std::move(item), {{"role", "user"}, {"content", "a"}}});
    return client.post("/v1/responses", dump_json(Json{{"input", input}, {"max_output_tokens", 1}}));
  };
  const auto call = [](const char* field, std::string value) {
    Json item{{"type", "function_call"}, {"call_id", "c"}, {"name", "f"}, {"arguments", "{}"}};
    item[field] = std::move(value);
    return item;
  };
  for (const char* field : {"id", "call_id", "name", "namespace"}) {
    INFO(field);
    CHECK(reply_to(call(field, std::string(256, 'n'))).status == 200);
    check_refusal(reply_to(call(field, std::string(1025, 'n'))), "/v1/responses", 400, "invalid_value");
  }
  const auto reasoning = [](std::size_t num_bytes) {
    const Json part{{"type", "summary_text"}, {"text", std::string(num_bytes, 'r')}};
    return Json{{"type", "reasoning"}, {"summary", Json::array({part})}};
  };
  CHECK(reply_to(reasoning(4'000'000)).status == 200);
  check_refusal(reply_to(reasoning(4'200'000)), "/v1/responses", 400, "invalid_value");
}

TEST_CASE("an error repeats little of what was sent") {
  TestServer server(says("x"));
  HttpClient client(server.port());
  std::string text;  // characters of three bytes
  while (text.size() < 300'000)
    text += "\xE2\x82\xAC";
  const std::vector<std::pair<const char*, Json>> requests = {
      {"/v1/completions", {{"prompt", "a"}, {"model", text}}},
      {"/v1/completions", {{"prompt", "a"}, {"logit_bias", {{text, 1}}}}},
      {"/v1/chat/completions", {{"messages", Json::array()}, {"reasoning_effort", text}}},
      {"/v1/responses", {{"input", "a"}, {"truncation", text}}},
      {"/v1/responses", {{"input", "a"}, {"include", Json::array({text})}}},
      {"/v1/responses", {{"input", "a"}, {"metadata", {{text, 1}}}}},
      {"/v1/responses", {{"input", "a"}, {"previous_response_id", text}}},
      {"/v1/messages", {{"max_tokens", 1}, {"messages", Json::array({{{"role", text}, {"content", "a"}}})}}},
  };
  for (const auto& [path, body] : requests) {
    const HttpReply reply = client.post(path, dump_json(body));
    INFO(path << " " << reply.body.substr(0, 300));
    CHECK((reply.status == 400 || reply.status == 404));
    CHECK(reply.body.size() < 4'000);
    CHECK(Json::accept(reply.body));
  }
}

TEST_CASE("what drains is cut with server_draining in each stream's own form") {
  ServerOptions options = test_options();
  options.drain.deadline = std::chrono::milliseconds(1);
  TestServer server([](const Request&, std::int32_t) { return std::vector<TokenId>(100, TokenId{'x'}); }, options);
  server.engine().hold(true);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (const char* path : {"/v1/completions", "/completion", "/v1/chat/completions", "/v1/messages", "/v1/responses"}) {
    const auto api =
        std::find_if(queued_apis().begin(), queued_apis().end(), [&](const Api& each) { return each.path == path; });
    clients.push_back(std::make_unique<HttpClient>(server.port()));
    std::string body = R"({"stream":true,)" + body_with(*api, "a").substr(1);
    body.replace(body.rfind(":1}"), 3, ":50}");  // continues after its first token
    clients.back()->send(posted(path, body));
    server.engine().wait_live(clients.size());
    server.engine().allow_steps(1);
    CHECK(clients.back()->receive_until("data: "));
  }
  server.server().stop();
  for (auto& client : clients)
    CHECK(client->receive_until("server_draining"));
  server.server().wait();
}

TEST_CASE("a client whose requests hold all the grammars that it may have waits, and no other request is refused") {
  const auto regex_of = [](int number) { return fmt::format("([a-z]{{0,400}}x{0}|[0-9]{{0,400}}y{0})", number); };
  const auto body_of = [&](int number) {
    return dump_json(Json{{"prompt", "a"}, {"max_tokens", 1}, {"guided_regex", regex_of(number)}});
  };
  const auto vocabulary = std::make_shared<TokenVocabulary>(TokenVocabulary::bytes_only());
  GrammarSpec spec;
  spec.kind = GrammarSpec::Kind::kRegex;
  spec.text = regex_of(1);
  const GrammarCompiler measured(vocabulary);
  REQUIRE(measured.compile(spec).has_value());
  GrammarLimits limits;  // room for a single such grammar
  limits.max_client_bytes = measured.memory().num_bytes * 3 / 2;
  TestServer server(says("x"), test_options(), [&](ServedModel& model) {
    model.grammar_compiler = std::make_shared<const GrammarCompiler>(vocabulary, limits);
  });
  server.engine().hold(true);
  HttpClient first(server.port());
  first.send(posted_completion(body_of(1)));
  server.engine().wait_live(1);
  HttpClient refused(server.port());
  const HttpReply reply = refused.post("/v1/completions", body_of(2));
  INFO(reply.body);
  CHECK(reply.status == 429);
  CHECK(error_code(reply) == "rate_limit_exceeded");
  CHECK(reply.fields.count("retry-after") == 1);
  HttpClient same(server.port());
  same.send(posted_completion(body_of(1)));
  server.engine().wait_live(2);
  HttpClient plain(server.port());
  plain.send(posted_completion(R"({"prompt":"a","max_tokens":1})"));
  server.engine().wait_live(3);
  server.engine().hold(false);
  for (HttpClient* client : {&first, &same, &plain})
    CHECK(client->receive().status == 200);
  // The grammar of ended requests is only cached, and can be evicted once they are destroyed.
  int status = 429;
  while (status == 429)
    status = refused.post("/v1/completions", body_of(2)).status;
  CHECK(status == 200);
}
