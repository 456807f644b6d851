// Requests as clients and agents send them: messages in any order, tools of other servers, hints, prefills.
#include <catch2/catch.hpp>

#include "server/api/conversation/chat_prompt.h"
#include "tests/server/test_server.h"
#include "tests/support/material.h"

namespace quire::test {
namespace {

HttpReply accepted(HttpClient& client, const std::string& path, const std::string& body) {
  const HttpReply reply = client.post(path, body);
  INFO(path << " " << body << ": " << reply.body);
  CHECK(reply.status == 200);
  return reply;
}

bool has_warning(const HttpReply& reply, const std::string& text) {
  return reply.fields.count("x-quire-warning") != 0 &&
         reply.fields.at("x-quire-warning").find(text) != std::string::npos;
}

void use_template(ServedModel& model, const std::string& source) {
  model.chat_template = std::make_shared<ChatTemplate>(*ChatTemplate::parse(source, {.changes_values = true}));
  model.template_capabilities = probe_capabilities(*model.chat_template);
}

std::optional<std::string> continued(const ServedModel& model, const std::string& text) {
  ChatPromptFields fields;
  fields.messages = {{{"role", "user"}, {"content", "hi"}}, {{"role", "assistant"}, {"content", text}}};
  fields.continue_final_message = true;
  fields.add_generation_prompt = false;
  const Json none = Json::object();
  FieldReader reader(none);
  const auto pieces = render_chat(reader, model, fields);
  if (!pieces) return std::nullopt;
  std::string prompt;
  for (const TextPiece& piece : *pieces)
    prompt += piece.text;
  return prompt;
}

TEST_CASE("a continued text ends the prompt to the letter, whatever it is") {
  QUIRE_REQUIRE_MATERIAL(folder, "chat-templates/templates");
  FakeEngine engine;
  const auto model = fake_model(engine.queue());
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    use_template(*model, read_file(entry.path()));
    for (const std::string text : {"<", ">", "|", "end", "Yes, ", "{", "\n", "  x", "", "assistant", "</think>"}) {
      const auto prompt = continued(*model, text);
      INFO(name << ": '" << text << "' " << prompt.value_or("refused"));
      CHECK((prompt && prompt->ends_with(text)));
      CHECK((prompt && prompt->find("QuireContinues") == std::string::npos));
    }
    // Thoughts that the prompt begins are not begun twice.
    CHECK(continued(*model, "<think>a</think>").value_or("").ends_with("a</think>"));
  }
  engine.stop();
}

TEST_CASE("the switch of thinking is set under the name that the template reads") {
  TestServer server({}, test_options(), [](ServedModel& model) {
    use_template(model,
                 "{% for m in messages %}{{ m.content }}{% endfor %}{% if thinking %}ON{% else %}OFF{% endif %}");
  });
  HttpClient client(server.port());
  const auto prompt = [&](const std::string& more) {
    accepted(client, "/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}])" + more + "}");
    return prompt_text(server);
  };
  CHECK(prompt(R"(,"enable_thinking":true)") == "xON");
  CHECK(prompt(R"(,"enable_thinking":false)") == "xOFF");
  CHECK(prompt(R"(,"chat_template_kwargs":{"thinking":true})") == "xON");
  CHECK(prompt(R"(,"reasoning_effort":"none")") == "xOFF");
}

TEST_CASE("a folded system message is a warning") {
  TestServer server({}, test_options(), [](ServedModel& model) {
    use_template(model,
                 "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first') }}"
                 "{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}");
  });
  HttpClient client(server.port());
  const std::string turns = R"([{"role":"user","content":"task"},{"role":"system","content":"note"}])";
  for (const char* path : {"/v1/messages", "/v1/chat/completions"}) {
    const HttpReply reply = accepted(client, path, R"({"max_tokens":3,"messages":)" + turns + "}");
    CHECK(has_warning(reply, "1 system message(s) folded"));
    CHECK(prompt_text(server) == "[user]task\n\nnote");
  }
}

TEST_CASE("tools and items that other servers run are left out by their form") {
  TestServer server;
  HttpClient client(server.port());
  const std::string turn = R"("max_tokens":3,"messages":[{"role":"user","content":"x"}],)";
  CHECK(has_warning(accepted(client, "/v1/messages", "{" + turn + R"("tools":[{"type":"seer_20991231","name":"s"}]})"),
                    "seer_20991231"));
  CHECK(has_warning(accepted(client, "/v1/chat/completions", "{" + turn + R"("tools":[{"type":"seer"}]})"), "'seer'"));
  CHECK(has_warning(accepted(client, "/v1/responses", R"({"input":"x","tools":[{"type":"seer"}]})"), "'seer'"));
  CHECK(has_warning(
      accepted(client, "/v1/responses", R"({"input":[{"type":"seer_call","id":"s"},{"role":"user","content":"x"}]})"),
      "seer_call"));
  const HttpReply reply =
      accepted(client, "/v1/messages",
               R"({"max_tokens":3,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[
        {"type":"server_tool_use","id":"s","name":"seer","input":{}},{"type":"seer_tool_result","tool_use_id":"s"},
        {"type":"text","text":"ok"}]},{"role":"user","content":"y"}]})");
  CHECK(has_warning(reply, "seer_tool_result"));
}

