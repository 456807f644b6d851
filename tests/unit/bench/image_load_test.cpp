// Images of a load run: how they are planned, sent and counted.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/json/json.h"
#include "server/cli/bench/report.h"
#include "server/cli/bench/serve_bench.h"
#include "server/cli/bench/workload.h"
#include "server/media/data_url.h"
#include "server/media/decode/picture_file.h"
#include "tests/support/scripted_server.h"

namespace quire::bench {
namespace {

WorkloadOptions with_images() {
  WorkloadOptions options;
  options.num_requests = 12;
  options.prompt_words = {3, 5};
  options.num_images = 2;
  options.image_sizes = {{31, 17}, {16, 48}};
  return options;
}

ImageSize size_of(const std::string& url) {
  const auto file = decode_data_url(url, 1 << 20);
  REQUIRE(file);
  CHECK(file->media_type == "image/png");
  const auto picture = decode_picture(file->bytes, {});
  REQUIRE(picture);
  return {picture->width, picture->height};
}

TEST_CASE("sizes of images are pairs with a cross between") {
  const auto sizes = parse_image_sizes("256x256,720x1280");
  REQUIRE(sizes);
  CHECK(*sizes == std::vector<ImageSize>{{256, 256}, {720, 1280}});
  for (const char* bad : {"", "256", "256x", "x256", "0x5", "-1x5", "5x5,", "5x5x5", "5x5;6x6", "99999x1"})
    CHECK_FALSE(parse_image_sizes(bad));
}

TEST_CASE("the same seed plans the same images, all different and of the asked sizes") {
  WorkloadOptions options = with_images();
  const auto first = *plan_workload(options);
  const auto second = *plan_workload(options);
  std::set<std::string> urls;
  std::set<std::int32_t> widths;
  for (std::size_t i = 0; i < first.size(); ++i) {
    CHECK(first[i].image_urls == second[i].image_urls);
    REQUIRE(first[i].image_urls.size() == 2);
    for (const std::string& url : first[i].image_urls) {
      urls.insert(url);
      const ImageSize size = size_of(url);
      CHECK((size == options.image_sizes[0] || size == options.image_sizes[1]));
      widths.insert(size.width);
    }
  }
  CHECK(urls.size() == 24);
  CHECK(widths.size() == 2);
  const auto prompts = [](WorkloadOptions plain) {
    plain.num_images = 0;
    return *plan_workload(plain);
  }(options);
  CHECK(prompts[3].prompt == first[3].prompt);
  CHECK(prompts[3].image_urls.empty());
}

TEST_CASE("a request with images is a chat whose images stand before its text, and they are counted") {
  WorkloadOptions options = with_images();
  options.num_requests = 2;
  const auto plan = *plan_workload(options);
  const std::string stream =
      "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
      "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"a\"}}]}\n\n"
      "data: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n"
      "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":70,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
  std::vector<std::string> requests;
  Result<std::vector<RequestRecord>> records;
  {
    const std::string answer =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nContent-Length: " +
        std::to_string(stream.size()) + "\r\n\r\n" + stream;
    test::ScriptedServer server([&](const std::string& request, const auto& send) {
      requests.push_back(request);
      send(answer);
    });
    ServeBenchOptions asked;
    asked.url = server.url();
    asked.model = "seer";
    asked.concurrency = 1;
    records = run_serve_bench(asked, plan, [](const Progress&) {});
  }
  REQUIRE(records);
  REQUIRE(requests.size() == 2);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    CHECK(requests[i].starts_with("POST /v1/chat/completions "));
    const auto body = nlohmann::json::parse(requests[i].substr(requests[i].find("\r\n\r\n") + 4));
    const auto& parts = body["messages"][0]["content"];
    REQUIRE(parts.size() == 3);
    CHECK(parts[0]["image_url"]["url"] == plan[i].image_urls[0]);
    CHECK(parts[1]["image_url"]["url"] == plan[i].image_urls[1]);
    CHECK(parts[2]["text"] == plan[i].prompt);
    CHECK_FALSE(body.contains("prompt"));
    CHECK((*records)[i].ok);
    CHECK((*records)[i].events.size() == 2);
  }
  ServeReport report = make_report(*records);
  CHECK(report.num_images == 4);
  CHECK(report.prompt_tokens == 140);
  report.seconds = 2;
  CHECK(to_table(report).find("images 4 (2.00/s)") != std::string::npos);
  CHECK(to_json(report)["images_per_second"] == 2.0);
}

}  // namespace
}  // namespace quire::bench
