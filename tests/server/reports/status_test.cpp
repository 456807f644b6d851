// Health pages and /metrics for the server's states.
#include <catch2/catch.hpp>

#include "server/media/media_sight.h"
#include "server/models/running_model.h"
#include "tests/server/models/models_server.h"
#include "tests/server/wire/certificate.h"

using namespace quire;
using namespace quire::test;

namespace {

// A model that has only health and a cache.
class StubModel final : public RunningModel {
 public:
  explicit StubModel(bool healthy) : healthy_(healthy) {}
  std::shared_ptr<ServedModel> describe(const HostedModelSpec&) const override { return nullptr; }
  RequestQueue& queue() override { return queue_; }
  EngineStats stats() const override {
    EngineStats stats;
    stats.num_media_encoded = 7;
    stats.num_media_found = 3;
    stats.encoder_ns = 1'500'000'000;
    return stats;
  }
  bool healthy() const override { return healthy_; }
  CacheConfig cache_config() const override { return {16, 100, "f16", true}; }
  StepTrace* step_trace() override { return nullptr; }
  void reconfigure(const EngineOptions&) override {}
  void stop() override {}

 private:
  RequestQueue queue_{{}};
  bool healthy_;
};

TableEntry entry(const std::string& name, ModelState state, std::shared_ptr<RunningModel> running = nullptr) {
  TableEntry made;
  made.name = name;
  made.state = state;
  made.running = std::move(running);
  return made;
}

// A server with these models in its table.
class StatusServer {
 public:
  explicit StatusServer(std::vector<TableEntry> entries, const ServerOptions& options = test_options())
      : server_(options) {
    server_.start();
    server_.serve(std::make_shared<const ModelTable>(std::move(entries)));
  }
  int status(const std::string& path) {
    HttpClient client(server_.port());
    return client.get(path).status;
  }
  Server& server() { return server_; }

 private:
  Server server_;
};

bool has_line(const std::string& text, const std::string& line) {
  return text.find("\n" + line) != std::string::npos;
}

}  // namespace

TEST_CASE("a device that failed turns readiness and liveness red") {
  StatusServer server({entry("one", ModelState::kReady, std::make_shared<StubModel>(true)),
                       entry("two", ModelState::kReady, std::make_shared<StubModel>(false))});
  CHECK(server.status("/livez") == 503);
  CHECK(server.status("/readyz") == 503);
}

TEST_CASE("readiness is red where every model failed, liveness is not") {
  StatusServer failed({entry("one", ModelState::kFailed), entry("two", ModelState::kUnloaded)});
  CHECK(failed.status("/readyz") == 503);
  CHECK(failed.status("/livez") == 200);
  StatusServer partly({entry("one", ModelState::kFailed), entry("two", ModelState::kSleeping)});
  CHECK(partly.status("/readyz") == 200);
  StatusServer none({});
  CHECK(none.status("/readyz") == 200);
}

TEST_CASE("the status of a model that sees shows its encoder, that of others does not") {
  TableEntry seeing = entry("one", ModelState::kReady, std::make_shared<StubModel>(true));
  auto served = std::make_shared<ServedModel>();
  served->sight = std::make_shared<const MediaSight>();
  seeing.served = served;
  StatusServer server({seeing, entry("two", ModelState::kReady, std::make_shared<StubModel>(true))});
  HttpClient client(server.server().port());
  const auto models = Json::parse(client.get("/status").body)["models"];
  CHECK(models[0]["images"] == Json{{"encoded", 7}, {"found", 3}, {"encoder_seconds", 1.5}});
  CHECK_FALSE(models[1].contains("images"));
}

TEST_CASE("the metrics show the build, the process, the models and the queues") {
  StatusServer server(
      {entry("one", ModelState::kReady, std::make_shared<StubModel>(true)), entry("two", ModelState::kFailed)});
  HttpClient client(server.server().port());
  CHECK(client.post("/v1/completions", "no json").status == 400);
  server.server().state().reloads.num_all = 3;
  server.server().state().reloads.num_failed = 1;
  server.server().state().reloads.last_failed = true;
  const std::string text = client.get("/metrics").body;
  for (const std::string line :
       {R"(quire:build_info{version=")", "process_cpu_seconds_total ", "process_open_fds ", "process_max_fds ",
        "process_start_time_seconds 1", R"(quire:model_state{model_name="one",state="ready"} 1)",
        R"(quire:model_state{model_name="one",state="failed"} 0)",
        R"(quire:model_state{model_name="two",state="failed"} 1)",
        R"(vllm:cache_config_info{block_size="16",cache_dtype="f16",enable_prefix_caching="True",model_name="one",)"
        R"(num_gpu_blocks="100"} 1)",
        R"(quire:encoder_seconds_total{model_name="one"} 1.5)", R"(quire:images_encoded_total{model_name="one"} 7)",
        R"(quire:image_cache_hits_total{level="rows",model_name="one"} 3)", R"(quire:text_queue_jobs{lane="quick"} 0)",
        R"(quire:text_seconds_total{lane="long"} 0)", R"(quire:refusals_total{code="invalid_json"} 1)",
        R"(quire:reloads_total{result="success"} 2)", R"(quire:reloads_total{result="failure"} 1)",
        "quire:last_reload_successful 0", "quire:request_body_bytes 0"}) {
    INFO(line);
    CHECK(has_line(text, line));
  }
  CHECK(text.find("tls_certificate") == std::string::npos);
  const std::size_t resident = text.find("\nprocess_resident_memory_bytes ");
  REQUIRE(resident != std::string::npos);
  CHECK(std::stod(text.substr(resident + 31)) > 1e6);
}

TEST_CASE("the certificate's expiry is exposed") {
  ServerOptions options = test_options();
  options.tls.certificate = certificate().certificate;
  options.tls.key = certificate().key;
  const TlsContext context(options.tls);
  CHECK(context.expiry() > std::time(nullptr));
  CHECK(context.expiry() < std::time(nullptr) + 100LL * 366 * 24 * 3600);
}
