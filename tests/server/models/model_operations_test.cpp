#include <catch2/catch.hpp>
#include <map>
#include <thread>

#include "server/admin/handlers.h"
#include "server/api/common/operation.h"
#include "server/run/admin_task.h"
#include "tests/server/models/models_server.h"

using namespace quire;
using namespace quire::test;

TEST_CASE("what does not fit into memory is refused with the numbers, and in place it may fit") {
  // 100 MiB of weights, 1 of activations, 16 of KV and the process's own 192.
  constexpr std::uint64_t kOne = (100 + 1 + 16 + 192) * kMegabyte;
  ModelsServer server({fake_spec("one", "first")}, 2 * kOne - 1);
  const auto second = server.load("two", "second");
  REQUIRE(second);
  CHECK(second->kind == ErrorKind::kNoMemory);
  CHECK(second->message.find("'two'") != std::string::npos);
  CHECK(second->message.find("kv_cache.memory is 16.0 MiB beside 293.0 MiB") != std::string::npos);
  CHECK(server.models().report().size() == 1);
  const auto beside = server.replace("one", "other");
  REQUIRE(beside);
  CHECK(beside->kind == ErrorKind::kNoMemory);
  CHECK(beside->message.find("in_place") != std::string::npos);
  HttpClient client(server.port());
  CHECK(text_of(client.post("/v1/completions", completion("one", 5))) == "first");
  CHECK(server.replace("one", "other", true) == std::nullopt);
  CHECK(text_of(client.post("/v1/completions", completion("one", 5))) == "other");
  // An invalid model is detected before the old one goes; a later failure brings the old one back.
  CHECK(server.replace("one", "missing", true)->code == "invalid_model");
  CHECK(server.fakes.num_loads() == 2);
  CHECK(server.replace("one", "broken", true)->code == "invalid_model");
  CHECK(text_of(client.post("/v1/completions", completion("one", 5))) == "other");
  // Sleeping models leave room.
  CHECK(server.sleep("one") == std::nullopt);
  CHECK(server.load("two", "second") == std::nullopt);
  CHECK(client.post("/v1/completions", completion("one", 5)).status == 503);
}

TEST_CASE("a sleeping model that lacks room takes it from the idle one that was used least recently") {
  constexpr std::uint64_t kOne = (100 + 1 + 16 + 192) * kMegabyte;
  ModelsServer server({fake_spec("one", "first"), fake_spec("two", "second")}, 3 * kOne - 1);
  HttpClient client(server.port());
  CHECK(server.sleep("one") == std::nullopt);
  CHECK(server.load("three", "third") == std::nullopt);
  CHECK(text_of(client.post("/v1/completions", completion("three", 5))) == "third");
  CHECK(server.models().sleep_idle(Clock::now()).has_value());  // notes what worked
  CHECK(text_of(client.post("/v1/completions", completion("two", 6))) == "second");
  CHECK(server.models().sleep_idle(Clock::now()).has_value());
  CHECK(text_of(client.post("/v1/completions", completion("one", 5))) == "first");
  CHECK(server.state("one") == ModelState::kReady);
  CHECK(server.state("two") == ModelState::kReady);
  CHECK(server.state("three") == ModelState::kSleeping);
  // Models that are in use keep their memory.
  std::vector<std::unique_ptr<HttpClient>> streams;
  for (const auto& [name, path] : {std::pair("one", "first"), std::pair("two", "second")}) {
    server.fakes.engine(path).hold(true);
    streams.push_back(std::make_unique<HttpClient>(server.port()));
    streams.back()->send(posted_completion(completion(name, 5, true)));
    server.fakes.engine(path).wait_live(1);
  }
  CHECK(client.post("/v1/completions", completion("three", 5)).status == 503);
  server.fakes.engine("first").hold(false);
  server.fakes.engine("second").hold(false);
  for (const auto& stream : streams)
    CHECK(sse_data(stream->receive().body).back() == "[DONE]");
  CHECK(server.state("one") == ModelState::kReady);
  CHECK(server.state("two") == ModelState::kReady);
}

