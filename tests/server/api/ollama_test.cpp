// Ollama's API on the wire: shapes, streams as lines of JSON, options as sampling fields, and what it refuses.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <sstream>

#include "server/api/common/json.h"
#include "tests/server/models/fake_models.h"
#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

std::string ollama_body(const Json& extra) {
  Json body{{"model", "fake:latest"}};
  body.update(extra);
  return dump_json(body);
}

const Json kHi = Json::array({{{"role", "user"}, {"content", "Hi"}}});

Json whole(HttpClient& client, const std::string& path, Json extra) {
  extra["stream"] = false;
  return answer_to(client, path, ollama_body(extra));
}

std::vector<Json> lines_of(HttpClient& client, const std::string& path, const Json& extra) {
  const HttpReply reply = client.post(path, ollama_body(extra));
  INFO(reply.body);
  REQUIRE(reply.status == 200);
  CHECK(reply.fields.at("content-type") == "application/x-ndjson");
  std::vector<Json> lines;
  std::istringstream stream(reply.body);
  for (std::string line; std::getline(stream, line);)
    lines.push_back(Json::parse(line));
  return lines;
}

// The message of a refusal with this status.
std::string refused(HttpClient& client, const std::string& path, const Json& extra, int status = 400) {
  const HttpReply reply = client.post(path, ollama_body(extra));
  INFO(reply.body);
  CHECK(reply.status == status);
  const Json body = Json::parse(reply.body);
  CHECK(body.size() == 1);
  return body["error"].get<std::string>();
}

void check_end(const Json& last, const std::string& reason, int prompt, int answer) {
  CHECK(last["done"] == true);
  CHECK(last["done_reason"] == reason);
  CHECK(last["prompt_eval_count"] == prompt);
  CHECK(last["eval_count"] == answer);
  for (const char* name : {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"})
    CHECK(last[name].get<std::int64_t>() >= 0);
  CHECK(last["total_duration"].get<std::int64_t>() > 0);
}

const Json kWeather{{"type", "function"},
                    {"function",
                     {{"name", "weather"},
                      {"description", "d"},
                      {"parameters", {{"type", "object"}, {"properties", {{"city", {{"type", "string"}}}}}}}}}};

}  // namespace

TEST_CASE("an Ollama chat is one object, or lines whose texts make the same") {
  TestServer server(says("Hello"));
  HttpClient client(server.port());
  const Json body = whole(client, "/api/chat", {{"messages", kHi}});
  CHECK(body["model"] == "fake");
  CHECK(body["message"] == Json{{"role", "assistant"}, {"content", "Hello"}});
  const auto prompt = static_cast<int>(server.engine().last_request()->prompt.size());
  check_end(body, "stop", prompt, 6);

  const auto lines = lines_of(client, "/api/chat", {{"messages", kHi}});
  std::string text;
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) {
    CHECK(lines[i]["done"] == false);
    CHECK_FALSE(lines[i].contains("eval_count"));
    text += lines[i]["message"]["content"].get<std::string>();
  }
  CHECK(text == "Hello");
  CHECK(lines.back()["message"]["content"] == "");
  check_end(lines.back(), "stop", prompt, 6);
}

TEST_CASE("an Ollama prompt goes through the template, with its system message, unless it is raw") {
  TestServer server(says("yes"));
  HttpClient client(server.port());
  const Json body = whole(client, "/api/generate", {{"prompt", "Why?"}, {"system", "Be brief."}});
  CHECK(body["response"] == "yes");
  CHECK(prompt_text(server) ==
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n");
  whole(client, "/api/generate", {{"prompt", "<|im_start|>x"}, {"raw", true}});
  CHECK(server.engine().last_request()->prompt == std::vector<TokenId>{kBos, kImStart, TokenId{'x'}});
  // A client's text in a turn is text, whatever it looks like.
  whole(client, "/api/generate", {{"prompt", "<|im_end|>"}});
  const auto& prompt = server.engine().last_request()->prompt;
  CHECK(std::count(prompt.begin(), prompt.end(), kImEnd) == 1);
}

TEST_CASE("an Ollama context is continued by its tokens") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  const Json first = whole(client, "/api/generate", {{"prompt", "a"}});
  std::vector<TokenId> expected = server.engine().last_request()->prompt;
  for (const TokenId token : {TokenId{'o'}, TokenId{'k'}, kEos})
    expected.push_back(token);
  const auto ids = first["context"].get<std::vector<std::int32_t>>();
  REQUIRE(ids.size() == expected.size());
  for (std::size_t i = 0; i < ids.size(); ++i)
    CHECK(ids[i] == expected[i].value);
  whole(client, "/api/generate", {{"prompt", "b"}, {"context", ids}});
  const auto& second = server.engine().last_request()->prompt;
  REQUIRE(second.size() > expected.size());
  CHECK(std::equal(expected.begin(), expected.end(), second.begin()));
  CHECK(refused(client, "/api/generate", {{"prompt", "b"}, {"context", {1, 100000}}}).find("context[1]") !=
        std::string::npos);
}

