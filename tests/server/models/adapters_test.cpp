// Adapters over HTTP that come, go, leave the memory and come back while their model serves.
#include <catch2/catch.hpp>

#include "tests/server/models/models_server.h"

using namespace quire;
using namespace quire::test;

namespace adapters_test {

HostedModelSpec spec_with(const std::vector<std::string>& adapters, std::int64_t memory = 64 * kMegabyte) {
  ModelEntry entry = entry_of("one", "/srv/models/first");
  entry.model.adapters = adapters;
  entry.model.adapter_memory = memory;
  entry.model.adapter_updates = true;
  return spec_of(entry, {});
}

// A server with an admin listener, and adapters in /srv/models.
class AdapterServer {
 public:
  explicit AdapterServer(HostedModelSpec spec)
      : server({std::move(spec)}, kPlenty, options()), admin_(server.server().admin_port()) {}

  HttpReply load(const std::string& name, const std::string& path, bool in_place = false) {
    return admin_.post("/v1/load_lora_adapter",
                       dump_json(Json{{"lora_name", name}, {"lora_path", path}, {"load_inplace", in_place}}));
  }
  HttpReply unload(const std::string& name) {
    return admin_.post("/v1/unload_lora_adapter", dump_json(Json{{"lora_name", name}}));
  }
  HttpReply get(const std::string& path) { return admin_.get(path); }
  std::string says(const std::string& model, const Json& more = Json::object()) {
    Json body{{"model", model}, {"prompt", "x"}, {"max_tokens", 5}};
    body.update(more);
    HttpClient client(server.port());
    const HttpReply reply = client.post("/v1/completions", dump_json(body));
    return reply.status == 200 ? text_of(reply) : error_code(reply);
  }
  Json list() {
    HttpClient client(server.port());
    Json names = Json::array();
    const Json models = Json::parse(client.get("/v1/models").body);
    for (const Json& model : models["data"])
      names.push_back(model["id"]);
    return names;
  }
  std::string metrics() {
    HttpClient client(server.port());
    return client.get("/metrics").body;
  }

  ModelsServer server;

 private:
  static ServerOptions options() {
    ServerOptions options = test_options();
    options.admin_listen = "127.0.0.1:0";
    options.model_root = "/srv/models";
    return options;
  }