TEST_CASE("operations are done at once where nothing is left to do, and refused where they cannot be") {
  ModelsServer server({fake_spec("one", "first"), fake_spec("two", "/usr", false)}, 100 * kPlenty);
  CHECK(server.load("one", "first") == std::nullopt);
  CHECK(server.load("one", "") == std::nullopt);
  CHECK(server.load("one", "second")->code == "model_ready");
  CHECK(server.load("one", "second")->kind == ErrorKind::kConflict);
  CHECK(server.load("three", "")->kind == ErrorKind::kNotFound);
  CHECK(server.load("three", "missing")->code == "invalid_model");
  CHECK(server.sleep("two") == std::nullopt);
  CHECK(server.unload("three")->kind == ErrorKind::kNotFound);
  CHECK(server.replace("three", "x")->kind == ErrorKind::kNotFound);
  ModelEntry clash = entry_of("three", "third");
  clash.model.alias = {"one"};
  CHECK(outcome_of([&](auto done) { server.models().load(clash, done); })->code == "model_name_taken");
  CHECK(server.unload("two") == std::nullopt);
  CHECK(server.sleep("two")->code == "model_unloaded");
  const auto asks = [&](auto done) { server.models().wake_for("two", "", 0, std::move(done)); };
  CHECK(outcome_of(asks)->param == "model");  // the field of the request
  CHECK(server.replace("two", "x")->code == "model_unloaded");
  // A model that an admin's call added is removed with it.
  CHECK(server.load("three", "third") == std::nullopt);
  CHECK(server.models().report().size() == 3);
  CHECK(server.unload("three") == std::nullopt);
  CHECK(server.models().report().size() == 2);
  server.fakes.hold_loads();
  DoneWaiter first;
  DoneWaiter second;
  server.models().load(entry_of("four", "fourth"), first.done());
  server.models().load(entry_of("four", "fourth"), second.done());
  CHECK(server.replace("four", "x")->code == "model_busy");
  server.fakes.release_loads();
  CHECK(first.wait() == std::nullopt);
  CHECK(second.wait() == std::nullopt);
  for (std::size_t i = server.models().report().size(); i < kMostModels; ++i)
    CHECK(server.load("m" + std::to_string(i), "x") == std::nullopt);
  CHECK(server.load("one-too-many", "x")->code == "too_many_models");
}

TEST_CASE("unloading gives up a load that is under way, and its memory is back when it says so") {
  constexpr std::uint64_t kTwo = 2 * (100 + 1 + 16 + 192) * kMegabyte;
  ModelsServer server({fake_spec("one", "first"), fake_spec("two", "/usr", false), fake_spec("three", "/etc", false)},
                      kTwo);
  server.fakes.hold_loads();
  HttpClient client(server.port());
  client.send(posted_completion(completion("two", 4)));
  server.fakes.wait_loading(2);
  DoneWaiter loader;
  server.models().load(entry_of("two", "/usr"), loader.done());
  DoneWaiter queued;
  server.models().load(entry_of("three", "/etc"), queued.done());
  // The load that waits for the other ends at once, the one under way as soon as the loader checks.
  CHECK(server.unload("three") == std::nullopt);
  CHECK(queued.wait()->code == "model_load_cancelled");
  CHECK(server.state("two") == ModelState::kWaking);
  CHECK(server.unload("two") == std::nullopt);
  CHECK(loader.wait()->code == "model_load_cancelled");
  CHECK(client.receive().status == 404);
  CHECK(server.state("two") == ModelState::kUnloaded);
  CHECK(server.state("three") == ModelState::kUnloaded);
  CHECK(client.post("/v1/completions", completion("three", 4)).status == 404);
  server.fakes.release_loads();
  CHECK(server.fakes.num_loads() == 1);
  CHECK(server.load("two", "") == std::nullopt);
  CHECK(text_of(client.post("/v1/completions", completion("two", 4))) == "/usr");
  CHECK(text_of(client.post("/v1/completions", completion("one", 5))) == "first");
}

TEST_CASE("a model that is being loaded is put to sleep at once, unless requests wait for it") {
  ModelsServer server({fake_spec("one", "first"), fake_spec("two", "/usr", false), fake_spec("three", "/etc", false)});
  server.fakes.hold_loads();
  DoneWaiter woken;
  server.models().wake("two", woken.done());
  server.fakes.wait_loading(2);
  DoneWaiter queued;
  server.models().load(entry_of("three", "/etc"), queued.done());
  CHECK(server.sleep("three") == std::nullopt);
  CHECK(queued.wait()->code == "model_load_cancelled");
  CHECK(server.sleep("two") == std::nullopt);
  CHECK(woken.wait()->code == "model_load_cancelled");
  CHECK(server.state("two") == ModelState::kSleeping);
  HttpClient client(server.port());
  client.send(posted_completion(completion("two", 4)));
  server.fakes.wait_loading(3);
  CHECK(server.sleep("two")->code == "model_busy");
  server.fakes.release_loads();
  CHECK(text_of(client.receive()) == "/usr");
  CHECK(server.sleep("two") == std::nullopt);
}

