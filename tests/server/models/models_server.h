// ModelsServer: a Server over LiveModels that are made of nothing, and what tests of both say to them. One thread at a
// time.
#pragma once

#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "server/api/common/json.h"
#include "server/connect_models.h"
#include "tests/server/models/fake_models.h"
#include "tests/server/test_server.h"

namespace quire::test {

inline constexpr std::uint64_t kPlenty = 8192 * kMegabyte;

// Waits for the end of an operation.
class DoneWaiter {
 public:
  LiveModels::Done done() {
    return [this](std::optional<Error> error) { promise_.set_value(std::move(error)); };
  }
  std::optional<Error> wait() { return promise_.get_future().get(); }

 private:
  std::promise<std::optional<Error>> promise_;
};

template <class Operation>
std::optional<Error> outcome_of(const Operation& operation) {
  DoneWaiter waiter;
  operation(waiter.done());
  return waiter.wait();
}

inline ModelEntry entry_of(const std::string& name, const std::string& path) {
  ModelEntry entry;
  entry.name = name;
  entry.model.path = path;
  entry.kv_memory = static_cast<std::int64_t>(16 * kMegabyte);
  return entry;
}

// A server over live models that are made of nothing.
class ModelsServer {
 public:
  explicit ModelsServer(std::vector<HostedModelSpec> specs, std::uint64_t memory = kPlenty,
                        const ServerOptions& options = test_options())
      : models_(fakes.opener(), machine_of(memory)), server_(options) {
    connect_models(server_.state(), models_);
    server_.start();
    models_.start(std::move(specs), EngineOptions{}, [] { return false; });
    models_.publish_to([this](const ModelTable& table) { server_.serve(std::make_shared<const ModelTable>(table)); });
  }
  ~ModelsServer() { models_.stop(); }
  ModelsServer(const ModelsServer&) = delete;
  ModelsServer& operator=(const ModelsServer&) = delete;

  LiveModels& models() { return models_; }
  Server& server() { return server_; }
  std::uint16_t port() const { return server_.port(); }
  ModelState state(const std::string& name) const {
    for (const ModelReport& report : models_.report()) {
      if (report.entry.name == name) return report.entry.state;
    }
    return ModelState::kUnloaded;
  }
  // Holds the model: its engine can be inspected even when its last request is about to end.
  std::shared_ptr<const ServedModel> served(const std::string& name) {
    return (*server_.state().models()->entry(name))->served;
  }
  std::optional<Error> load(const std::string& name, const std::string& path) {
    return outcome_of([&](auto done) { models_.load(entry_of(name, path), done); });
  }
  std::optional<Error> unload(const std::string& name) {
    return outcome_of([&](auto done) { models_.unload(name, done); });
  }
  std::optional<Error> sleep(const std::string& name) {
    return outcome_of([&](auto done) { models_.sleep(name, done); });
  }
  std::optional<Error> replace(const std::string& name, const std::string& path, bool in_place = false) {
    return outcome_of([&](auto done) { models_.replace(name, path, in_place, done); });
  }

  FakeModels fakes;

 private:
  LiveModels models_;
  Server server_;
};

inline std::string completion(const std::string& model, int max_tokens, bool stream = false) {
  return dump_json(Json{{"model", model}, {"prompt", "x"}, {"max_tokens", max_tokens}, {"stream", stream}});
}

inline std::string posted(const std::string& path, const std::string& body) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

inline std::string posted_completion(const std::string& body) {
  return posted("/v1/completions", body);
}

inline std::string text_of(const HttpReply& reply) {
  REQUIRE(reply.status == 200);
  return Json::parse(reply.body)["choices"][0]["text"];
}

inline std::string error_code(const HttpReply& reply) {
  return Json::parse(reply.body)["error"]["code"];
}

}  // namespace quire::test
