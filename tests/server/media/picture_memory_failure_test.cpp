// Memory that the system refuses while a request's picture is decoded and prepared ends that request, on whatever
// thread of the server.
#include <catch2/catch.hpp>

#include "tests/server/media/picture_files.h"
#include "tests/server/seeing_server.h"
#include "tests/unit/engine/allocations.h"

using namespace quire;
using namespace quire::test;

TEST_CASE("memory that runs out at a picture ends its request, not the server", "[media][memory]") {
  const auto seen = std::make_shared<Seen>();
  seen->pictures.reserve(100'000);
  const FakeEngine::Script script = [](const Request&, std::int32_t) {
    exempt_this_thread();
    return bytes("ok");
  };
  TestServer server(script, test_options(), [&](ServedModel& model) { model.sight = sight_for(seen); });
  const auto status_of = [&](std::int64_t number) {
    // Pictures that were seen before are not decoded again.
    const std::string url = data_url_of(png_of(some_picture(static_cast<int>(number % 90) + 10,  //
                                                            static_cast<int>(number / 90) + 4)));
    const Json body{
        {"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}, {"image_url", {{"url", url}}}}}}}}}};
    HttpClient client(server.port());
    return client.post("/v1/chat/completions", body.dump()).status;
  };
  REQUIRE(status_of(0) == 200);
  std::int64_t num_refused = 0;
  std::int64_t n = 1;
  for (bool has_failed = true; has_failed; ++n) {
    INFO("allocation " << n);
    fail_next_allocation(n, FailsIn::kOtherThreads);
    const int status = status_of(n);
    has_failed = !forget_failure();
    num_refused += status == 507 || status == 503 ? 1 : 0;
    CHECK((status == 200 || status == 507 || status == 503 || status == 0));
    CHECK(HttpClient(server.port()).get("/livez").status == 200);
  }
  CHECK(status_of(0) == 200);
  CHECK(num_refused > 50);
}