TEST_CASE("unloading gives up the replacement that is being loaded beside it") {
  ModelsServer server({fake_spec("one", "old")});
  server.fakes.hold_loads();
  DoneWaiter replaced;
  server.models().replace("one", "new", false, replaced.done());
  server.fakes.wait_loading(2);
  CHECK(server.unload("one") == std::nullopt);
  CHECK(replaced.wait()->code == "model_load_cancelled");
  CHECK(server.fakes.num_alive() == 0);
  server.fakes.release_loads();
  CHECK(server.load("one", "") == std::nullopt);
  HttpClient client(server.port());
  CHECK(text_of(client.post("/v1/completions", completion("one", 3))) == "old");
}

TEST_CASE("a drain gives up the loads that no request waits for") {
  ModelsServer server({fake_spec("one", "old"), fake_spec("two", "/usr", false), fake_spec("three", "/etc", false)},
                      100 * kPlenty);
  server.fakes.hold_loads();
  DoneWaiter woken;
  server.models().load(entry_of("three", "/etc"), woken.done());
  server.fakes.wait_loading(2);
  HttpClient waiting(server.port());
  waiting.send(posted_completion(completion("two", 4)));
  while (server.state("two") != ModelState::kWaking)
    std::this_thread::yield();
  DoneWaiter replaced;
  server.models().replace("one", "new", false, replaced.done());
  server.models().abandon_loads();
  for (DoneWaiter* told : {&woken, &replaced}) {
    const auto error = told->wait();
    REQUIRE(error);
    CHECK(error->kind == ErrorKind::kUnavailable);
    CHECK(error->code == "server_draining");
  }
  server.fakes.release_loads();
  CHECK(text_of(waiting.receive()) == "/usr");
  CHECK(server.state("three") == ModelState::kSleeping);
  CHECK(text_of(waiting.post("/v1/completions", completion("one", 3))) == "old");
  CHECK(server.fakes.num_loads() == 2);
}

TEST_CASE("a trace shows the engines of all models that are ready, one at a time") {
  ModelsServer server({fake_spec("one", "first"), fake_spec("two", "second"), fake_spec("three", "/etc", false)});
  ServerState& state = server.server().state();
  Call call;
  call.query = "seconds=1";
  const auto task = admin_trace(state, call);
  REQUIRE(task);
  const auto second = admin_trace(state, call);
  REQUIRE_FALSE(second);
  CHECK(second.error().code == "trace_running");
  std::int64_t num_tokens = 4;
  for (const ModelReport& report : server.models().report()) {
    StepRecord step;
    step.began = Clock::now();
    step.num_tokens = num_tokens++;
    if (report.entry.running) report.entry.running->step_trace()->add(step);
  }
  const Json events = Json::parse(task->finish().value())["traceEvents"];
  std::map<std::string, int> processes;
  std::map<int, int> tokens;
  for (const Json& event : events) {
    if (event["name"] == "process_name") processes[event["args"]["name"]] = event["pid"];
    if (event["name"] == "step") tokens[event["pid"]] = event["args"]["tokens"];
  }
  CHECK(processes.size() == 3);
  REQUIRE(tokens.size() == 2);
  CHECK(tokens[processes["engine of one"]] == 4);
  CHECK(tokens[processes["engine of two"]] == 5);
  // Another trace may begin now, and a running trace keeps no model alive.
  const auto next = admin_trace(state, call);
  REQUIRE(next);
  CHECK(server.unload("two") == std::nullopt);
  CHECK(next->finish().value().find("engine of two") == std::string::npos);
}

