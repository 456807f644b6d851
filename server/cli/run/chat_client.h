// ChatClient: streamed chat completions of an OpenAI-compatible server, for `quire run` and `quire launch`. One thread
// at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "server/client/web_client.h"

namespace quire::cli {

// A piece of an answer, in the order of the stream.
struct ChatPiece {
  std::string_view text;
  bool is_reasoning = false;
};

struct ChatAnswer {
  std::string text;           // without reasoning
  std::string finish_reason;  // the server's; "stopped" after Ctrl-C
};

struct ListedModel {
  std::string name;
  std::int64_t max_model_len = 0;  // 0: not listed
};

class ChatClient {
 public:
  // `api_key`: empty: not sent. Throws StartupError for a bad file of `trust`.
  ChatClient(HttpUrl server, const ClientTrust& trust, std::string api_key);

  // The first model of /v1/models. The error quotes the server's answer, or says that none came within `patience`.
  Result<ListedModel> first_model(std::chrono::milliseconds patience) const;

  // Posts `body` to /v1/chat/completions and passes the pieces on as they arrive; returns at the stream's end, or after
  // SIGINT, which closes the connection so that the server stops computing.
  Result<ChatAnswer> ask(const nlohmann::json& body, const std::function<void(const ChatPiece&)>& on_piece) const;

 private:
  std::vector<std::pair<std::string, std::string>> fields() const;

  WebClient server_;
  std::string api_key_;
};

}  // namespace quire::cli