TEST_CASE("Ollama's options are sampling fields, with Ollama's defaults") {
  TestServer server(says("0123456789"));
  HttpClient client(server.port());
  whole(client, "/api/chat", {{"messages", kHi}});
  const SamplingParams defaults = server.engine().last_request()->sampling;
  CHECK(defaults.temperature == 0.8F);
  CHECK(defaults.top_k == 40);
  CHECK(defaults.top_p == 0.9F);
  CHECK(defaults.repetition_penalty == 1.1F);
  CHECK(defaults.penalty_last_n == 64);
  CHECK_FALSE(defaults.seed);
  const Json options{
      {"temperature", 0},    {"top_k", 3}, {"top_p", 0.5},     {"min_p", 0.25},         {"repeat_penalty", 1.5},
      {"repeat_last_n", -1}, {"seed", 7},  {"num_predict", 4}, {"presence_penalty", 1}, {"frequency_penalty", 1},
      {"typical_p", 0.75}};
  const Json cut = whole(client, "/api/chat", {{"messages", kHi}, {"options", options}});
  CHECK(cut["message"]["content"] == "0123");
  CHECK(cut["done_reason"] == "length");
  const SamplingParams given = server.engine().last_request()->sampling;
  CHECK(given.temperature == 0.0F);
  CHECK(given.top_k == 3);
  CHECK(given.top_p == 0.5F);
  CHECK(given.min_p == 0.25F);
  CHECK(given.typical_p == 0.75F);
  CHECK(given.repetition_penalty == 1.5F);
  CHECK(given.penalty_last_n == -1);
  CHECK(given.presence_penalty == 1.0F);
  CHECK(given.frequency_penalty == 1.0F);
  CHECK(given.seed == 7U);
  const Json stopped = whole(client, "/api/generate", {{"prompt", "x"}, {"options", {{"stop", {"45"}}}}});
  CHECK(stopped["response"] == "0123");
  CHECK(stopped["done_reason"] == "stop");
  CHECK(refused(client, "/api/chat", {{"messages", kHi}, {"options", {{"temperature", "hot"}}}})
            .find("'options.temperature'") != std::string::npos);
}

TEST_CASE("num_ctx bounds the context: a chat's oldest turns are left out, unless truncate is false") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  Json chat = Json::array({{{"role", "system"}, {"content", "S"}}});
  for (const char* text : {"first", "second", "third"}) {
    chat.push_back({{"role", "user"}, {"content", text}});
    chat.push_back({{"role", "assistant"}, {"content", "a"}});
  }
  chat.push_back({{"role", "user"}, {"content", "last"}});
  const Json asked{{"messages", chat}, {"options", {{"num_ctx", 100}, {"num_predict", 8}}}};
  whole(client, "/api/chat", asked);
  const std::string kept = prompt_text(server);
  CHECK(server.engine().last_request()->prompt.size() <= 92);
  CHECK(kept.find("system\nS") != std::string::npos);
  CHECK(kept.find("last") != std::string::npos);
  CHECK(kept.find("first") == std::string::npos);
  Json strict = asked;
  strict["truncate"] = false;
  CHECK(refused(client, "/api/chat", strict).find("maximum context length is 100 tokens") != std::string::npos);
}

TEST_CASE("Ollama's tools come as whole calls with objects for arguments, and their results go back") {
  TestServer server(says("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>"));
  HttpClient client(server.port());
  const Json asked{{"messages", kHi}, {"tools", Json::array({kWeather})}};
  const Json arguments{{"city", "Rome"}};
  const Json body = whole(client, "/api/chat", asked);
  REQUIRE(body["message"]["tool_calls"].size() == 1);
  CHECK(body["message"]["tool_calls"][0]["function"]["name"] == "weather");
  CHECK(body["message"]["tool_calls"][0]["function"]["arguments"] == arguments);
  CHECK(body["done_reason"] == "stop");
  std::size_t num_calls = 0;
  for (const Json& line : lines_of(client, "/api/chat", asked)) {
    if (!line["message"].contains("tool_calls")) continue;
    num_calls += line["message"]["tool_calls"].size();
    CHECK(line["message"]["tool_calls"][0]["function"]["arguments"] == arguments);
  }
  CHECK(num_calls == 1);
  Json history = kHi;
  history.push_back(body["message"]);
  history.push_back({{"role", "tool"}, {"tool_name", "weather"}, {"content", "22 degrees"}});
  whole(client, "/api/chat", {{"messages", history}, {"tools", Json::array({kWeather})}});
  CHECK(prompt_text(server).find("22 degrees") != std::string::npos);
}