TEST_CASE("blocks that hold text give their text") {
  TestServer server;
  HttpClient client(server.port());
  accepted(client, "/v1/messages", R"({"max_tokens":3,"messages":[{"role":"user","content":[
    {"type":"document","title":"T1","source":{"type":"text","media_type":"text/plain","data":"D1"}},
    {"type":"document","source":{"type":"content","content":[{"type":"text","text":"D2"}]}},
    {"type":"search_result","source":"U1","title":"T2","content":[{"type":"text","text":"D3"}]},
    {"type":"tool_reference","tool_name":"R1"}]}]})");
  for (const char* text : {"T1", "D1", "D2", "U1", "T2", "D3", "R1"})
    CHECK(prompt_text(server).find(text) != std::string::npos);
  CHECK(client
            .post("/v1/messages", R"({"max_tokens":3,"messages":[{"role":"user","content":[
    {"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"x"}}]}]})")
            .status == 400);
}

TEST_CASE("hints are accepted, whatever they hint") {
  TestServer server;
  HttpClient client(server.port());
  const std::string chat = R"({"max_tokens":3,"messages":[{"role":"user","content":"x"}],)";
  for (const char* hint : {R"("verbosity":"low")", R"("service_tier":"priority")", R"("prompt_cache_options":{})"})
    accepted(client, "/v1/chat/completions", chat + hint + "}");
  accepted(client, "/v1/messages", chat + R"("service_tier":"flex"})");
  for (const char* hint : {R"("text":{"verbosity":"high"})", R"("reasoning":{"summary":"concise"})",
                           R"("service_tier":"flex")", R"("prompt_cache_options":{})"})
    accepted(client, "/v1/responses", std::string(R"({"input":"x",)") + hint + "}");
}

TEST_CASE("the Messages API takes output_format, and says that a prompt is too long in Anthropic's words") {
  TestServer server(says("{}"));
  HttpClient client(server.port());
  const std::string turn = R"({"max_tokens":3,"messages":[{"role":"user","content":")";
  accepted(client, "/v1/messages", turn + R"(x"}],"output_format":{"type":"json_schema","schema":{"type":"object"}}})");
  CHECK(server.engine().last_request()->grammar != nullptr);
  const HttpReply reply = client.post("/v1/messages", turn + std::string(5000, 'x') + R"("}]})");
  CHECK(reply.status == 400);
  CHECK_THAT(Json::parse(reply.body)["error"]["message"].get<std::string>(),
             Catch::StartsWith("prompt is too long: ") && Catch::EndsWith(" maximum"));
}

TEST_CASE("a compaction_trigger is answered by one compaction item") {
  TestServer server(says("summary"));
  HttpClient client(server.port());
  const HttpReply reply =
      accepted(client, "/v1/responses", R"({"input":[{"role":"user","content":"x"},{"type":"compaction_trigger"}]})");
  const Json output = Json::parse(reply.body)["output"];
  REQUIRE(output.size() == 1);
  CHECK(output[0]["type"] == "compaction");
  CHECK(output[0]["encrypted_content"].get<std::string>().ends_with("summary"));
  accepted(client, "/v1/responses", Json{{"input", output}}.dump());
  CHECK(prompt_text(server).find("summary") != std::string::npos);
}

TEST_CASE("a rendered request is the prompt that its answer would have, and generates from its tokens") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  const std::string chat = R"({"max_tokens":3,"temperature":0.5,"messages":[{"role":"user","content":"x"}]})";
  for (const std::string path : {"/v1/chat/completions", "/v1/messages"}) {
    const Json shown = Json::parse(accepted(client, path + "/render", chat).body);
    CHECK(shown["sampling_params"]["max_tokens"] == 3);
    CHECK(shown["sampling_params"]["temperature"] == 0.5);
    accepted(client, path, chat);
    CHECK(shown["token_ids"].size() == server.engine().last_request()->prompt.size());
    const Json made = Json::parse(accepted(client, "/inference/v1/generate", shown.dump()).body);
    CHECK(made["choices"][0]["token_ids"].size() >= 2);
    CHECK(made["request_id"] == shown["request_id"]);
  }
  const Json list = Json::parse(accepted(client, "/v1/completions/render", R"({"prompt":["a","bc"]})").body);
  REQUIRE(list.size() == 2);
  CHECK(list[1]["token_ids"].size() == list[0]["token_ids"].size() + 1);
}

TEST_CASE("whole numbers of any size keep their digits") {
  const std::string text = R"({"a":123456789012345678901234567890,"b":[-18446744073709551616,1.5]})";
  CHECK(dump_json(*parse_json(text)) == text);
  CHECK(dump_spaced_json(*parse_json(R"({"a":[1,"x"]})")) == R"({"a": [1, "x"]})");
  TestServer server;
  HttpClient client(server.port());
  const HttpReply reply =
      client.post("/v1/completions", R"({"prompt":"x","max_tokens":123456789012345678901234567890})");
  CHECK(reply.status == 400);
  CHECK(Json::parse(reply.body)["error"]["param"] == "max_tokens");
}

}  // namespace
}  // namespace quire::test
