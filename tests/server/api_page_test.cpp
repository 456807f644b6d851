#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>
#include <set>

#include "server/api/common/json.h"
#include "tests/server/test_server.h"
#include "tests/support/material.h"

using namespace quire;
using namespace quire::test;

namespace {

struct Row {
  std::string path;
  std::string inside;  // the member that the field is in; empty: the body
  std::string field;
  bool supported;
  Json example;
};

// The rows of server/API.md's field tables, once for each path that their heading names.
std::vector<Row> read_rows() {
  std::vector<Row> rows;
  std::vector<std::string> paths;
  std::string inside;
  const std::regex heading(R"(^## .*: (?:(\w+) of )?POST (.+)$)");
  const std::regex name(R"([^, ]+)");
  const std::regex row(R"(^\| (\w+) \| (supported|refused) \| `(.*)` \|)");
  for (const std::string& line : read_lines(source_folder() / "server/API.md")) {
    std::smatch match;
    if (std::regex_search(line, match, heading)) {
      inside = match[1];
      const std::string listed = match[2];
      paths.assign(std::sregex_token_iterator(listed.begin(), listed.end(), name), {});
    }
    if (!std::regex_search(line, match, row)) continue;
    for (const std::string& path : paths)
      rows.push_back({path, inside, match[1], match[2] == "supported", Json::parse(match[3].str())});
  }
  return rows;
}

Json minimal(const std::string& path) {
  const Json question{{"role", "user"}, {"content", "x"}};
  if (path == "/v1/messages") return {{"max_tokens", 5}, {"messages", Json::array({question})}};
  if (path == "/v1/chat/completions") return {{"messages", Json::array({{{"role", "user"}, {"content", "x"}}})}};
  if (path == "/v1/rerank") return {{"query", "x"}, {"documents", {"x"}}};
  if (path == "/v1/score") return {{"text_1", "x"}, {"text_2", "x"}};
  if (path == "/api/chat") return {{"messages", Json::array({question})}};
  const std::set<std::string> prompted = {"/v1/completions", "/completion", "/api/generate", "/api/embeddings"};
  return {{prompted.count(path) != 0 ? "prompt" : "input", "x"}};
}

}  // namespace

TEST_CASE("every field of the API page behaves as its row says") {
  TestServer server({}, test_options(), [](ServedModel& model) { model.tasks.num_labels = 2; });
  HttpClient client(server.port());
  const auto rows = read_rows();
  CHECK(rows.size() > 100);
  for (const Row& row : rows) {
    INFO(row.path << " " << row.field);
    Json body = minimal(row.path);
    (row.inside.empty() ? body : body[row.inside])[row.field] = row.example;
    const HttpReply reply = client.post(row.path, dump_json(body));
    INFO(reply.body);
    CHECK(reply.status == (row.supported ? 200 : 400));
    const auto warning = reply.fields.find("x-quire-warning");
    const bool is_misspelt =
        warning != reply.fields.end() && warning->second.find("unknown field") != std::string::npos;
    CHECK(!is_misspelt);
    if (row.supported || reply.status != 400) continue;
    const Json error = Json::parse(reply.body)["error"];
    // Anthropic's and Ollama's errors name a field in their message only.
    const bool is_ollama = row.path.starts_with("/api/");
    if (row.path == "/v1/messages" || is_ollama) {
      const auto message = (is_ollama ? error : error["message"]).get<std::string>();
      CHECK(message.find(row.field + "'") != std::string::npos);
    } else {
      CHECK(error["param"] == row.field);
    }
  }
}

TEST_CASE("every field that the code reads is on the API page") {
  std::set<std::string> listed = {"stream_options", "top_logprobs", "input_prefix", "input_suffix", "input_extra"};
  for (const Row& row : read_rows())
    listed.insert(row.field);
  const std::regex read(R"(\breader_?\.\w+\(\s*\"([a-z_]+)\")");
  // Their fields are llama-server's and vLLM's own.
  const std::set<std::string> elsewhere = {"text_endpoints.cpp"};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_folder() / "server/api")) {
    if (entry.path().extension() != ".cpp" || elsewhere.count(entry.path().filename().string()) != 0) continue;
    const std::string source = read_file(entry.path());
    for (std::sregex_iterator match(source.begin(), source.end(), read), end; match != end; ++match) {
      INFO(entry.path().filename() << ": " << (*match)[1]);
      CHECK(listed.count((*match)[1]) == 1);
    }
  }
}