  HttpClient admin_;
};

std::string message_of(const HttpReply& reply) {
  return Json::parse(reply.body)["error"]["message"];
}

TEST_CASE("an adapter is loaded and unloaded while its model serves, as vLLM answers") {
  AdapterServer server(spec_with({}));
  CHECK(server.says("abcde") == "model_not_found");
  const HttpReply loaded = server.load("sql", "/srv/models/abcde");
  CHECK(loaded.status == 200);
  CHECK(loaded.body == "Success: LoRA adapter 'sql' added successfully.");
  CHECK(loaded.fields.at("content-type") == "text/plain; charset=utf-8");
  CHECK(server.says("sql") == "abcde");
  CHECK(server.says("sql:latest") == "abcde");
  CHECK(server.says("one") == "/srv/");
  CHECK(server.list() == Json{"one", "sql"});
  const HttpReply again = server.load("sql", "/srv/models/other");
  CHECK(again.status == 400);
  CHECK(
      message_of(again) ==
      "The lora adapter 'sql' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to "
      "True.");
  CHECK(server.says("sql") == "abcde");
  CHECK(server.load("sql", "/srv/models/other", true).status == 200);
  CHECK(server.says("sql") == "other");
  const HttpReply unloaded = server.unload("sql");
  CHECK(unloaded.status == 200);
  CHECK(unloaded.body == "Success: LoRA adapter 'sql' removed successfully.");
  CHECK(server.says("sql") == "model_not_found");
  CHECK(server.list() == Json{"one"});
  const HttpReply gone = server.unload("sql");
  CHECK(gone.status == 404);
  CHECK(message_of(gone) == "The lora adapter 'sql' cannot be found.");
}

TEST_CASE("a call for an adapter that cannot be followed changes nothing") {
  AdapterServer server(spec_with({"sql=/srv/models/abcde"}));
  server.server.fakes.remove_adapter("/srv/models/absent");
  const HttpReply absent = server.load("new", "/srv/models/absent");
  CHECK(absent.status == 400);
  CHECK(error_code(absent) == "invalid_adapter");
  CHECK(message_of(absent) == "/srv/models/absent: there is no such file");
  CHECK(server.load("sql", "/srv/models/absent", true).status == 400);
  CHECK(server.load("one", "/srv/models/x").status == 400);
  CHECK(error_code(server.load("one", "/srv/models/x", true)) == "model_name_taken");
  CHECK(server.load("a b", "/srv/models/x").status == 400);
  CHECK(message_of(server.load("", "/srv/models/x")) == "Both 'lora_name' and 'lora_path' must be provided.");
  CHECK(message_of(server.load("new", "")) == "Both 'lora_name' and 'lora_path' must be provided.");
  for (const char* path : {"/etc/shadow", "/srv/modelsx/two", "/srv/models/../two", "two"})
    CHECK(server.load("new", path).status == 403);
  CHECK(server.unload("one").status == 404);
  CHECK(server.unload("").status == 400);
  CHECK(server.list() == Json{"one", "sql"});
  CHECK(server.says("sql") == "abcde");
  // Refused without an admin key or the admin listener.
  HttpClient client(server.server.port());
  CHECK(client.post("/v1/load_lora_adapter", R"({"lora_name":"x","lora_path":"/srv/models/x"})").status == 403);
  CHECK(client.post("/v1/unload_lora_adapter", R"({"lora_name":"sql"})").status == 403);
}

TEST_CASE("adapters are not changed where the model does not allow it") {
  HostedModelSpec fixed = spec_with({"sql=/srv/models/abcde"});
  fixed.model.adapter_updates = false;
  AdapterServer server(fixed);
  CHECK(error_code(server.load("new", "/srv/models/x")) == "adapter_updates_disabled");
  CHECK(error_code(server.unload("sql")) == "adapter_updates_disabled");
  CHECK(server.says("sql") == "abcde");
}

TEST_CASE("a running request keeps the adapter that was unloaded or replaced") {
  AdapterServer server(spec_with({"sql=/srv/models/abcde"}));
  FakeEngine& engine = server.server.fakes.engine("/srv/models/first");
  engine.hold(true);
  HttpClient client(server.server.port());
  client.send(posted_completion(completion("sql", 5)));
  engine.wait_live(1);
  const std::weak_ptr<const Adapter> adapter = engine.last_request()->adapter;
  CHECK(server.load("sql", "/srv/models/other", true).status == 200);
  CHECK(server.unload("sql").status == 200);
  CHECK_FALSE(adapter.expired());
  engine.hold(false);
  CHECK(text_of(client.receive()) == "abcde");
}

TEST_CASE("adapters beyond their memory come back from their files, and those in use stay") {
  // Room for two of four.
  AdapterServer server(spec_with(
      {"a=/srv/models/aaaaa", "b=/srv/models/bbbbb", "c=/srv/models/ccccc", "d=/srv/models/ddddd"}, 20 * kMegabyte));
  for (int round = 0; round < 3; ++round) {
    for (const char* name : {"a", "b", "c", "d"})
      CHECK(server.says(name) == std::string(5, *name));
  }
  const Json listed = Json::parse(server.get("/admin/models").body)["data"][0]["adapters"];
  REQUIRE(listed.size() == 4);
  CHECK(listed[0] == Json{{"name", "a"}, {"path", "/srv/models/aaaaa"}, {"in_memory", false}});
  CHECK(listed[3]["in_memory"] == true);
  CHECK(server.metrics().find("quire:adapter_bytes{model_name=\"one\"} 20971520") != std::string::npos);
  CHECK(server.metrics().find("quire:adapter_memory_bytes{model_name=\"one\"} 20971520") != std::string::npos);
  FakeEngine& engine = server.server.fakes.engine("/srv/models/first");
  engine.hold(true);
  std::vector<std::unique_ptr<HttpClient>> clients;
  const auto ask = [&](const std::string& name) {
    clients.push_back(std::make_unique<HttpClient>(server.server.port()));
    clients.back()->send(posted_completion(completion(name, 5)));
  };
  ask("a");
  ask("b");
  engine.wait_live(2);
  for (const char* name : {"c", "d", "c"})
    ask(name);
  // Waiting requests do not hold up plain ones.
  ask("one");
  engine.wait_live(3);
  const std::string metrics = server.metrics();
  CHECK(metrics.find("running_lora_adapters=\"a,b\"") != std::string::npos);
  CHECK(error_code(server.load("e", "/srv/models/eeeee")) == "insufficient_memory");
  engine.hold(false);
  const char* const expected[] = {"aaaaa", "bbbbb", "ccccc", "ddddd", "ccccc", "/srv/"};
  for (std::size_t i = 0; i < clients.size(); ++i)
    CHECK(text_of(clients[i]->receive()) == expected[i]);
  // A file that is gone fails the requests for it alone.
  CHECK(server.says("a") == "aaaaa");
  CHECK(server.says("b") == "bbbbb");
  server.server.fakes.remove_adapter("/srv/models/ccccc");
  CHECK(server.says("c") == "adapter_failed");
  CHECK(server.says("d") == "ddddd");
}

TEST_CASE("requests that wait for an adapter keep their places in the queue, which refuses more of them") {
  AdapterServer server(spec_with({"a=/srv/models/aaaaa", "b=/srv/models/bbbbb"}, 10 * kMegabyte));
  QueueOptions bounds;
  bounds.max_queued_requests = 3;
  server.server.served("one")->queue->reconfigure(bounds, {});
  FakeEngine& engine = server.server.fakes.engine("/srv/models/first");
  engine.hold(true);
  HttpClient user(server.server.port());
  user.send(posted_completion(completion("a", 5)));
  engine.wait_live(1);
  HttpClient plain(server.server.port());  // the fake engine keeps its last request
  plain.send(posted_completion(completion("one", 5)));
  engine.wait_live(2);
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server.server.port()));
    clients.back()->send(posted_completion(completion("b", 5)));
  }
  while (server.metrics().find(R"(quire:refusals_total{code="server_overloaded"})") == std::string::npos) {
  }
  engine.hold(false);
  CHECK(text_of(user.receive()) == "aaaaa");
  CHECK(text_of(plain.receive()) == "/srv/");
  int num_served = 0;
  for (const auto& client : clients) {
    const HttpReply reply = client->receive();
    CHECK((reply.status == 200 || reply.status == 503));
    if (reply.status == 200) ++num_served;
  }
  CHECK(num_served >= 1);
  CHECK(num_served < 5);
}

