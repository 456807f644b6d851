#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "server/api/common/model_table.h"
#include "tests/server/models/models_server.h"

using namespace quire;
using namespace quire::test;

TEST_CASE("several models answer by their names, and the first where none is given") {
  ModelsServer server({fake_spec("one", "first"), fake_spec("two", "second")});
  HttpClient client(server.port());
  CHECK(text_of(client.post("/v1/completions", completion("one", 5))) == "first");
  CHECK(text_of(client.post("/v1/completions", completion("two", 6))) == "second");
  CHECK(text_of(client.post("/v1/completions", R"({"prompt":"x","max_tokens":5})")) == "first");
  CHECK(client.post("/v1/completions", completion("three", 5)).status == 404);
  // Each model counts its own requests in the metrics, and a family is listed once.
  const std::string metrics = client.get("/metrics").body;
  CHECK(metrics.find("vllm:request_prompt_tokens_count{model_name=\"one\"} 2") != std::string::npos);
  CHECK(metrics.find("vllm:request_prompt_tokens_count{model_name=\"two\"} 1") != std::string::npos);
  for (const char* line :
       {"quire:encoder_seconds_total{model_name=\"one\"} 0", "quire:images_encoded_total{model_name=\"two\"} 0",
        "quire:image_cache_hits_total{level=\"rows\",model_name=\"one\"} 0"})
    CHECK(metrics.find(line) != std::string::npos);
  CHECK(metrics.find("vllm:request_params_n_count{model_name=\"two\"} 1") != std::string::npos);
  const std::string type = "# TYPE vllm:request_prompt_tokens ";
  CHECK(metrics.find(type) == metrics.rfind(type));
  const Json list = Json::parse(client.get("/v1/models").body)["data"];
  REQUIRE(list.size() == 2);
  CHECK(list[1]["id"] == "two");
  CHECK(list[1]["state"] == "ready");
  CHECK(Json::parse(client.get("/props").body)["model_alias"] == "one");
  CHECK(Json::parse(client.get("/props?model=two").body)["model_alias"] == "two");
  CHECK(Json::parse(client.get("/props?model=%74wo").body)["model_alias"] == "two");
  CHECK(client.get("/props?model=three").status == 404);
  CHECK(client.get("/lora-adapters?model=two").status == 200);
  CHECK(client.get("/lora-adapters?model=three").status == 404);
}

TEST_CASE("a request for a sleeping model wakes it, and many wake it once") {
  ModelsServer server({fake_spec("one", "first"), fake_spec("two", "/usr", false)});
  server.fakes.hold_loads();
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server.port()));
    clients.back()->send(posted_completion(completion("two", 4)));
  }
  server.fakes.wait_loading(2);
  CHECK(server.state("two") == ModelState::kWaking);
  // Waiting requests do not keep others from being served.
  HttpClient other(server.port());
  CHECK(text_of(other.post("/v1/completions", completion("one", 5))) == "first");
  CHECK(Json::parse(other.get("/v1/models/two").body)["state"] == "waking");
  server.fakes.release_loads();
  for (const auto& client : clients)
    CHECK(text_of(client->receive()) == "/usr");
  CHECK(server.fakes.num_loads() == 2);
}

TEST_CASE("a body is opened for its model, or names the one that has to be woken") {
  FakeEngine engine;
  const auto model = fake_model(engine.queue());
  TableEntry ready;
  ready.name = "one";
  ready.served = model;
  TableEntry sleeping;
  sleeping.name = "two";
  sleeping.aliases = {"second"};
  sleeping.state = ModelState::kSleeping;
  TableEntry unloaded;
  unloaded.name = "three";
  unloaded.state = ModelState::kUnloaded;
  const ModelTable table(std::vector<TableEntry>{ready, sleeping, unloaded});
  for (const char* body : {R"({"model":"one","n":3})", R"({"n":3})"}) {
    auto opened = table.open(body, "");
    REQUIRE(opened);
    ModelCall& asked = std::get<ModelCall>(*opened);
    CHECK(asked.model == model);
    CHECK(asked.reader.integer("n", 1, 5) == 3);
  }
  for (const char* body : {R"({"model":"two"})", R"({"model":"second","n":true})"}) {
    const auto opened = table.open(body, "");
    REQUIRE(opened);
    CHECK(std::get<SleepingModel>(*opened).name == "two");
  }
  for (const char* body : {R"({"model":"three"})", R"({"model":"four"})", R"({"model":2})", "[]", "", "{"})
    CHECK_FALSE(table.open(body, ""));
}

