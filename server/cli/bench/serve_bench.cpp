#include "server/cli/bench/serve_bench.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "server/cli/bench/sse_reader.h"
#include "server/ops/http_url.h"

namespace quire::bench {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Stream = beast::tcp_stream;
using SteadyClock = std::chrono::steady_clock;

constexpr auto kToken = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t kReadBuffer = 16 * 1024;

class LoadRun {
 public:
  LoadRun(const ServeBenchOptions& options, HttpUrl endpoint, const std::vector<PlannedRequest>& workload)
      : options_(options), endpoint_(std::move(endpoint)), workload_(workload), records_(workload.size()) {}

  Result<std::vector<RequestRecord>> run(const std::function<void(const Progress&)>& progress) {
    asio::ip::tcp::resolver resolver(io_);
    beast::error_code error;
    addresses_ = resolver.resolve(endpoint_.host, endpoint_.port, error);
    if (error) return invalid("cannot resolve " + endpoint_.host + ": " + error.message());
    if (model_ = options_.model; model_.empty()) {
      auto found = first_model();
      if (!found) return tl::make_unexpected(found.error());
      model_ = *found;
    }
    start_ = SteadyClock::now();
    asio::co_spawn(io_, report(progress), asio::detached);
    if (!workload_.empty() && workload_.front().arrival_seconds) {
      asio::co_spawn(io_, open_loop(), asio::detached);
    } else {
      for (int i = 0; i < options_.concurrency; ++i)
        asio::co_spawn(io_, closed_loop(), asio::detached);
    }
    io_.run();
    return std::move(records_);
  }

 private:
  double now() const { return std::chrono::duration<double>(SteadyClock::now() - start_).count(); }

  // Before the run, on a connection of its own.
  Result<std::string> first_model() {
    Stream stream(io_);
    beast::error_code error;
    stream.connect(addresses_, error);
    if (error) return invalid("no server at " + options_.url + ": " + error.message());
    http::request<http::empty_body> request(http::verb::get, "/v1/models", 11);
    set_headers(request);
    http::write(stream, request, error);
    beast::flat_buffer buffer;
    http::response<http::string_body> response;
    if (!error) http::read(stream, buffer, response, error);
    if (error) return invalid("no answer to GET /v1/models: " + error.message());
    const auto json = nlohmann::json::parse(response.body(), nullptr, false);
    if (!json.is_object() || !json.contains("data") || json["data"].empty()) {
      return invalid("GET /v1/models lists no model; name one with --model");
    }
    return json["data"][0].value("id", std::string());
  }

  template <class Message>
  void set_headers(Message& message) const {
    message.set(http::field::host, endpoint_.host);
    if (!options_.api_key.empty()) message.set(http::field::authorization, "Bearer " + options_.api_key);
  }

  asio::awaitable<void> closed_loop() {
    while (next_ < workload_.size()) {
      const std::size_t mine = next_++;
      co_await send(mine);
    }
  }

  asio::awaitable<void> open_loop() {
    asio::steady_timer timer(io_);
    for (; next_ < workload_.size(); ++next_) {
      const std::chrono::duration<double> arrival(workload_[next_].arrival_seconds.value_or(0));
      timer.expires_at(start_ + std::chrono::duration_cast<SteadyClock::duration>(arrival));
      co_await timer.async_wait(kToken);
      asio::co_spawn(io_, send(next_), asio::detached);
    }
  }

  asio::awaitable<void> report(const std::function<void(const Progress&)>& progress) {
    while (done_ < workload_.size()) {
      tick_.expires_after(std::chrono::seconds(1));
      co_await tick_.async_wait(kToken);
      progress({done_, workload_.size(), events_, now()});
    }
  }

  std::string body_of(const PlannedRequest& planned) const {
    return nlohmann::json{{"model", model_},
                          {"prompt", planned.prompt},
                          {"max_tokens", planned.max_tokens},
                          {"temperature", options_.temperature},
                          {"stream", true},
                          {"stream_options", {{"include_usage", true}}},
                          {"ignore_eos", true}}
        .dump();
  }

  asio::awaitable<void> send(std::size_t index) {
    RequestRecord& record = records_[index];
    record.sent = now();
    co_await exchange(workload_[index], record);
    record.finished = now();
    if (++done_ == workload_.size()) tick_.cancel();
  }

