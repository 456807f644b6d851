#include "server/reload.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <future>

#include "server/ops/keys/key_ring.h"
#include "tests/server/models/models_server.h"
#include "tests/support/temporary_folder.h"

using namespace quire;
using namespace quire::test;

namespace {

// A server of one model whose next configuration a test chooses.
class ReloadedServer {
 public:
  explicit ReloadedServer(ServeOptions options = first_options())
      : current(std::move(options)),
        next(current),
        server(model_specs(current), kPlenty, current.server),
        reloader(notifier, [this] { return propose(); }) {
    reloader.attach(server.server(), server.models());
  }

  static ServeOptions first_options() {
    ServeOptions options;
    options.models = {entry_of("a", "/models/a")};
    options.server = test_options();
    ApiKeyOptions key;
    key.name = "first";
    key.sha256 = hash_of_key("secret");
    options.server.security.keys = {key};
    return options;
  }

  // Returns "" if the reload was applied, else the reason.
  std::string reload() {
    std::promise<Result<std::string>> promise;
    reloader.reload([&](Result<std::string> outcome) { promise.set_value(std::move(outcome)); });
    const Result<std::string> outcome = promise.get_future().get();
    return outcome ? "" : outcome.error().message;
  }
  int status_without_key() { return HttpClient(server.port()).get("/v1/models").status; }

  ServeOptions current;
  ServeOptions next;
  std::function<void()> while_reading;
  int num_accepted = 0;
  ServiceNotifier notifier;
  ModelsServer server;
  Reloader reloader;

 private:
  ConfigProposal propose() {
    if (while_reading) while_reading();
    return {next, {}, {}, [this] { ++num_accepted; }};
  }
};

}  // namespace

TEST_CASE("a reload is applied whole, or refused whole with its reason") {
  ReloadedServer scene;
  const TemporaryFolder folder;
  CHECK(scene.reload().empty());
  CHECK(scene.num_accepted == 1);

  ApiKeyOptions from_file;
  from_file.name = "second";
  from_file.file = folder / "key";
  scene.next.server.security.keys.push_back(from_file);
  CHECK_THAT(scene.reload(), Catch::EndsWith("cannot be opened: No such file or directory"));
  REQUIRE(::mkfifo((folder / "key").c_str(), 0600) == 0);
  CHECK_THAT(scene.reload(), Catch::EndsWith("is not a regular file, but a FIFO"));
  std::filesystem::remove(folder / "key");
  folder.write("key", "other");
  scene.next.models[0].model.chat_template = folder.path();
  CHECK_THAT(scene.reload(), Catch::EndsWith("is not a regular file, but a folder"));
  folder.write("template", " \n");
  scene.next.models[0].model.chat_template = folder / "template";
  CHECK_THAT(scene.reload(), Catch::EndsWith("is empty"));
  const auto ask_as_second = [&] {
    HttpClient client(scene.server.port());
    client.send("GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer other\r\n\r\n");
    return client.receive().status;
  };
  CHECK(ask_as_second() == 401);
  CHECK(scene.num_accepted == 1);
  folder.write("template", "{{ messages }}\n");
  CHECK(scene.reload().empty());
  CHECK(ask_as_second() == 200);
  const ReloadCounts& counts = scene.server.server().state().reloads;
  CHECK(counts.num_all == 6);
  CHECK(counts.num_failed == 4);
}

TEST_CASE("a reload does not open a server that asked for keys, certificates or TLS") {
  ReloadedServer scene;
  scene.next.server.security.keys.clear();
  CHECK_THAT(scene.reload(), Catch::StartsWith("security.keys would be empty"));
  CHECK(scene.status_without_key() == 401);
  scene.next.server.security.keyless = Exposure::kAllow;
  CHECK(scene.reload().empty());
  CHECK(scene.status_without_key() == 200);

  ServerOptions before;
  before.tls = {"c.pem", "k.pem", "ca.pem", ClientCertificate::kRequired};
  ServerOptions after = before;
  CHECK_NOTHROW(check_not_weaker(before, after));
  after.tls.client_certificate = ClientCertificate::kOptional;
  CHECK_THROWS_WITH(check_not_weaker(before, after), Catch::Contains("server.tls.client_ca"));
  after.security.keyless = Exposure::kAllow;
  CHECK_NOTHROW(check_not_weaker(before, after));
  after.tls = {};
  CHECK_THROWS_WITH(check_not_weaker(before, after), Catch::StartsWith("server.tls.certificate is not set any more"));
}

TEST_CASE("a reload whose files do not answer is given up, and what they bring later is dropped") {
  ReloadedServer scene;
  std::promise<void> reading;
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::atomic<int> num_readings{0};
  scene.while_reading = [&] {
    if (num_readings++ > 0) return;
    reading.set_value();
    released.wait();
  };
  std::promise<Result<std::string>> first;
  scene.reloader.reload([&](Result<std::string> outcome) { first.set_value(std::move(outcome)); });
  reading.get_future().wait();
  const auto now = std::chrono::steady_clock::now();
  scene.reloader.give_up_late(now);
  scene.reloader.give_up_late(now + std::chrono::minutes(1));
  const Result<std::string> given_up = first.get_future().get();
  REQUIRE_FALSE(given_up);
  CHECK(given_up.error().kind == ErrorKind::kTimeout);
  CHECK(given_up.error().code == "configuration_timeout");
  CHECK_THAT(scene.reload(), Catch::Contains("were not read within"));  // no reload waits behind a hanging one
  release.set_value();
  while (!scene.reload().empty()) {
  }
  CHECK(scene.num_accepted == 1);
}

TEST_CASE("a drain refuses a reload under way, and leaves a thread behind that hangs") {
  struct Gate {
    std::promise<void> reading;
    std::promise<void> release;
  };
  ReloadedServer scene;
  const auto gate = std::make_shared<Gate>();
  Reloader reloader(scene.notifier, [gate] {
    gate->reading.set_value();
    gate->release.get_future().wait();
    return ConfigProposal{};
  });
  reloader.attach(scene.server.server(), scene.server.models());
  std::promise<Result<std::string>> first;
  reloader.reload([&](Result<std::string> outcome) { first.set_value(std::move(outcome)); });
  gate->reading.get_future().wait();
  reloader.abandon();
  CHECK(first.get_future().get().error().kind == ErrorKind::kUnavailable);
  CHECK_FALSE(reloader.stop());
  gate->release.set_value();
}