TEST_CASE("a canary gets its share of the conversations, and each stays where it is") {
  FakeEngine engine;
  TableEntry model;
  model.name = "one";
  model.served = fake_model(engine.queue());
  TableEntry canary;
  canary.name = canary_name("one");
  canary.served = fake_model(engine.queue());
  const auto versions = [&](double share, const std::string& key_name) {
    TableEntry split = model;
    split.canary_share = share;
    const ModelTable table(std::vector<TableEntry>{split, canary});
    std::vector<bool> on_canary;
    for (int i = 0; i < 1000; ++i) {
      const std::string first = R"({"role":"user","content":"question )" + std::to_string(i) + "\"}";
      const auto ask = [&](const std::string& more) {
        const std::string body = R"({"messages":[{"role":"system","content":"s"},)" + first + more + "]}";
        return std::get<ModelCall>(*table.open(body, key_name)).model == canary.served;
      };
      on_canary.push_back(ask(""));
      // The conversation's next turn.
      CHECK(ask(R"(,{"role":"assistant","content":"a"},{"role":"user","content":"and?"})") == on_canary.back());
    }
    return on_canary;
  };
  const auto count = [](const std::vector<bool>& on_canary) {
    return std::count(on_canary.begin(), on_canary.end(), true);
  };
  CHECK(count(versions(0.0, "a")) == 0);
  CHECK(count(versions(1.0, "a")) == 1000);
  const std::vector<bool> tenth = versions(0.1, "a");
  CHECK(count(tenth) > 70);  // five standard deviations
  CHECK(count(tenth) < 150);
  const std::vector<bool> half = versions(0.5, "a");
  for (std::size_t i = 0; i < half.size(); ++i)
    CHECK((half[i] || !tenth[i]));
  CHECK(versions(0.1, "b") != tenth);  // versions of another tenant
  // A canary that is not ready gets no requests.
  canary.served.reset();
  CHECK(count(versions(0.5, "a")) == 0);
}

TEST_CASE("a conversation is known by what its client calls it") {
  const auto place = [](const char* body) { return place_in_traffic(Json::parse(body), ""); };
  const double named = place(R"({"prompt_cache_key":"c1","prompt":"a"})");
  CHECK(place(R"({"prompt_cache_key":"c1","prompt":"b"})") == named);
  CHECK(place(R"({"prompt_cache_key":"c2","prompt":"a"})") != named);
  CHECK(place(R"({"metadata":{"user_id":"u"},"messages":[]})") ==
        place(R"({"metadata":{"user_id":"u"},"messages":[{"role":"user","content":"x"}]})"));
  CHECK(place(R"({"input":"x"})") == place(R"({"input":"x","max_output_tokens":3})"));
  CHECK(place(R"({"messages":"no list","input":[1,{"role":2}],"metadata":3,"user":4})") >= 0.0);
}

TEST_CASE("a request waits again where its model fell asleep after it was woken, and is refused where none wakes it") {
  FakeEngine engine(says("awake"));
  const auto model = fake_model(engine.queue());
  const auto table = [&](bool awake) {
    TableEntry entry;
    entry.name = "two";
    entry.state = awake ? ModelState::kReady : ModelState::kSleeping;
    if (awake) entry.served = model;
    return std::make_shared<const ModelTable>(std::vector<TableEntry>{entry});
  };
  const auto ask = [&](const std::function<void(Server&)>& prepare) {
    Server server(test_options());
    prepare(server);
    server.start();
    server.serve(table(false));
    HttpClient client(server.port());
    HttpReply reply = client.post("/v1/completions", completion("two", 5));
    engine.wait_live(0);
    return reply;
  };
  const HttpReply refused = ask([](Server&) {});
  CHECK(refused.status == 503);
  CHECK(error_code(refused) == "model_loading");
  std::atomic<int> num_woken{0};
  const HttpReply reply = ask([&](Server& server) {
    server.state().waker.wake = [&](const std::string& name, const std::string&, std::int64_t, const auto& told) {
      if (name == "two" && ++num_woken == 3) server.serve(table(true));
      told(std::nullopt);
    };
  });
  CHECK(text_of(reply) == "awake");
  CHECK(num_woken == 3);
}

