#include "server/cli/run/chat_client.h"

#include <fmt/format.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <optional>

#include "server/cli/bench/sse_reader.h"
#include "server/client/http_exchange.h"

namespace quire::cli {

namespace {

namespace asio = boost::asio;
using nlohmann::json;

constexpr std::chrono::milliseconds kAnswerPatience = std::chrono::hours(24);  // Ctrl-C ends it sooner

// The message of OpenAI's error body, or else the HTTP status.
Error refusal_of(int status, const std::string& body) {
  const json parsed = json::parse(body, nullptr, false);
  const auto error = parsed.is_object() ? parsed.value("error", json()) : json();
  const std::string message = error.is_object() ? error.value("message", "") : "";
  std::string text = message.empty() ? fmt::format("HTTP {}", status) : message;
  return {ErrorKind::kInvalidRequest, std::move(text), {}, {}, std::nullopt};
}

std::string text_of(const json& delta, const char* name) {
  const auto found = delta.find(name);
  return found != delta.end() && found->is_string() ? found->get<std::string>() : "";
}

asio::awaitable<void> read_whole(const WebClient& server, const ClientRequest& request,
                                 std::chrono::milliseconds patience, Result<std::string>& reply) {
  HttpExchange exchange(co_await asio::this_coro::executor, server);
  const auto status = co_await exchange.send(request, patience);
  if (!status) {
    reply = tl::make_unexpected(status.error());
    co_return;
  }
  reply = co_await exchange.read_rest();
  if (reply && *status != 200) reply = tl::make_unexpected(refusal_of(*status, *reply));
}

// Reads a streamed answer, event by event.
class AnswerReader {
 public:
  explicit AnswerReader(const std::function<void(const ChatPiece&)>& on_piece) : on_piece_(on_piece) {}

  // Returns false if the stream reported an error.
  bool push(std::string_view bytes) {
    for (const std::string& data : events_.push(bytes)) {
      const json event = json::parse(data, nullptr, false);
      if (!event.is_object()) continue;  // [DONE]
      if (event.contains("error")) {
        error_ = refusal_of(200, data);
        return false;
      }
      for (const json& choice : event.value("choices", json::array()))
        read_choice(choice);
    }
    return true;
  }

  Result<ChatAnswer> result() const {
    if (error_) return tl::make_unexpected(*error_);
    return answer_;
  }

 private:
  void read_choice(const json& choice) {
    const json delta = choice.value("delta", json::object());
    hand_out(text_of(delta, "reasoning_content"), true);
    hand_out(text_of(delta, "content"), false);
    const std::string reason = text_of(choice, "finish_reason");
    if (!reason.empty()) answer_.finish_reason = reason;
  }

  void hand_out(const std::string& text, bool is_reasoning) {
    if (text.empty()) return;
    if (!is_reasoning) answer_.text += text;
    on_piece_({text, is_reasoning});
  }

  const std::function<void(const ChatPiece&)>& on_piece_;
  bench::SseReader events_;
  ChatAnswer answer_{{}, "stopped"};
  std::optional<Error> error_;
};

asio::awaitable<void> read_stream(const WebClient& server, const ClientRequest& request, AnswerReader& reader,
                                  std::optional<Error>& failure) {
  HttpExchange exchange(co_await asio::this_coro::executor, server);
  const auto status = co_await exchange.send(request, kAnswerPatience);
  if (!status) {
    failure = status.error();
    co_return;
  }
  if (*status != 200) {
    const auto body = co_await exchange.read_rest();
    failure = refusal_of(*status, body ? *body : "");
    co_return;
  }
  for (;;) {
    const auto piece = co_await exchange.read_some();
    if (!piece) failure = piece.error();
    if (!piece || piece->empty() || !reader.push(*piece)) co_return;
  }
}

}  // namespace

ChatClient::ChatClient(HttpUrl server, const ClientTrust& trust, std::string api_key)
    : server_(std::move(server), trust), api_key_(std::move(api_key)) {}

std::vector<std::pair<std::string, std::string>> ChatClient::fields() const {
  std::vector<std::pair<std::string, std::string>> fields = {{"Content-Type", "application/json"}};
  if (!api_key_.empty()) fields.emplace_back("Authorization", "Bearer " + api_key_);
  return fields;
}

Result<ListedModel> ChatClient::first_model(std::chrono::milliseconds patience) const {
  asio::io_context io;
  Result<std::string> reply = std::string();
  const ClientRequest request{"GET", server_.server().path + "/v1/models", fields(), {}};
  asio::co_spawn(io, read_whole(server_, request, patience, reply), asio::detached);
  io.run();
  if (!reply) return tl::make_unexpected(reply.error());
  const json listed = json::parse(*reply, nullptr, false);
  if (!listed.is_object() || !listed.contains("data") || !listed["data"].is_array() || listed["data"].empty()) {
    return invalid("GET /v1/models lists no model; name one with --model");
  }
  const json& first = listed["data"][0];
  const auto length = first.find("max_model_len");
  const bool has_length = length != first.end() && length->is_number_integer();
  return ListedModel{first.value("id", std::string()), has_length ? length->get<std::int64_t>() : 0};
}

Result<ChatAnswer> ChatClient::ask(const json& body, const std::function<void(const ChatPiece&)>& on_piece) const {
  AnswerReader reader(on_piece);
  std::optional<Error> failure;
  const ClientRequest request{"POST", server_.server().path + "/v1/chat/completions", fields(),
                              body.dump(-1, ' ', false, json::error_handler_t::replace)};
  {
    asio::io_context io;  // destroying it closes the connection
    asio::signal_set interrupts(io, SIGINT);
    interrupts.async_wait([&io](const boost::system::error_code& error, int) {
      if (!error) io.stop();
    });
    asio::co_spawn(io, read_stream(server_, request, reader, failure),
                   [&interrupts](std::exception_ptr) { interrupts.cancel(); });
    io.run();
  }
  if (failure) return tl::make_unexpected(*failure);
  return reader.result();
}

}  // namespace quire::cli
