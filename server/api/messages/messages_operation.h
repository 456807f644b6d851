// MessagesOperation: answers a chat in the shapes of Anthropic's Messages API, whole or streamed. One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "server/api/conversation/chat_reader.h"
#include "server/api/generation/generation_operation.h"
#include "server/api/messages/content_blocks.h"

namespace quire {

class MessagesOperation final : public GenerationOperation {
 public:
  MessagesOperation(std::shared_ptr<const ServedModel> model, GenerationFields fields, ResponseHeader header,
                    const ChatReading& reading, bool shows_thinking, std::string request_id);

  // Sets the answer's report on its context edits; null: no report.
  void set_context_management(Json said) { context_management_ = std::move(said); }
  // Writes nothing: the first event of the engine opens the message, whose usage includes the cached tokens.
  void begin(std::string&) override {}
  void finish(std::string& out) override;
  void fail(const Error& error, std::string& out) override;

 protected:
  void on_delta(std::size_t index, const Delta& delta, std::string& out) override;
  bool append_part(std::string& out) override;
  Json usage_chunk() override;

 private:
  Json message() const;
  const char* anthropic_stop_reason() const;
  Json stop_sequence() const;

  ChatReader reader_;
  ContentBlocks blocks_;
  std::string request_id_;
  Json context_management_;
  bool opened_ = false;
};

}  // namespace quire