TEST_CASE("what waits for a waking model is bounded as its queue is") {
  HostedModelSpec small = fake_spec("two", "/usr", false);
  small.engine.queue.max_queued_requests = 1;
  ModelsServer server({fake_spec("one", "first"), small});
  server.fakes.hold_loads();
  HttpClient waiting(server.port());
  waiting.send(posted_completion(completion("two", 4)));
  server.fakes.wait_loading(2);
  HttpClient refused(server.port());
  const HttpReply reply = refused.post("/v1/completions", completion("two", 4));
  CHECK(reply.status == 503);
  CHECK(error_code(reply) == "server_overloaded");
  CHECK(reply.fields.count("retry-after") == 1);
  server.fakes.release_loads();
  CHECK(text_of(waiting.receive()) == "/usr");
}

TEST_CASE("a request waits for a waking model no longer than the queue's bound, and gives up with its client") {
  HostedModelSpec impatient = fake_spec("two", "/usr", false);
  impatient.engine.queue.max_queue_time_s = 0.001;
  ModelsServer server({fake_spec("one", "first"), impatient});
  server.fakes.hold_loads();
  HttpClient client(server.port());
  const HttpReply reply = client.post("/v1/completions", completion("two", 4));
  CHECK(reply.status == 503);
  CHECK(error_code(reply) == "server_overloaded");
  {
    HttpClient gone(server.port());
    gone.send(posted_completion(completion("two", 4)));
  }
  server.fakes.release_loads();
  CHECK_FALSE(outcome_of([&](auto done) { server.models().wake("two", done); }));
  CHECK(text_of(client.post("/v1/completions", completion("two", 4))) == "/usr");
}

TEST_CASE("a model that cannot be loaded answers by name, and does not try again at once") {
  ModelsServer server({fake_spec("one", "first"), fake_spec("two", "/usr", false)});
  CHECK(server.replace("two", "broken")->code == "invalid_model");
  // The failed replacement left the previous model in place.
  CHECK_FALSE(outcome_of([&](auto done) { server.models().wake("two", done); }));
  CHECK(server.fakes.num_loads() == 2);
  CHECK(server.unload("two") == std::nullopt);
  CHECK(server.load("two", "broken")->code == "invalid_model");
  HttpClient client(server.port());
  for (int i = 0; i < 2; ++i) {
    const HttpReply reply = client.post("/v1/completions", completion("two", 4));
    CHECK(reply.status == 503);
    CHECK(error_code(reply) == "model_failed");
    CHECK(reply.body.find("'two'") != std::string::npos);
    CHECK(reply.fields.count("retry-after") == 1);
  }
  CHECK(server.state("two") == ModelState::kFailed);
  CHECK(text_of(client.post("/v1/completions", completion("one", 5))) == "first");
}

TEST_CASE("a model is unloaded after its last stream, which ends as if nothing had been") {
  ModelsServer server({fake_spec("one", "first"), fake_spec("two", "second")});
  server.fakes.engine("second").hold(true);
  HttpClient stream(server.port());
  stream.send(posted_completion(completion("two", 60, true)));
  server.fakes.engine("second").wait_live(1);
  auto held = server.served("two");
  DoneWaiter told;
  server.models().unload("two", told.done());
  CHECK(server.state("two") == ModelState::kDraining);
  HttpClient late(server.port());
  CHECK(late.post("/v1/completions", completion("two", 5)).status == 404);
  server.fakes.engine("second").hold(false);
  held.reset();
  CHECK(sse_data(stream.receive().body).back() == "[DONE]");
  CHECK(told.wait() == std::nullopt);
  CHECK(server.fakes.num_alive() == 1);
  CHECK(server.state("two") == ModelState::kUnloaded);
  CHECK(Json::parse(late.get("/v1/models").body)["data"].size() == 1);
  // Unloads it again and loads it back.
  CHECK(server.unload("two") == std::nullopt);
  CHECK(server.load("two", "") == std::nullopt);
  CHECK(text_of(late.post("/v1/completions", completion("two", 6))) == "second");
}