  asio::awaitable<void> exchange(const PlannedRequest& planned, RequestRecord& record) {
    Stream stream(io_);
    stream.expires_after(
        std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(options_.timeout_seconds)));
    if (auto [error, unused] = co_await stream.async_connect(addresses_, kToken); error) {
      record.error = "connect: " + error.message();
      co_return;
    }
    stream.socket().set_option(asio::ip::tcp::no_delay(true));
    http::request<http::string_body> request(http::verb::post, "/v1/completions", 11);
    set_headers(request);
    request.set(http::field::content_type, "application/json");
    request.set(http::field::connection, "close");
    request.body() = body_of(planned);
    request.prepare_payload();
    if (auto [error, sent] = co_await http::async_write(stream, request, kToken); error) {
      record.error = "write: " + error.message();
      co_return;
    }
    co_await receive(stream, record);
  }

  asio::awaitable<void> receive(Stream& stream, RequestRecord& record) {
    beast::flat_buffer buffer;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    if (auto [error, read] = co_await http::async_read_header(stream, buffer, parser, kToken); error) {
      record.error = "read: " + error.message();
      co_return;
    }
    record.status = static_cast<int>(parser.get().result_int());
    std::string failed_body;
    SseReader sse;
    std::vector<char> chunk(kReadBuffer);
    while (!parser.is_done()) {
      parser.get().body() = {chunk.data(), chunk.size(), true};
      auto [error, read] = co_await http::async_read_some(stream, buffer, parser, kToken);
      const std::string_view bytes(chunk.data(), chunk.size() - parser.get().body().size);
      if (record.status == 200) {
        for (const std::string& data : sse.push(bytes))
          take_event(data, record);
      } else {
        failed_body += bytes;
      }
      if (error && error != http::error::need_buffer) {
        record.error = "read: " + error.message();
        co_return;
      }
    }
    if (record.status != 200) {
      record.error = "HTTP " + std::to_string(record.status) + ": " + failed_body.substr(0, 200);
    } else if (record.error.empty() && record.events.empty()) {
      record.error = "the stream ended without any text";
    }
    record.ok = record.error.empty();
  }

  void take_event(const std::string& data, RequestRecord& record) {
    if (data == "[DONE]") return;
    const auto json = nlohmann::json::parse(data, nullptr, false);
    if (!json.is_object()) {
      record.error = "an event that is not JSON: " + data.substr(0, 100);
      return;
    }
    if (json.contains("error")) record.error = json["error"].dump();
    if (const auto usage = json.find("usage"); usage != json.end() && usage->is_object()) {
      record.prompt_tokens = usage->value("prompt_tokens", std::int64_t{0});
      record.output_tokens = usage->value("completion_tokens", std::int64_t{0});
      const auto details = usage->find("prompt_tokens_details");
      if (details != usage->end() && details->is_object())
        record.cached_tokens = details->value("cached_tokens", std::int64_t{0});
    }
    const auto choices = json.find("choices");
    if (choices == json.end() || choices->empty()) return;
    if ((*choices)[0].value("text", std::string()).empty()) return;
    record.events.push_back(now());
    ++events_;
    record.output_tokens = std::max(record.output_tokens, static_cast<std::int64_t>(record.events.size()));
  }

  const ServeBenchOptions& options_;
  HttpUrl endpoint_;
  const std::vector<PlannedRequest>& workload_;
  std::vector<RequestRecord> records_;
  asio::io_context io_;
  asio::steady_timer tick_{io_};  // of the progress line
  asio::ip::tcp::resolver::results_type addresses_;
  std::string model_;
  SteadyClock::time_point start_;
  std::size_t next_ = 0;
  std::size_t done_ = 0;
  std::int64_t events_ = 0;
};

}  // namespace

Result<std::vector<RequestRecord>> run_serve_bench(const ServeBenchOptions& options,
                                                   const std::vector<PlannedRequest>& workload,
                                                   const std::function<void(const Progress&)>& progress) {
  auto endpoint = parse_http_url(options.url);
  if (!endpoint || endpoint->secure) return invalid("the URL must be http://HOST[:PORT]: " + options.url);
  return LoadRun(options, std::move(*endpoint), workload).run(progress);
}

}  // namespace quire::bench