TEST_CASE("an Ollama call that is cut off is text: there are no half calls") {
  TestServer server(says("<tool_call>\n{\"name\": \"weather\", \"argum"));
  HttpClient client(server.port());
  const Json body = whole(client, "/api/chat", {{"messages", kHi}, {"tools", Json::array({kWeather})}});
  CHECK_FALSE(body["message"].contains("tool_calls"));
  CHECK(body["message"]["content"].get<std::string>().find("weather") != std::string::npos);
}

TEST_CASE("Ollama's think opens and closes the reasoning, which comes as thinking") {
  TestServer server(says("<think>hm</think>yes"), test_options(), let_think);
  HttpClient client(server.port());
  const Json body = whole(client, "/api/chat", {{"messages", kHi}, {"think", true}});
  CHECK(body["message"]["thinking"] == "hm");
  CHECK(body["message"]["content"] == "yes");
  CHECK(prompt_text(server).find("<think>") == std::string::npos);
  whole(client, "/api/chat", {{"messages", kHi}, {"think", false}});
  CHECK(prompt_text(server).find("<think>\n\n</think>") != std::string::npos);
  const Json generated = whole(client, "/api/generate", {{"prompt", "x"}, {"think", "high"}});
  CHECK(generated["thinking"] == "hm");
  CHECK(refused(client, "/api/chat", {{"messages", kHi}, {"think", 1}}).find("'think'") != std::string::npos);
}

TEST_CASE("Ollama's format constrains the text: any JSON, or a schema") {
  TestServer server(says("{}"));
  HttpClient client(server.port());
  whole(client, "/api/chat", {{"messages", kHi}, {"format", "json"}});
  CHECK(server.engine().last_request()->grammar != nullptr);
  whole(client, "/api/generate", {{"prompt", "x"}, {"format", {{"type", "object"}}}});
  CHECK(server.engine().last_request()->grammar != nullptr);
  whole(client, "/api/generate", {{"prompt", "x"}, {"format", ""}});
  CHECK(server.engine().last_request()->grammar == nullptr);
  CHECK(refused(client, "/api/chat", {{"messages", kHi}, {"format", "yaml"}}).find("'format'") != std::string::npos);
}

TEST_CASE("Ollama's log probabilities stand beside the text that they are of") {
  TestServer server(says("ab"));
  HttpClient client(server.port());
  const Json asked{{"messages", kHi}, {"logprobs", true}, {"top_logprobs", 1}};
  const Json body = whole(client, "/api/chat", asked);
  REQUIRE(body["logprobs"].size() == 2);
  CHECK(body["logprobs"][0]["token"] == "a");
  CHECK(body["logprobs"][0]["top_logprobs"].size() == 1);
  std::string tokens;
  for (const Json& line : lines_of(client, "/api/chat", asked)) {
    for (const Json& each : line.value("logprobs", Json::array()))
      tokens += each["token"].get<std::string>();
  }
  CHECK(tokens == "ab");
}

TEST_CASE("a request to Ollama's API without a prompt only loads the model") {
  TestServer server;
  HttpClient client(server.port());
  for (const char* path : {"/api/chat", "/api/generate"}) {
    const Json body = whole(client, path, {{"keep_alive", "5m"}});
    CHECK(body["done"] == true);
    CHECK(body["done_reason"] == "load");
    // A client cannot unload a model that others use.
    CHECK(refused(client, path, {{"keep_alive", 0}}).find("'keep_alive'") != std::string::npos);
  }
}

TEST_CASE("Ollama's API refuses what it cannot do, in its own form") {
  TestServer server;
  HttpClient client(server.port());
  Json seen = kHi;
  seen[0]["images"] = {"aGk="};
  CHECK(refused(client, "/api/chat", {{"messages", seen}}).find("'messages[0].images'") != std::string::npos);
  seen[0]["images"] = Json::array();
  whole(client, "/api/chat", {{"messages", seen}});
  CHECK(refused(client, "/api/generate", {{"prompt", "x"}, {"images", {"aGk="}}}).find("'images'") !=
        std::string::npos);
  CHECK(refused(client, "/api/generate", {{"prompt", "x"}, {"template", "{{ .Prompt }}"}}).find("'template'") !=
        std::string::npos);
  CHECK(refused(client, "/api/generate", {{"prompt", "x"}, {"suffix", "y"}}).find("'suffix'") != std::string::npos);
  CHECK(refused(client, "/api/chat", {{"messages", kHi}, {"options", {{"mirostat", 3}}}}).find("'options.mirostat'") !=
        std::string::npos);
  CHECK(refused(client, "/api/chat", {{"model", "nothing"}, {"messages", kHi}}, 404).find("nothing") !=
        std::string::npos);
  CHECK(refused(client, "/api/create", {{"from", "x"}}).find("operator") != std::string::npos);
  CHECK(refused(client, "/api/pull", {{"model", "nothing"}}, 403).find("'nothing'") != std::string::npos);
  CHECK(answer_to(client, "/api/pull", ollama_body(Json::object()))["status"] == "success");
  CHECK(client.post("/api/chat", "{").status == 400);
}

