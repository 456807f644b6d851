#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <catch2/catch.hpp>
#include <thread>

#include "server/api/common/json.h"
#include "server/ops/keys/admin.h"
#include "server/ops/reports/engine_trace.h"
#include "server/ops/reports/span_exporter.h"
#include "server/ops/reports/trace_context.h"
#include "server/state/settings.h"
#include "tests/server/test_server.h"
#include "tests/server/wire/certificate.h"

using namespace quire;
using namespace quire::test;
using namespace std::chrono_literals;

namespace {

const std::string kTraceId = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kParentId = "00f067aa0ba902b7";

// A collector that takes one batch and keeps its text; `secure`: over TLS, with a certificate for 127.0.0.1 alone.
class Collector {
 public:
  explicit Collector(bool secure = false)
      : secure_(secure), acceptor_(context_, {boost::asio::ip::address_v4::any(), 0}), thread_([this] { run(); }) {}
  ~Collector() {
    ::shutdown(acceptor_.native_handle(), SHUT_RDWR);  // in case no client came
    thread_.join();
  }
  std::string url(const std::string& host = "127.0.0.1") const {
    return (secure_ ? "https://" : "http://") + host + ":" + std::to_string(acceptor_.local_endpoint().port()) +
           "/v1/traces";
  }
  // Waits for the batch.
  const std::string& body() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !body_.empty(); });
    return body_;
  }

 private:
  void run() {
    boost::system::error_code error;
    boost::asio::ip::tcp::socket socket = acceptor_.accept(error);
    if (error) return;
    if (!secure_) return read(socket);
    namespace ssl = boost::asio::ssl;
    ssl::context tls(ssl::context::tls_server);
    tls.use_certificate_chain_file(certificate().certificate);
    tls.use_private_key_file(certificate().key, ssl::context::pem);
    ssl::stream<boost::asio::ip::tcp::socket> stream(std::move(socket), tls);
    stream.handshake(ssl::stream_base::server, error);
    if (!error) read(stream);
  }

  template <class Stream>
  void read(Stream& socket) {
    std::string text;
    boost::system::error_code error;
    std::size_t head = 0;
    std::size_t length = 0;
    while (!error && (head == 0 || text.size() < head + length)) {
      char buffer[4096];
      text.append(buffer, socket.read_some(boost::asio::buffer(buffer), error));
      const std::size_t end = text.find("\r\n\r\n");
      if (end == std::string::npos) continue;
      head = end + 4;
      length = std::stoul(text.substr(text.find("Content-Length: ") + 16));
    }
    if (error) return;  // a client that rejects the certificate closes
    boost::asio::write(socket, boost::asio::buffer(std::string("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")),
                       error);
    const std::lock_guard lock(mutex_);
    body_ = text.substr(head);
    arrived_.notify_all();
  }

  bool secure_;
  boost::asio::io_context context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::string body_;
  std::thread thread_;
};

RequestRecord record_at(Clock::time_point arrival) {
  RequestRecord record;
  record.request_id = "req-1";
  record.key_name = "alice";
  record.method = "POST";
  record.path = "/v1/completions";
  record.status = 200;
  record.is_call = true;
  record.times.arrival = arrival;
  record.times.queue = 10ms;
  record.times.prefill = 20ms;
  record.times.decode = 70ms;
  record.times.first_token = arrival + 30ms;
  record.times.end = arrival + 100ms;
  record.trace = TraceContext{kTraceId, kParentId, "1111111111111111", true};
  record.summary = OperationSummary{12, 4, 7, "stop", "fake"};
  return record;
}