TEST_CASE("the memory of several models is one plan, which names them where it does not fit") {
  const MemoryNeeds needs{.weight_bytes = 100 * kMegabyte,
                          .activation_bytes = kMegabyte,
                          .kv_block_bytes = kMegabyte,
                          .useful_kv_tokens = 16 * 100};
  const MachineMemory machine{1024 * kMegabyte, "the machine"};
  const auto megabytes = [](std::uint64_t count) { return static_cast<std::int64_t>(count * kMegabyte); };
  std::vector<KvClaim> claims = {{"big", 0, 3.0, needs}, {"small", 0, 1.0, needs}};
  // An explicit budget is divided by the shares, and no model gets more than it can use.
  CHECK(share_kv(claims, megabytes(40), 16, machine) == std::vector{megabytes(30), megabytes(10)});
  CHECK(share_kv(claims, megabytes(200), 16, machine) == std::vector{megabytes(100), megabytes(50)});
  // Without a budget it is 40% of the memory that the models leave: 1024 - 2 * 293 = 438.
  const auto by_default = share_kv(claims, 0, 16, machine);
  CHECK(by_default[0] == megabytes(100));
  CHECK(by_default[1] / megabytes(1) == 43);
  claims.push_back({"own", megabytes(5), 1.0, std::nullopt});
  CHECK(share_kv(claims, megabytes(45), 16, machine) == std::vector{megabytes(30), megabytes(10), megabytes(5)});
  CHECK_THROWS_WITH(
      share_kv(claims, megabytes(4), 16, machine),
      Catch::Contains("big: KV pool nothing left, weights 100.0 MiB") && Catch::Contains("own: KV pool 5.0 MiB"));
  claims = {{"big", megabytes(1) << 20, 1.0, needs}, {"small", 0, 1.0, needs}};
  CHECK_THROWS_WITH(share_kv(claims, 0, 16, machine),
                    Catch::Contains("big: KV pool 1.0 TiB") && Catch::Contains("the machine has 1.0 GiB left"));
  FakeModels fakes;
  LiveModels models(fakes.opener(), machine_of(500 * kMegabyte));
  CHECK_THROWS_AS(models.start({fake_spec("one", "a"), fake_spec("two", "b")}, EngineOptions{}, [] { return false; }),
                  MemoryShortage);
  CHECK(fakes.num_loads() == 0);
}

TEST_CASE("models on a GPU fit the host's memory together, and a part is free again when its model goes") {
  FakeModels fakes;
  fakes.host_bytes = 200 * kMegabyte;
  LiveModels models(fakes.opener(), machine_of(kPlenty), machine_of(500 * kMegabyte));
  const auto load = [&](const std::string& name) {
    return outcome_of([&](auto done) { models.load(entry_of(name, name), done); });
  };
  models.start({fake_spec("one", "one"), fake_spec("two", "two")}, EngineOptions{}, [] { return false; });
  const auto refused = load("three");
  REQUIRE(refused);
  CHECK(refused->kind == ErrorKind::kNoMemory);
  CHECK(refused->message.find("needs 200.0 MiB of the host's memory") != std::string::npos);
  CHECK(refused->message.find("has 100.0 MiB left") != std::string::npos);
  CHECK(outcome_of([&](auto done) { models.replace("one", "other", true, done); }) == std::nullopt);
  CHECK(outcome_of([&](auto done) { models.unload("two", done); }) == std::nullopt);
  CHECK(load("three") == std::nullopt);
}

TEST_CASE("a reload changes names and bounds, and says which operation adds, removes or moves a model") {
  const HostedModelSpec one = fake_spec("one", "first");
  const HostedModelSpec two = fake_spec("two", "second");
  ModelsServer server({one, two});
  HttpClient client(server.port());
  HostedModelSpec renamed = two;
  renamed.aliases = {"zwei"};
  server.models().reconfigure({one, renamed}, {});
  CHECK(text_of(client.post("/v1/completions", completion("zwei", 6))) == "second");
  const auto refused = [&](const std::vector<HostedModelSpec>& specs, const std::string& why) {
    CHECK_THROWS_WITH(server.models().reconfigure(specs, {}), Catch::Contains(why));
  };
  HostedModelSpec moved = two;
  moved.model.path = "third";
  HostedModelSpec broken = one;
  broken.model.tool_format = "unknown";
  HostedModelSpec larger = two;
  larger.kv_memory *= 2;
  refused({one, two, fake_spec("three", "x")}, "'three' is new: POST /admin/models/load");
  refused({one}, "'two' is served, and missing from the configuration: POST /admin/models/unload");
  refused({one, moved}, "POST /admin/models/replace");
  refused({broken, two}, "there is no format 'unknown'");
  refused({one, larger}, "'two' cannot change its memory");
  // None of these took effect in part.
  CHECK(text_of(client.post("/v1/completions", completion("zwei", 6))) == "second");
  // A reload may confirm changes that operations made first.
  CHECK(server.replace("two", "third") == std::nullopt);
  CHECK(server.load("three", "x") == std::nullopt);
  server.models().reconfigure({one, moved, fake_spec("three", "x")}, {});
  CHECK(server.unload("one") == std::nullopt);
  server.models().reconfigure({moved, fake_spec("three", "x")}, {});
  CHECK(client.post("/v1/completions", completion("one", 5)).status == 404);
}

