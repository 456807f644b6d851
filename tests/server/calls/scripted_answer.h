// answer_with: a scripted model in process: an endpoint's answer to a request whose model writes a given text under the
// request's grammar, in events of several tokens, like accepted drafts. No thread, socket or weights.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api/common/json.h"
#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire::test {

struct HeardCall {
  std::string name;
  nlohmann::json arguments;  // members in any order; a string if not JSON
};

struct HeardAnswer {
  std::string refused;  // the text from the first byte that the grammar forbids; "(end)": it forbids the end there
  std::string error;    // error of the request; empty: it was answered
  std::vector<HeardCall> calls;
  std::string text;
  std::string finish;  // in the API's own word
};

using Endpoint = Result<std::unique_ptr<Operation>> (*)(ModelCall&, const Call&);

// The bytes of an answer.
struct RawAnswer {
  std::optional<Error> error = {};  // the request was refused
  std::string body = {};
  std::vector<std::string> warnings = {};
  std::shared_ptr<const Request> request = {};  // the request as the engine gets it
};

// The model writes `text` regardless of the request's grammar; each token has a log probability if requested.
RawAnswer raw_answer(const ServedModel& model, Endpoint endpoint, const std::string& body, const std::string& text);

enum class ChatApi { kChat, kResponses, kMessages, kOllama };
inline constexpr ChatApi kChatApis[] = {ChatApi::kChat, ChatApi::kResponses, ChatApi::kMessages, ChatApi::kOllama};

// `body` without the model's name; `stream` is set in it. `is_cut`: max_tokens ends the text.
HeardAnswer answer_with(const ServedModel& model, ChatApi api, Json body, const std::string& text, bool stream,
                        std::size_t tokens_per_event, bool is_cut = false);

}  // namespace quire::test