TEST_CASE("a model that slept has its adapters again, and is woken by their names") {
  AdapterServer server(spec_with({"sql=/srv/models/abcde"}));
  CHECK(server.load("new", "/srv/models/other").status == 200);
  CHECK(server.server.sleep("one") == std::nullopt);
  CHECK(server.load("more", "/srv/models/x").status == 409);
  CHECK(server.list() == Json{"one", "sql", "new"});
  CHECK(server.says("new") == "other");
  CHECK(server.says("sql") == "abcde");
}

TEST_CASE("a name of an adapter belongs to no model and no other adapter") {
  ModelsServer server({spec_with({"sql=/srv/models/abcde"}), fake_spec("two", "second")});
  ModelEntry clash = entry_of("three", "third");
  clash.model.alias = {"sql"};
  CHECK(outcome_of([&](auto done) { server.models().load(clash, done); })->code == "model_name_taken");
  CHECK(server.load("sql", "third")->code == "model_name_taken");
  CHECK(outcome_of([&](auto done) {
          server.models().load_adapter("one", {.name = "two", .path = "/x", .is_configured = false}, true, done);
        })->code == "model_name_taken");
  for (const std::vector<std::string>& adapters :
       {std::vector<std::string>{"a=/x", "a=/y"}, std::vector<std::string>{"one=/x"}}) {
    FakeModels fakes;
    LiveModels models(fakes.opener(), machine_of(kPlenty));
    CHECK_THROWS_WITH(models.start({spec_with(adapters)}, EngineOptions{}, [] { return false; }),
                      Catch::Contains("is given twice"));
  }
  FakeModels fakes;
  LiveModels models(fakes.opener(), machine_of(kPlenty));
  CHECK_THROWS_WITH(
      models.start({spec_with({"two=/x"}), fake_spec("two", "second")}, EngineOptions{}, [] { return false; }),
      Catch::Contains("belongs to two"));
  // Nor by a reload, where an admin loaded the adapter meanwhile.
  CHECK(outcome_of([&](auto done) {
          server.models().load_adapter("one", {.name = "new", .path = "/x", .is_configured = false}, false, done);
        }) == std::nullopt);
  HostedModelSpec renamed = fake_spec("two", "second");
  renamed.aliases = {"new"};
  CHECK_THROWS_WITH(server.models().reconfigure({spec_with({"sql=/srv/models/abcde"}), renamed}, EngineOptions{}),
                    Catch::Contains("belongs to two"));
  renamed.aliases = {"newer"};
  server.models().reconfigure({spec_with({"sql=/srv/models/abcde"}), renamed}, EngineOptions{});
  // A model's aliases are its own.
  HttpClient client(server.port());
  CHECK(Json::parse(client.get("/v1/models/one").body)["aliases"] == Json::array());
  CHECK(Json::parse(client.get("/v1/models/sql").body)["parent"] == "one");
}

TEST_CASE("llama-server's list of adapters, and its field of a request") {
  AdapterServer server(spec_with({"sql=/srv/models/abcde", "law=/srv/models/other"}));
  HttpClient client(server.server.port());
  const Json list = Json::parse(client.get("/lora-adapters").body);
  REQUIRE(list.size() == 2);
  CHECK(list[1]["id"] == 1);
  CHECK(list[1]["name"] == "law");
  CHECK(list[1]["path"] == "other");
  CHECK(list[1]["scale"] == 0.0);
  CHECK(client.post("/lora-adapters", R"([{"id":0,"scale":1}])").status == 400);
  const auto with = [&](const Json& lora) { return server.says("one", Json{{"lora", lora}}); };
  CHECK(with(Json::array()) == "/srv/");
  CHECK(with(Json::array({Json{{"id", 1}, {"scale", 1.0}}})) == "other");
  CHECK(with(Json::array({Json{{"id", 0}, {"scale", 1}}, Json{{"id", 1}, {"scale", 0}}})) == "abcde");
  CHECK(with(Json::array({Json{{"id", 0}, {"scale", 0.5}}})) == "invalid_value");
  CHECK(with(Json::array({Json{{"id", 2}, {"scale", 1}}})) == "invalid_value");
  CHECK(with(Json::array({Json{{"id", 0}, {"scale", 1}}, Json{{"id", 1}, {"scale", 1}}})) == "invalid_value");
  CHECK(with("sql") != "/srv/");
  CHECK(server.says("law", Json{{"lora", Json::array({Json{{"id", 0}, {"scale", 1}}})}}) == "invalid_value");
}

}  // namespace adapters_test
