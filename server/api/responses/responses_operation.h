// ResponsesOperation: answers a conversation in the shapes of OpenAI's Responses API, whole or as typed events, and
// stores the response where that is asked for. One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "server/api/conversation/chat_reader.h"
#include "server/api/generation/generation_operation.h"
#include "server/api/responses/response_items.h"
#include "server/api/responses/responses_request.h"

namespace quire {

class ResponsesOperation final : public GenerationOperation {
 public:
  ResponsesOperation(std::shared_ptr<const ServedModel> model, ResponsesRequest request, ResponseHeader header,
                     const ChatReading& reading, const Call& call);

  // Whether the engine has to compute anything.
  bool generates() const { return request_.generates; }

  AnswerSize answer_size() const override;
  void begin(std::string& out) override;
  void finish(std::string& out) override;
  void fail(const Error& error, std::string& out) override;
  void store_begun() override;
  std::string snapshot() const override;
  void cancel(std::string& out) override;

 protected:
  void on_delta(std::size_t index, const Delta& delta, std::string& out) override;
  bool append_part(std::string& out) override;
  Json usage_chunk() override { return nullptr; }

 private:
  Json response(const char* status) const;
  Json failed_response(const Error& error) const;
  Json whole_response();
  Json end_response();
  void append_usage(Json& body) const;
  Json compaction() const;
  void append_response(const char* type, const Json& body, std::string& out);
  StoredResponse stored_response(Json body, const std::string& previous, const Json& input) const;
  void store(const Json& body);

  ResponsesRequest request_;
  ChatReader reader_;
  ResponseEvents events_;
  ResponseItems items_;
  std::shared_ptr<ResponseStore> store_;
  std::shared_ptr<SocketMemory> socket_memory_;  // null: it is no WebSocket
  std::string owner_;
  std::string summary_;    // summary of the conversation after a compaction_trigger
  bool is_queued_ = true;  // no token has been generated yet
};

}  // namespace quire