TEST_CASE("Ollama's embeddings: many of length one, or one as it is") {
  TestServer server;
  HttpClient client(server.port());
  const Json many = answer_to(client, "/api/embed", ollama_body({{"input", {"a", "bc"}}}));
  CHECK(many["embeddings"].size() == 2);
  CHECK(many["embeddings"][0].size() == 4);
  CHECK(many["prompt_eval_count"] == 5);  // each begins with a token of its own
  CHECK(many["total_duration"].get<std::int64_t>() > 0);
  CHECK(server.engine().last_request()->pooled_output == PooledOutput::kUnitVector);
  const Json shorter = answer_to(client, "/api/embed", ollama_body({{"input", "a"}, {"dimensions", 2}}));
  CHECK(shorter["embeddings"][0].size() == 2);
  CHECK(answer_to(client, "/api/embed", ollama_body({{"input", Json::array()}}))["embeddings"].empty());
  const Json one = answer_to(client, "/api/embeddings", ollama_body({{"prompt", "a"}}));
  CHECK(one["embedding"].size() == 4);
  CHECK(server.engine().last_request()->pooled_output == PooledOutput::kVector);
  const std::string longer(5000, 'x');
  CHECK(client.post("/api/embed", ollama_body({{"input", longer}})).status == 200);
  CHECK(refused(client, "/api/embed", {{"input", longer}, {"truncate", false}}).find("context length") !=
        std::string::npos);
}

TEST_CASE("Ollama's lists show the models, and its version is one that clients take") {
  TestServer server;
  HttpClient client(server.port());
  for (const char* path : {"/api/tags", "/api/ps"}) {
    const Json list = Json::parse(client.get(path).body);
    REQUIRE(list["models"].size() == 1);
    CHECK(list["models"][0]["name"] == "fake");
    CHECK(list["models"][0]["modified_at"] == "2023-11-14T22:13:20Z");
    CHECK(list["models"][0]["digest"].get<std::string>().size() == 64);
    CHECK(list["models"][0]["details"]["family"] == "llama");
  }
  const Json shown = answer_to(client, "/api/show", R"({"name":"fake"})");
  CHECK(shown["capabilities"][0] == "completion");
  CHECK(shown["model_info"]["llama.context_length"] == 2048);
  CHECK(refused(client, "/api/show", {{"model", "nothing"}}, 404).find("nothing") != std::string::npos);
  CHECK(Json::parse(client.get("/api/version").body)["version"].is_string());
  const HttpReply page = client.get("/");
  CHECK(page.status == 200);
  CHECK(page.fields.at("content-type") == "text/html; charset=utf-8");
  CHECK(page.body.find("Ollama is running") != std::string::npos);
}

TEST_CASE("keys and quotas bound Ollama's API as they bound the others") {
  ::setenv("QUIRE_TEST_OLLAMA_KEY", "secret", 1);
  ServerOptions options = test_options();
  ApiKeyOptions key;
  key.name = "alice";
  key.env = "QUIRE_TEST_OLLAMA_KEY";
  key.quota.requests_per_minute = 1;
  options.security.keys = {key};
  TestServer server(says("ok"), options);
  HttpClient client(server.port());
  CHECK(refused(client, "/api/chat", {{"messages", kHi}}, 401).find("API key") != std::string::npos);
  const auto with_key = [&] {
    const std::string body = ollama_body({{"messages", kHi}, {"stream", false}});
    client.send(
        "POST /api/chat HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\nContent-Type: application/json"
        "\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body);
    return client.receive();
  };
  CHECK(with_key().status == 200);
  const HttpReply second = with_key();
  CHECK(second.status == 429);
  CHECK(Json::parse(second.body)["error"].is_string());
}

TEST_CASE("an Ollama stream that fails ends with a line that says so") {
  TestServer server(says(std::string(100, 'x')));
  server.engine().hold(true);
  HttpClient client(server.port());
  const std::string body = ollama_body({{"messages", kHi}});
  client.send("POST /api/chat HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  server.engine().allow_steps(1);
  REQUIRE(client.receive_until("\"done\":false"));
  server.server().stop();
  server.server().stop();  // the second cuts at once
  REQUIRE(client.receive_until("{\"error\":\""));
}
