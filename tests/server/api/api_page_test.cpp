// The reference's tables compared with the page, the routes and the endpoints: examples of every row, and values
// outside its type and range.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>
#include <set>

#include "server/api/batches/batches.h"
#include "server/api/common/json.h"
#include "server/api/fields/chat.h"
#include "server/api/fields/completions.h"
#include "server/api/fields/generation.h"
#include "server/api/fields/pooling.h"
#include "server/api/reference/pages.h"
#include "server/router.h"
#include "server/run/admin_task.h"
#include "tests/server/test_server.h"
#include "tests/support/material.h"

using namespace quire;
using namespace quire::test;
using namespace quire::reference;

namespace api_page {

struct Place {
  const FieldTable* table;
  std::string path;
};

// Pages of administrators act on models, batches need a folder, and what has an id is made first: their own tests have
// them.
bool is_asked(std::string_view path) {
  return !path.starts_with("/admin/") && !path.ends_with("_lora_adapter") && path != "/v1/batches" &&
         path.find('{') == std::string_view::npos;
}

std::vector<Place> places() {
  std::vector<Place> list;
  for (const FieldTable* table : fields::field_tables()) {
    for (const std::string_view path : fields::parts_of(table->paths, ", ")) {
      if (is_asked(path)) list.push_back({table, std::string(path)});
    }
  }
  return list;
}

Json minimal(const std::string& path) {
  const Json question{{"role", "user"}, {"content", "x"}};
  if (path == "/v1/messages") return {{"max_tokens", 5}, {"messages", Json::array({question})}};
  if (path == "/v1/chat/completions") return {{"messages", Json::array({question})}};
  if (path == "/v1/rerank") return {{"query", "x"}, {"documents", {"x"}}};
  if (path == "/v1/score") return {{"text_1", "x"}, {"text_2", "x"}};
  if (path == "/api/chat") return {{"messages", Json::array({question})}};
  if (path == "/detokenize") return {{"tokens", {97}}};
  if (path == "/inference/v1/generate") return {{"token_ids", {97}}};
  const std::set<std::string> prompted = {"/v1/completions", "/completion", "/api/generate",
                                          "/api/embeddings", "/tokenize",   "/infill"};
  return {{prompted.count(path) != 0 ? "prompt" : "input", "x"}};
}

// Some fields stand in the place of others.
Json minimal_beside(const std::string& path, std::string_view field) {
  if (path == "/v1/rerank" && (field == "texts" || field == "return_text")) return {{"query", "x"}, {"texts", {"x"}}};
  if (path == "/v1/score" && (field == "queries" || field == "documents"))
    return {{"queries", "x"}, {"documents", "x"}};
  return minimal(path);
}

Json body_with(const Place& place, std::string_view field, const Json& value) {
  Json body = minimal_beside(place.path, field);
  if (field == "messages" && !value.is_null()) body.erase("input");  // either names the texts
  Json& target = place.table->inside.empty() ? body : body[std::string(place.table->inside)];
  target[std::string(field)] = value;
  return body;
}

TestServer classifying_server() {
  return TestServer({}, test_options(), [](ServedModel& model) { model.tasks.num_labels = 2; });
}

// Anthropic's and Ollama's errors name a field in their message only.
bool names(const HttpReply& reply, const std::string& path, std::string_view field) {
  const Json error = Json::parse(reply.body)["error"];
  const bool is_ollama = path.starts_with("/api/");
  if (path == "/v1/messages" || is_ollama) {
    const auto message = (is_ollama ? error : error["message"]).get<std::string>();
    return message.find(std::string(field)) != std::string::npos;
  }
  // A wrong element is named by its place in the field.
  return error.value("param", "").starts_with(field);
}

// Values that the type has no room for.
std::vector<Json> wrong_values(const FieldType& type) {
  const Json all[] = {true, 1.5, "x", Json::array({1}), Json::object()};
  std::vector<Json> wrong;
  const auto add_but = [&](std::set<std::string> types) {
    for (const Json& value : all) {
      if (types.count(value.is_number() ? "number" : value.type_name()) == 0) wrong.push_back(value);
    }
  };
  switch (type.kind) {
    case Kind::kTypes: {
      const auto types = fields::parts_of(type.listed, "|");
      add_but({types.begin(), types.end()});
      break;
    }
    case Kind::kWords: wrong = {"no such word", 7}; break;
    case Kind::kOnly: break;
    case Kind::kNumber:
    case Kind::kInteger:
      wrong = {"x", Json::array(), true};
      if (type.kind == Kind::kInteger) wrong.emplace_back(0.5);
      if (type.low <= type.high) {
        wrong.emplace_back(type.low - 1.0);
        wrong.emplace_back(type.high + 1.0);
      }
      break;
    case Kind::kTexts:
    case Kind::kTextOrTexts:
      wrong = {7, Json::array({7}), Json(std::vector<std::string>(static_cast<std::size_t>(type.most) + 1, "x"))};
      break;
    case Kind::kTokenIds: wrong = {"x", Json::array({-1}), Json::array({"x"}), Json::array({1 << 30})}; break;
  }
  return wrong;
}

TEST_CASE("the API page has the reference's tables") {
  // Update it with: quire-dev api --page server/API.md
  const std::string page = read_file(source_folder() / "server/API.md");
  CHECK(page == with_tables(page));
  std::set<std::string> headings;
  for (const FieldTable* table : fields::field_tables()) {
    INFO(heading(*table));
    CHECK(page.find("\n" + heading(*table) + "\n") != std::string::npos);
    headings.insert(heading(*table));
  }
  // No table of fields stands there by hand.
  const std::regex posts(R"(^## .*: (?:\w+ of )?POST .+$)");
  for (const std::string& line : read_lines(source_folder() / "server/API.md")) {
    INFO(line);
    CHECK((!std::regex_match(line, posts) || headings.count(line) == 1));
  }
}

TEST_CASE("only the tables of a page are generated again") {
  const std::string page = "# x\n\n## Text of tokens: POST /detokenize\n\nword\n\n| old |\n| - |\n| a |\n\n| kept |\n";
  const std::string made = with_tables(page);
  CHECK(
      made.starts_with("# x\n\n## Text of tokens: POST /detokenize\n\nword\n\n| field | | type | example | note |\n"));
  CHECK(made.find("| tokens | supported | token ids | `[97]` | required |\n") != std::string::npos);
  CHECK(made.find("old") == std::string::npos);
  CHECK(made.ends_with("|\n\n| kept |\n"));
  CHECK(with_tables(made) == made);
  CHECK(with_tables("") == "");
  CHECK(with_tables("## Other\n| a |") == "## Other\n| a |");
}

TEST_CASE("every route is in the reference, and every operation of it is a route") {
  std::set<std::pair<std::string, std::string>> documented;
  const Json document = openapi_document([](std::string_view, std::string_view) { return true; });
  for (const auto& [path, item] : document["paths"].items()) {
    for (const auto& [method, unused] : item.items()) {
      std::string name = method;
      for (char& c : name)
        c = static_cast<char>(c & ~0x20);
      const std::string concrete = std::regex_replace(path, std::regex(R"(\{\w+\})"), "x");
      INFO(name << " " << path);
      CHECK(find_route(name, concrete).status == 200);
      documented.emplace(name, std::regex_replace(path, std::regex(R"(\{.*)"), "*"));
    }
  }
  for (const Route& route : routes()) {
    if (route.path == "/" || route.path.starts_with("/ui/")) continue;
    INFO(route.method << " " << route.path);
    CHECK(documented.count({std::string(route.method), std::string(route.path)}) == 1);
  }
}

TEST_CASE("every field of the API page behaves as its row says") {
  TestServer server = classifying_server();
  HttpClient client(server.port());
  std::size_t num_rows = 0;
  for (const Place& place : places()) {
    for (const Field& row : place.table->rows) {
      ++num_rows;
      INFO(place.path << " " << row.name);
      const HttpReply reply = client.post(place.path, dump_json(body_with(place, row.name, Json::parse(row.example))));
      INFO(reply.body);
      const bool is_taken = row.support == Support::kSupported || row.support == Support::kAccepted;
      CHECK(reply.status == (is_taken ? 200 : 400));
      const auto warning = reply.fields.find("x-quire-warning");
      const bool is_misspelt =
          warning != reply.fields.end() && warning->second.find("unknown field") != std::string::npos;
      CHECK(!is_misspelt);
      const bool is_infill = place.path == "/infill";  // without this ability the refusal names no field
      if (!is_taken && reply.status == 400 && !is_infill) CHECK(names(reply, place.path, row.name));
    }
  }
  CHECK(num_rows > 300);
}

TEST_CASE("no field takes a value out of its type or range, and all take null") {
  TestServer server = classifying_server();
  HttpClient client(server.port());
  for (const Place& place : places()) {
    if (place.path == "/infill") continue;
    for (const Field& row : place.table->rows) {
      INFO(place.path << " " << row.name);
      const Json without = minimal_beside(place.path, row.name);
      const bool is_required = place.table->inside.empty() && without.contains(row.name);
      if (!is_required) CHECK(client.post(place.path, dump_json(body_with(place, row.name, nullptr))).status == 200);
      if (row.support == Support::kRefused) continue;
      for (const Json& value : wrong_values(row.type)) {
        INFO(dump_json(value));
        const HttpReply reply = client.post(place.path, dump_json(body_with(place, row.name, value)));
        INFO(reply.body);
        CHECK(reply.status == 400);
        if (reply.status == 400) CHECK(names(reply, place.path, row.name));
      }
    }
  }
}

TEST_CASE("/openapi.json is the document, as it is made") {
  TestServer server;
  HttpClient client(server.port());
  const HttpReply reply = client.get("/openapi.json");
  REQUIRE(reply.status == 200);
  CHECK(reply.fields.at("content-type").starts_with("application/json"));
  const Json document = Json::parse(reply.body);
  CHECK(document == openapi_document([](std::string_view, std::string_view) { return true; }));
  CHECK(document["openapi"] == "3.1.0");
  std::set<std::string> ids;
  for (const auto& [path, item] : document["paths"].items()) {
    for (const auto& [method, operation] : item.items()) {
      INFO(method << " " << path);
      CHECK(ids.insert(operation["operationId"].get<std::string>()).second);
      CHECK(operation["tags"].is_array());
      CHECK(operation["responses"].contains("200"));
    }
  }
}

// Names that an endpoint reads of bodies with each row's example, one at a time.
std::set<std::string_view> names_read(ModelEndpoint endpoint, const ModelTable& models, const OperationRow& operation) {
  const std::string path(fields::parts_of(operation.paths, ", ").front());
  std::set<std::string_view> names;
  for (const FieldTable* table : operation.body) {
    for (const Field& row : table->rows) {
      const std::string body = dump_json(body_with({table, path}, row.name, Json::parse(row.example)));
      auto opened = models.open(body, "");
      REQUIRE(opened.has_value());
      auto& asked = std::get<ModelCall>(*opened);
      Call call;
      call.body = body;
      static_cast<void>(endpoint(asked, call));
      names.insert(asked.reader.asked().begin(), asked.reader.asked().end());
    }
  }
  return names;
}

bool has_row(const FieldTable& table, std::string_view name) {
  return table.inside.empty() && std::ranges::find(table.rows, name, &Field::name) != table.rows.end();
}

// Readers that several APIs share ask for their fields everywhere.
bool is_shared(std::string_view name) {
  const FieldTable* tables[] = {&fields::kGenerationFields,   &fields::kChoiceFields,     &fields::kChatFields,
                                &fields::kConversationFields, &fields::kCompletionFields, &fields::kEmbeddingFields};
  return std::ranges::any_of(tables, [name](const FieldTable* table) { return has_row(*table, name); });
}

TEST_CASE("an endpoint reads the fields of its tables and no others") {
  FakeEngine engine;
  auto model = fake_model(engine.queue());
  model->tasks.num_labels = 2;
  const ModelTable models = ready_table(std::move(model));
  std::size_t num_endpoints = 0;
  for (const OperationRow& operation : operations()) {
    const std::string_view path = fields::parts_of(operation.paths, ", ").front();
    const Route* route = find_route(operation.method, path).route;
    const auto* endpoint = route == nullptr ? nullptr : std::get_if<ModelEndpoint>(&route->answer);
    if (endpoint == nullptr || operation.body.empty() || path == "/infill") continue;  // the model does not fill in
    ++num_endpoints;
    const auto names = names_read(*endpoint, models, operation);
    for (const std::string_view name : names) {
      INFO(path << " reads " << name);
      const auto has = [name](const FieldTable* table) { return has_row(*table, name); };
      CHECK((std::ranges::any_of(operation.body, has) || is_shared(name)));
    }
    for (const FieldTable* table : operation.body) {
      const auto paths = fields::parts_of(table->paths, ", ");
      if (!table->inside.empty() || std::ranges::find(paths, path) == paths.end()) continue;
      for (const Field& row : table->rows) {
        INFO(path << " does not read " << row.name);
        CHECK(names.count(row.name) == 1);
      }
    }
  }
  engine.stop();
  CHECK(num_endpoints > 20);
}

// Their handlers are no endpoints of a model: the sources show that they read each row.
TEST_CASE("the rows of administration and of batches are read") {
  std::string handlers;
  for (const char* folder : {"server/admin", "server/api/batches"}) {
    for (const auto& entry : std::filesystem::directory_iterator(source_folder() / folder))
      handlers += read_file(entry.path());
  }
  const std::regex row("inline constexpr Field (k\\w+)");
  std::size_t num_rows = 0;
  for (const std::string api : {"admin", "batches"}) {
    const std::string text = read_file(source_folder() / "server/api/fields" / (api + ".h"));
    for (std::sregex_iterator match(text.begin(), text.end(), row), end; match != end; ++match) {
      INFO(api << " " << (*match)[1]);
      CHECK(handlers.find("fields::" + api + "::" + (*match)[1].str()) != std::string::npos);
      ++num_rows;
    }
  }
  CHECK(num_rows > 25);
}

}  // namespace api_page