const Json* named(const Json& list, const std::string& name) {
  for (const Json& each : list) {
    if (each["name"] == name) return &each;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("traceparent is read as the standard says, and anything else is no trace") {
  const auto good = parse_traceparent("00-" + kTraceId + "-" + kParentId + "-01");
  REQUIRE(good);
  CHECK(good->trace_id == kTraceId);
  CHECK(good->parent_id == kParentId);
  CHECK(good->sampled);
  CHECK(good->span_id.size() == 16);
  CHECK(good->span_id != kParentId);
  const auto quiet = parse_traceparent("00-" + kTraceId + "-" + kParentId + "-00");
  REQUIRE(quiet);
  CHECK_FALSE(quiet->sampled);
  CHECK(parse_traceparent("cc-" + kTraceId + "-" + kParentId + "-01-what-the-future-holds"));
  for (const std::string& bad :
       {std::string(), std::string("00"), "ff-" + kTraceId + "-" + kParentId + "-01",
        "00-" + std::string(32, '0') + "-" + kParentId + "-01", "00-" + kTraceId + "-" + std::string(16, '0') + "-01",
        "00-" + kTraceId + "-" + kParentId + "-0g", "00-" + kTraceId + "-" + kParentId + "-01-more",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + kParentId + "-01", "00_" + kTraceId + "-" + kParentId + "-01",
        "cc-" + kTraceId + "-" + kParentId + "-01.x"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_traceparent(bad));
  }
  CHECK(new_trace(true).trace_id.size() == 32);
  CHECK(new_trace(true).trace_id != new_trace(true).trace_id);
}

TEST_CASE("a request is a span, with its queue, prefill and decode below it") {
  const Json body = Json::parse(otlp_body({record_at(Clock::now())}, "quire-test"));
  const Json& resource = body["resourceSpans"][0];
  CHECK(resource["resource"]["attributes"][0]["value"]["stringValue"] == "quire-test");
  const Json& spans = resource["scopeSpans"][0]["spans"];
  REQUIRE(spans.size() == 4);
  const Json& server = spans[0];
  CHECK(server["traceId"] == kTraceId);
  CHECK(server["spanId"] == "1111111111111111");
  CHECK(server["parentSpanId"] == kParentId);
  CHECK(server["kind"] == 2);
  const auto nanos = [](const Json& span, const char* field) { return std::stoll(span[field].get<std::string>()); };
  CHECK(nanos(server, "endTimeUnixNano") - nanos(server, "startTimeUnixNano") == 100'000'000);
  for (const auto& [name, length] : {std::pair{"queue", 10}, std::pair{"prefill", 20}, std::pair{"decode", 70}}) {
    CAPTURE(name);
    const Json* child = named(spans, name);
    REQUIRE(child != nullptr);
    CHECK((*child)["parentSpanId"] == "1111111111111111");
    CHECK(nanos(*child, "endTimeUnixNano") - nanos(*child, "startTimeUnixNano") == length * 1'000'000);
  }
  CHECK(nanos(*named(spans, "queue"), "startTimeUnixNano") == nanos(server, "startTimeUnixNano"));
}

TEST_CASE("requests reach the collector with their caller's trace") {
  Collector collector;
  ServerOptions options = test_options();
  options.tracing.endpoint = collector.url();
  {
    TestServer server({}, options);
    HttpClient client(server.port());
    const std::string body = R"({"prompt":"abc"})";
    client.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\ntraceparent: 00-" + kTraceId + "-" + kParentId +
                "-01\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    CHECK(client.receive().status == 200);
    const Json told = Json::parse(collector.body());
    CHECK(told["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"] == kTraceId);
    while (client.get("/metrics").body.find("quire:spans_sent_total{model_name=\"fake\"} 1") == std::string::npos) {
    }
  }
}

TEST_CASE("a collector that is away costs its spans and nothing else") {
  TracingOptions options;
  options.endpoint = "http://127.0.0.1:1/v1/traces";
  options.max_queued_spans = 1;
  SpanExporter exporter(options);
  for (int i = 0; i < 100; ++i)
    exporter.offer(record_at(Clock::now()));
  while (exporter.num_dropped() < 100)
    std::this_thread::yield();
  CHECK(exporter.num_sent() == 0);
}

TEST_CASE("a collector's address must be a usable URL") {
  const auto address = parse_collector("http://collector:4318/v1/traces");
  CHECK(address.host == "collector");
  CHECK(address.port == "4318");
  CHECK(address.path == "/v1/traces");
  CHECK(parse_collector("http://collector").port == "80");
  CHECK(parse_collector("http://collector").path == "/v1/traces");
  CHECK(parse_collector("http://[::1]:4318/x").host == "::1");
  CHECK_FALSE(parse_collector("http://collector").secure);
  CHECK(parse_collector("https://collector").secure);
  CHECK(parse_collector("https://collector").port == "443");
  for (const std::string bad :
       {"collector:4318", "ftp://collector/v1/traces", "http://", "https://", "http://a:b/", "http://:80/",
        "http://u@a/", "http://a/x y", "http://[::1/", "http://a#b", "HTTP//a"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_collector(bad), StartupError);
  }
}

TEST_CASE("spans are sent over TLS only to a collector with a trusted certificate for its name") {
  Collector good(true);
  const auto open = [](const std::string& url, const std::string& ca) {
    return open_collector(TracingOptions{.endpoint = url, .ca = ca});
  };
  REQUIRE(post_spans(open(good.url(), certificate().certificate), R"({"a":1})").empty());
  CHECK(good.body() == R"({"a":1})");
  const auto refusal = [&](const std::string& host, const std::string& ca) {
    const Collector collector(true);
    return post_spans(open(collector.url(host), ca), "{}");
  };
  CHECK_THAT(refusal("127.0.0.1", ""), Catch::Contains("certificate verify failed"));
  CHECK_THAT(refusal("127.0.0.2", certificate().certificate), Catch::Contains("certificate verify failed"));
  CHECK_THROWS_WITH(open(good.url(), "/nowhere.pem"), Catch::Contains("tracing.ca: '/nowhere.pem'"));
  CHECK_THROWS_WITH(open("http://a", "/nowhere.pem"), Catch::Contains("tracing.ca"));
}

TEST_CASE("a trace of the engine shows its steps and each request's share of them") {
  const Clock::time_point began = Clock::now();
  StepRecord step;
  step.began = began + 1ms;
  step.phases = {1ms, 0ms, 1ms, 5ms, 2ms, 1ms};
  step.num_tokens = 9;
  step.terms = {.num_streams = 1.0, .num_prompt_tokens = 8.0, .stream_ktokens = 0.25, .prompt_ktokens = 0.5};
  step.seconds = 0.008;
  step.entries = {{"cmpl-1-0", 0, 8, true}, {"cmpl-\"2\"-0", 1, 1, false}};
  const Json trace = Json::parse(perfetto_json({{"one", {step}}}, {record_at(began)}, began));
  const Json& events = trace["traceEvents"];
  const Json* forward = named(events, "forward");
  REQUIRE(forward != nullptr);
  CHECK((*forward)["ts"] == 3000.0);
  CHECK((*forward)["dur"] == 5000.0);
  REQUIRE(named(events, "step") != nullptr);
  CHECK((*named(events, "step"))["dur"] == 10000.0);
  const Json expected{
      {"tokens", 9},           {"sequences", 2}, {"streams", 1.0}, {"prompt_tokens", 8.0}, {"stream_ktokens", 0.25},
      {"prompt_ktokens", 0.5}, {"ms", 8.0}};
  CHECK((*named(events, "step"))["args"] == expected);
  int num_decodes = 0;
  int num_tracks = 0;
  for (const Json& event : events) {
    if (event["name"] == "decode") ++num_decodes;
    if (event["name"] == "thread_name") ++num_tracks;
  }
  CHECK(num_decodes == 2);  // the step's share, and the part of the life
  CHECK(num_tracks == 4);   // the steps, two requests in them, one life
  REQUIRE(named(events, "POST /v1/completions") != nullptr);
  CHECK((*named(events, "POST /v1/completions"))["args"]["generated_tokens"] == 7);
}

TEST_CASE("a trace shows of an earlier request only the part within its window") {
  const RequestRecord record = record_at(Clock::now());
  const Clock::time_point first_token = record.times.first_token.value();
  const Json trace = Json::parse(perfetto_json({{"one", {}}}, {record}, first_token));
  const Json& events = trace["traceEvents"];
  const Json* life = named(events, "POST /v1/completions");
  REQUIRE(life != nullptr);
  CHECK((*life)["ts"] == 0.0);
  CHECK((*life)["dur"] == std::chrono::duration<double, std::micro>(record.times.end - first_token).count());
  CHECK(named(events, "queue") == nullptr);
  REQUIRE(named(events, "decode") != nullptr);
  CHECK((*named(events, "decode"))["ts"] == 0.0);
}

TEST_CASE("admin pages are closed where there is no admin key") {
  TestServer server;
  HttpClient client(server.port());
  CHECK(client.post("/admin/reload", "").status == 403);
  CHECK(client.post("/admin/trace?seconds=1", "").status == 403);
  CHECK(client.get("/admin/reload").status == 405);
}

TEST_CASE("an admin's requests reach what they are for") {
  ServerOptions options = test_options();
  options.admin_listen = "127.0.0.1:0";
  TestServer server({}, options);
  int num_reloads = 0;
  server.server().state().admin.reload = [&](const auto& done) {
    ++num_reloads;
    done(num_reloads == 1 ? Result<std::string>("{}") : invalid("line 3: what", "", "invalid_configuration"));
  };
  HttpClient admin(server.server().admin_port());
  CHECK(admin.post("/admin/reload", "").status == 200);
  const HttpReply refused = admin.post("/admin/reload", "");
  CHECK(refused.status == 400);
  CHECK(Json::parse(refused.body)["error"]["message"] == "line 3: what");
  CHECK(num_reloads == 2);
  for (const std::string query : {"", "?seconds=0", "?seconds=61", "?seconds=x", "?seconds=1x", "?minutes=1"}) {
    CAPTURE(query);
    CHECK(admin.post("/admin/trace" + query, "").status == 400);
  }
  CHECK(admin.post("/admin/trace?seconds=1", "").status == 503);
}

TEST_CASE("settings that were replaced hold for the next request of every connection") {
  TestServer server;
  HttpClient client(server.port());
  CHECK(client.post("/v1/completions", R"({"prompt":"abc"})").status == 200);
  ServerOptions options = test_options();
  options.max_body_bytes = 10;
  server.server().state().set_settings(std::make_shared<const Settings>(options));
  CHECK(client.post("/v1/completions", R"({"prompt":"abc"})").status == 413);
}
