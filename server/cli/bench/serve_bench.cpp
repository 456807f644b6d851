#include "server/cli/bench/serve_bench.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/cli/bench/sse_reader.h"
#include "server/client/http_exchange.h"

namespace quire::bench {

namespace {

namespace asio = boost::asio;
using SteadyClock = std::chrono::steady_clock;

constexpr auto kToken = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kModelsPatience{60'000};

// The parts of a chat message: its images, then its text.
nlohmann::json parts_of(const PlannedRequest& planned) {
  nlohmann::json parts = nlohmann::json::array();
  for (const std::string& url : planned.image_urls)
    parts.push_back({{"type", "image_url"}, {"image_url", {{"url", url}}}});
  parts.push_back({{"type", "text"}, {"text", planned.prompt}});
  return parts;
}

// Whether a choice of a completion, or of a chat, brings text; thoughts count as text.
bool has_text(const nlohmann::json& choice) {
  const auto is_text = [](const nlohmann::json& owner, const char* name) {
    const auto found = owner.find(name);
    return found != owner.end() && found->is_string() && !found->get_ref<const std::string&>().empty();
  };
  if (is_text(choice, "text")) return true;
  const auto delta = choice.find("delta");
  if (delta == choice.end() || !delta->is_object()) return false;
  return is_text(*delta, "content") || is_text(*delta, "reasoning_content") || is_text(*delta, "reasoning");
}

class LoadRun {
 public:
  LoadRun(const ServeBenchOptions& options, HttpUrl endpoint, const std::vector<PlannedRequest>& workload)
      : options_(options), server_(std::move(endpoint)), workload_(workload), records_(workload.size()) {}

  Result<std::vector<RequestRecord>> run(const std::function<void(const Progress&)>& progress) {
    if (const auto known = server_.resolve(); !known) return tl::make_unexpected(known.error());
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

  // Runs before the workload.
  Result<std::string> first_model() {
    Result<std::string> listed = std::string();
    asio::co_spawn(io_, list_models(listed), asio::detached);
    io_.run();
    io_.restart();
    if (!listed) return invalid("no answer to GET /v1/models at " + options_.url + ": " + listed.error().message);
    const auto json = nlohmann::json::parse(*listed, nullptr, false);
    if (!json.is_object() || !json.contains("data") || json["data"].empty()) {
      return invalid("GET /v1/models lists no model; name one with --model");
    }
    return json["data"][0].value("id", std::string());
  }

  asio::awaitable<void> list_models(Result<std::string>& listed) {
    HttpExchange exchange(io_.get_executor(), server_);
    const ClientRequest request{"GET", "/v1/models", fields(), {}};
    const auto status = co_await exchange.send(request, kModelsPatience);
    if (!status) {
      listed = tl::make_unexpected(status.error());
      co_return;
    }
    listed = co_await exchange.read_rest();
  }

  std::vector<std::pair<std::string, std::string>> fields() const {
    if (options_.api_key.empty()) return {};
    return {{"Authorization", "Bearer " + options_.api_key}};
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
    nlohmann::json body{{"model", model_},
                        {"max_tokens", planned.max_tokens},
                        {"temperature", options_.temperature},
                        {"stream", true},
                        {"stream_options", {{"include_usage", true}}},
                        {"ignore_eos", true}};
    if (planned.image_urls.empty()) {
      body["prompt"] = planned.prompt;
    } else {
      body["messages"] = {{{"role", "user"}, {"content", parts_of(planned)}}};
    }
    if (options_.token_ids) body["return_token_ids"] = true;
    return body.dump();
  }

  asio::awaitable<void> send(std::size_t index) {
    RequestRecord& record = records_[index];
    record.num_images = std::ssize(workload_[index].image_urls);
    record.sent = now();
    co_await exchange(workload_[index], record);
    record.finished = now();
    if (++done_ == workload_.size()) tick_.cancel();
  }

  asio::awaitable<void> exchange(const PlannedRequest& planned, RequestRecord& record) {
    HttpExchange exchange(io_.get_executor(), server_);
    const char* const path = planned.image_urls.empty() ? "/v1/completions" : "/v1/chat/completions";
    ClientRequest request{"POST", path, fields(), body_of(planned)};
    request.fields.emplace_back("Content-Type", "application/json");
    const auto timeout =
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(options_.timeout_seconds));
    const auto status = co_await exchange.send(request, timeout);
    if (!status) {
      record.error = status.error().message;
      co_return;
    }
    record.status = *status;
    co_await receive(exchange, record);
    record.ok = record.error.empty();
  }

  asio::awaitable<void> receive(HttpExchange& exchange, RequestRecord& record) {
    std::string failed_body;
    SseReader sse;
    while (true) {
      const auto piece = co_await exchange.read_some();
      if (!piece) {
        record.error = piece.error().message;
        co_return;
      }
      if (piece->empty()) break;
      if (record.status == 200) {
        for (const std::string& data : sse.push(*piece))
          take_event(data, record);
      } else {
        failed_body += *piece;
      }
    }
    if (record.status != 200) {
      record.error = "HTTP " + std::to_string(record.status) + ": " + failed_body.substr(0, 200);
    } else if (record.error.empty() && record.events.empty()) {
      record.error = "the stream ended without any text";
    }
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
    const auto& choice = (*choices)[0];
    const auto ids = choice.find("token_ids");
    const bool has_ids = ids != choice.end() && !ids->empty();
    if (!has_text(choice) && !has_ids) return;
    record.events.push_back(now());
    ++events_;
    record.output_tokens = std::max(record.output_tokens, static_cast<std::int64_t>(record.events.size()));
  }

  const ServeBenchOptions& options_;
  WebClient server_;
  const std::vector<PlannedRequest>& workload_;
  std::vector<RequestRecord> records_;
  asio::io_context io_;
  asio::steady_timer tick_{io_};  // timer of the progress line
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
  if (!endpoint) return invalid("the URL must be http[s]://HOST[:PORT]: " + options.url);
  return LoadRun(options, std::move(*endpoint), workload).run(progress);
}

}  // namespace quire::bench