TEST_CASE("the admin's pages move models for admins only") {
  ServerOptions options = test_options();
  options.admin_listen = "127.0.0.1:0";
  ModelsServer server({fake_spec("one", "first")}, kPlenty, options);
  HttpClient client(server.port());
  for (const char* path : {"load", "unload", "sleep", "wake", "replace"}) {
    const HttpReply reply = client.post("/admin/models/" + std::string(path), R"({"name":"one"})");
    CHECK(reply.status == 403);
    CHECK(error_code(reply) == "admin_closed");
  }
  CHECK(client.get("/admin/models").status == 403);
  HttpClient admin(server.server().admin_port());
  const auto ask = [&](const std::string& path, const Json& body) { return admin.post(path, dump_json(body)); };
  const HttpReply loaded = ask("/admin/models/load", {{"name", "two"},
                                                      {"path", "second"},
                                                      {"aliases", {"zwei"}},
                                                      {"kv_memory", 16 * kMegabyte},
                                                      {"sleep_after", 600}});
  CHECK(loaded.status == 200);
  CHECK(Json::parse(loaded.body)["state"] == "ready");
  CHECK(text_of(client.post("/v1/completions", completion("zwei", 6))) == "second");
  CHECK(Json::parse(ask("/admin/models/sleep", {{"name", "two"}}).body)["state"] == "sleeping");
  CHECK(Json::parse(ask("/admin/models/wake", {{"name", "two"}}).body)["state"] == "ready");
  CHECK(Json::parse(
            ask("/admin/models/replace", {{"name", "two"}, {"path", "third"}, {"mode", "in_place"}}).body)["path"] ==
        "third");
  const Json list = Json::parse(admin.get("/admin/models").body)["data"];
  REQUIRE(list.size() == 2);
  CHECK(list[1]["name"] == "two");
  CHECK(list[1]["sleep_after"] == 600.0);
  CHECK(list[1]["memory_bytes"] == (100 + 1 + 16 + 192) * kMegabyte);
  server.fakes.hold_loads();
  const HttpReply accepted = ask("/admin/models/load", {{"name", "three"}, {"path", "x"}, {"wait", false}});
  CHECK(accepted.status == 202);
  CHECK(Json::parse(accepted.body)["state"] == "loading");
  CHECK(ask("/admin/models/replace", {{"name", "three"}, {"path", "y"}, {"wait", false}}).status == 409);
  server.fakes.release_loads();
  CHECK(ask("/admin/models/wake", {{"name", "three"}}).status == 200);
  // Paths of llama-server's router and of vLLM.
  CHECK(Json::parse(ask("/models/unload", {{"model", "three"}}).body)["success"] == true);
  CHECK(Json::parse(ask("/models/load", {{"model", "two"}}).body)["success"] == true);
  CHECK(admin.post("/sleep?level=1", "").status == 200);
  CHECK(server.state("one") == ModelState::kSleeping);
  CHECK(Json::parse(admin.get("/is_sleeping").body)["is_sleeping"] == false);
  CHECK(admin.post("/wake_up", "").status == 200);
  CHECK(server.state("one") == ModelState::kReady);

  const auto refused = [&](const std::string& path, const Json& body, int status, const std::string& param) {
    const HttpReply reply = ask(path, body);
    CHECK(reply.status == status);
    CHECK(Json::parse(reply.body)["error"]["param"] == param);
  };
  refused("/admin/models/load", {{"name", "a b"}, {"path", "x"}}, 400, "name");
  refused("/admin/models/load", {{"name", "a"}, {"path", 5}}, 400, "path");
  refused("/admin/models/load", {{"name", "a"}, {"path", "x"}, {"kv_memory", 0}}, 400, "kv_memory");
  refused("/admin/models/load", {{"name", "a"}, {"path", "x"}, {"preload", 1}}, 400, "preload");
  refused("/admin/models/load", {{"name", "a"}, {"path", "x"}, {"aliases", {"b c"}}}, 400, "aliases");
  refused("/admin/models/replace", {{"name", "one"}}, 400, "path");
  refused("/admin/models/replace", {{"name", "one"}, {"path", "x"}, {"mode", "quickly"}}, 400, "mode");
  refused("/admin/models/unload", {{"name", "unknown"}}, 404, "name");
}
