// ChatOperation: answers a chat in OpenAI's chat.completion shapes, whole or streamed, with tool calls and reasoning
// split from the text. One thread at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/api/conversation/chat_reader.h"
#include "server/api/generation/generation_operation.h"

namespace quire {

inline constexpr std::string_view kChatIdPrefix = "chatcmpl-";

struct ChatFields {
  bool logprobs = false;
  std::size_t top_logprobs = 0;
  bool include_reasoning = true;
  bool calls_as_functions = false;                  // answers with `function_call`, which holds one call
  std::set<std::string, std::less<>> custom_tools;  // their calls are plain texts
  Json metadata;
  std::shared_ptr<ResponseStore> store;  // null: the chat is not stored
  std::string owner;                     // the API key's name
  Json messages;                         // messages as given, if the chat is stored
};

class ChatOperation final : public GenerationOperation {
 public:
  ChatOperation(std::shared_ptr<const ServedModel> model, GenerationFields fields, ResponseHeader header,
                ChatFields chat, ChatReading reading);

  void begin(std::string& out) override;
  void finish(std::string& out) override;
  bool finish_part(std::string& out) override;

 protected:
  void on_progress(std::size_t index, const Json& progress, std::string& out) override;
  void on_delta(std::size_t index, const Delta& delta, std::string& out) override;
  void on_prompt_logprobs(std::size_t index, std::vector<std::optional<TokenLogprob>> logprobs) override;
  bool append_part(std::string& out) override;
  Json usage_chunk() override;

 private:
  struct Reader {
    ChatReader text;
    std::map<std::size_t, ParsedToolCall> custom;  // calls of custom tools, by place, until the stream's end
    ParsedOutput whole;                            // content only where the response is not streamed, or stored
  };

  std::vector<OutputDelta> read(std::size_t index, const Delta& delta);
  void append_chunk(std::size_t index, std::string_view delta_json, const Delta& delta, std::string& out);
  void append_last_chunk(std::size_t index, std::string& out);
  void open_chunk(std::size_t index, std::string_view delta_json, std::string& out) const;
  void close_chunk(std::size_t index, std::string& out);
  void hold_custom(std::size_t index, OutputDelta& delta);
  void append_custom(std::size_t index, std::string& out);
  void write_delta(const OutputDelta& delta);
  void append_choice_head(std::size_t index, std::string& out) const;
  Json choice_tail(std::size_t index) const;
  Json response_tail() const;
  Json logprobs_json(std::span<const TokenLogprob> values) const;
  void store(std::string body);
  const char* chat_finish_reason(std::size_t index) const;
  Reader& reader(std::size_t index);

  ChatFields chat_;
  ChatReading reading_;
  std::vector<Reader> readers_;  // by choice
  std::string prefix_;
  std::string scratch_;
  bool sent_prompt_ids_ = false;
  std::size_t num_written_ = 0;  // choices written of a whole response
  std::size_t num_tokens_ = 0;   // log probabilities written of the next choice
  std::vector<std::optional<TokenLogprob>> prompt_logprobs_;
};

}  // namespace quire