TEST_CASE("an idle model goes to sleep, and its next request wakes it") {
  HostedModelSpec tired = fake_spec("two", "second");
  tired.sleep_after = std::chrono::hours(1);
  ModelsServer server({fake_spec("one", "first"), tired});
  const auto now = Clock::now();
  CHECK(server.models().sleep_idle(now + std::chrono::minutes(59)).has_value());
  CHECK(server.state("two") == ModelState::kReady);
  CHECK_FALSE(server.models().sleep_idle(now + std::chrono::minutes(61)).has_value());
  server.fakes.wait_destroyed(1);
  CHECK(outcome_of([&](auto done) { server.models().sleep("two", done); }) == std::nullopt);
  CHECK(server.state("two") == ModelState::kSleeping);
  CHECK(server.state("one") == ModelState::kReady);
  HttpClient client(server.port());
  CHECK(Json::parse(client.get("/v1/models/two").body)["max_model_len"] == 2048);
  CHECK(text_of(client.post("/v1/completions", completion("two", 6))) == "second");
}

TEST_CASE("a request that comes while its model drains to sleep is answered by the model's next life") {
  ModelsServer server({fake_spec("one", "first")});
  server.fakes.engine("first").hold(true);
  HttpClient stream(server.port());
  stream.send(posted_completion(completion("one", 10, true)));
  server.fakes.engine("first").wait_live(1);
  auto held = server.served("one");
  DoneWaiter slept;
  server.models().sleep("one", slept.done());
  HttpClient next(server.port());
  next.send(posted_completion(completion("one", 5)));
  DoneWaiter woken;
  server.models().wake("one", woken.done());
  server.fakes.engine("first").hold(false);
  held.reset();
  CHECK(sse_data(stream.receive().body).back() == "[DONE]");
  CHECK(slept.wait() == std::nullopt);
  CHECK(woken.wait() == std::nullopt);
  CHECK(text_of(next.receive()) == "first");
  CHECK(server.fakes.num_loads() == 2);
}

TEST_CASE("a model is replaced under streaming load, and no request fails") {
  ModelsServer server({fake_spec("one", "old")});
  std::atomic<bool> over{false};
  std::atomic<int> num_old{0};
  std::atomic<int> num_new{0};
  std::atomic<int> num_wrong{0};
  const auto ask = [&](bool streams) {
    HttpClient client(server.port());
    while (!over) {
      const HttpReply reply = client.post("/v1/completions", completion("one", 30, streams));
      std::string text;
      if (reply.status == 200 && !streams) text = Json::parse(reply.body)["choices"][0]["text"];
      if (reply.status == 200 && streams) {
        for (const std::string& event : sse_data(reply.body)) {
          if (event != "[DONE]") text += Json::parse(event)["choices"][0]["text"].get<std::string>();
        }
      }
      // A single model answers a request, from its first token to its last.
      std::string old_text;
      std::string new_text;
      while (old_text.size() < 30) {
        old_text += "old";
        new_text += "new";
      }
      ++(text == old_text ? num_old : text == new_text ? num_new : num_wrong);
    }
  };
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i)
    clients.emplace_back(ask, i % 2 == 0);
  while (num_old < 20)
    std::this_thread::yield();
  CHECK(server.replace("one", "new") == std::nullopt);
  while (num_new < 20)
    std::this_thread::yield();
  CHECK(server.replace("one", "old", true) == std::nullopt);
  const int before = num_old;
  while (num_old < before + 20)
    std::this_thread::yield();
  over = true;
  for (std::thread& client : clients)
    client.join();
  CHECK(num_wrong == 0);
  server.fakes.wait_destroyed(2);
  CHECK(server.fakes.num_alive() == 1);
}

TEST_CASE("a request that runs ends on the model it began with") {
  ModelsServer server({fake_spec("one", "old")});
  FakeEngine& old = server.fakes.engine("old");
  old.hold(true);
  HttpClient running(server.port());
  running.send(posted_completion(completion("one", 6)));
  old.wait_live(1);
  auto held = server.served("one");
  CHECK(server.replace("one", "new") == std::nullopt);
  HttpClient next(server.port());
  CHECK(text_of(next.post("/v1/completions", completion("one", 6))) == "newnew");
  CHECK(server.fakes.num_alive() == 2);
  old.hold(false);
  held.reset();
  CHECK(text_of(running.receive()) == "oldold");
  server.fakes.wait_destroyed(1);
}
