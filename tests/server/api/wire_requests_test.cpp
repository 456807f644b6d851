// Recorded requests of real clients, and those of OpenAI's own library with every optional parameter: each is accepted,
// or refused by a field that it has; without the refused fields it is accepted.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "server/api/common/json.h"
#include "server/api/reference/operation_table.h"
#include "tests/server/test_server.h"
#include "tests/support/material.h"

using namespace quire;
using namespace quire::test;

namespace wire_requests {

// The field at the body's top that an error's param is in: "messages" of "messages[0].content".
std::string top_field(const std::string& param) {
  return param.substr(0, param.find_first_of(".["));
}

// Returns whether the reference documents the field as refused, or as accepted under a condition.
bool may_be_refused(const std::string& path, const std::string& field) {
  for (const reference::FieldTable* table : fields::field_tables()) {
    const auto paths = fields::parts_of(table->paths, ", ");
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) continue;
    for (const reference::Field& row : table->rows) {
      if (row.name != field) continue;
      if (row.support == reference::Support::kRefused || row.support == reference::Support::kConditional) return true;
    }
  }
  return false;
}

// Sends the body, and again without each field that it is refused for; those fields, with the values they had.
std::map<std::string, Json> refused_fields(HttpClient& client, const std::string& path, Json body) {
  std::map<std::string, Json> refused;
  for (int attempt = 0; attempt < 40; ++attempt) {
    const HttpReply reply = client.post(path, dump_json(body));
    INFO(dump_json(body));
    INFO(reply.body);
    if (reply.status == 200) return refused;
    REQUIRE(reply.status == 400);
    const std::string field = top_field(Json::parse(reply.body)["error"]["param"].get<std::string>());
    REQUIRE(body.contains(field));
    refused[field] = body[field];
    body.erase(field);
  }
  FAIL("it is refused without an end");
  return refused;
}

TestServer any_model() {
  return TestServer(says("hello"), test_options(), [](ServedModel& model) { model.aliases.emplace_back("m"); });
}

TEST_CASE("recorded requests of clients are accepted") {
  QUIRE_REQUIRE_MATERIAL(file, "openai-api/client-wire-requests.jsonl");
  TestServer server = any_model();
  HttpClient client(server.port());
  std::size_t count = 0;
  for (const std::string& line : read_lines(file)) {
    const Json request = Json::parse(line);
    const auto path = request["path"].get<std::string>();
    INFO(request["id"] << " " << request["client"] << " " << request["scenario"]);
    ++count;
    if (request["method"] == "GET") {
      CHECK(client.get(path).status == 200);
      continue;
    }
    CHECK(refused_fields(client, path, request["body"]).empty());
  }
  CHECK(count == 30);
}

TEST_CASE("requests with every optional parameter are accepted but for fields that the reference refuses") {
  QUIRE_REQUIRE_MATERIAL(file, "openai-api/openai-node-request-bodies.jsonl");
  TestServer server = any_model();
  HttpClient client(server.port());
  // Values that stand for a text of the right kind and cannot be honoured as they are.
  const std::map<std::string, Json> placeholders = {
      {"logit_bias", {{"foo", 0}}}, {"max_tokens", 0}, {"max_completion_tokens", 0}};
  // Each is accepted, but not beside another that the body has, too: functions, and suffix.
  const std::set<std::string> excluded = {"tools", "tool_choice", "echo"};
  const std::map<std::string, std::string> paths = {{"chat", "/v1/chat/completions"},
                                                    {"completions", "/v1/completions"},
                                                    {"embeddings", "/v1/embeddings"},
                                                    {"responses", "/v1/responses"}};
  std::size_t count = 0;
  for (const std::string& line : read_lines(file)) {
    const Json request = Json::parse(line);
    const auto resource = request["resource"].get<std::string>();
    const auto found = paths.find(resource.substr(0, resource.find_first_of("/.")));
    Json body = request["body"];
    const bool asks = body.contains("messages") || body.contains("prompt") || body.contains("input");
    if (found == paths.end() || !asks) continue;  // lists and the like
    ++count;
    INFO(request["id"]);
    body["model"] = "m";
    for (const auto& [field, value] : refused_fields(client, found->second, body)) {
      INFO(field << " " << dump_json(value));
      const auto placeholder = placeholders.find(field);
      CHECK((may_be_refused(found->second, field) || excluded.count(field) != 0 ||
             (placeholder != placeholders.end() && placeholder->second == value)));
    }
  }
  CHECK(count >= 6);
}

}  // namespace wire_requests
