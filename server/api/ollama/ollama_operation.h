// OllamaOperation: answers a chat or a prompt in Ollama's form: one object, or a line of JSON for each piece and a last
// line with counts and times. One thread at a time. Invariant: a tool call is sent whole, on one line.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "server/api/conversation/chat_reader.h"
#include "server/api/generation/generation_operation.h"

namespace quire {

struct OllamaAnswer {
  bool is_chat = true;  // otherwise `response` is the text, and `context` ends it
  bool logprobs = false;
  std::size_t top_logprobs = 0;
  Clock::time_point ready{};  // end of the load: the request was read
};

// The members that every line of an answer begins with.
Json ollama_line(const std::string& model);

class OllamaOperation final : public GenerationOperation {
 public:
  OllamaOperation(std::shared_ptr<const ServedModel> model, GenerationFields fields, ResponseHeader header,
                  const ChatReading& reading, const OllamaAnswer& answer);

  void begin(std::string&) override {}
  void finish(std::string& out) override;
  void fail(const Error& error, std::string& out) override;

 protected:
  void on_delta(std::size_t index, const Delta& delta, std::string& out) override;
  bool append_part(std::string& out) override;
  Json usage_chunk() override;

 private:
  // A line with this much of the answer.
  Json part(const OutputDelta& delta) const;
  Json logprobs_of(std::span<const TokenLogprob> values) const;
  // Adds the finish reason, counts and times.
  void add_end(Json& line) const;

  const OllamaAnswer answer_;
  ChatReader reader_;
  OutputDelta whole_;
  std::vector<TokenId> tokens_;  // the answer's tokens, if it returns its context
  std::size_t num_written_ = 0;  // log probabilities of a whole answer
  std::optional<Clock::time_point> first_;
  Clock::time_point last_{};
};

}  // namespace quire
