// Images of a load run: how they are planned, sent and counted.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "core/base/json.h"
#include "server/cli/bench/report.h"
#include "server/cli/bench/serve_bench.h"
#include "server/cli/bench/workload.h"
#include "server/media/data_url.h"
#include "server/media/decode/picture_file.h"

namespace quire::bench {
namespace {

// Answers one request after the other, each with the same bytes, and keeps their paths and bodies.
class ScriptedServer {
 public:
  ScriptedServer(std::string answer, int num_requests) : answer_(std::move(answer)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listener_, 8) == 0);
    socklen_t size = sizeof address;
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, num_requests] {
      for (int i = 0; i < num_requests; ++i)
        answer_one();
    });
  }
  ~ScriptedServer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  // Once the run has ended.
  const std::vector<std::string>& requests() const { return requests_; }

 private:
  void answer_one() {
    const int client = ::accept(listener_, nullptr, nullptr);
    if (client < 0) return;
    std::string request;
    std::vector<char> buffer(1 << 16);
    while (!is_whole(request)) {
      const ssize_t count = ::recv(client, buffer.data(), buffer.size(), 0);
      if (count <= 0) break;
      request.append(buffer.data(), static_cast<std::size_t>(count));
    }
    requests_.push_back(request);
    const std::string head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nContent-Length: ";
    const std::string whole = head + std::to_string(answer_.size()) + "\r\n\r\n" + answer_;
    ::send(client, whole.data(), whole.size(), MSG_NOSIGNAL);
    ::close(client);
  }
  static bool is_whole(const std::string& request) {
    const std::size_t end = request.find("\r\n\r\n");
    const std::size_t length = request.find("Content-Length: ");
    return end != std::string::npos && length < end &&
           request.size() >= end + 4 + std::stoul(request.substr(length + 16));
  }

  const std::string answer_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::vector<std::string> requests_;
  std::thread thread_;
};

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
    ScriptedServer server(stream, 2);
    ServeBenchOptions asked;
    asked.url = server.url();
    asked.model = "seer";
    asked.concurrency = 1;
    records = run_serve_bench(asked, plan, [](const Progress&) {});
    requests = server.requests();
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
