// GenerationOperation: what completions and chat completions have in common: prompts become engine requests, events
// become each choice's text, and usage is counted. A subclass writes the shape of its API. One thread at a time.
// Choices are numbered over all prompts: prompt p's choice c is p * n + c, as OpenAI numbers them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/api/common/operation.h"
#include "server/api/generation/choice_stream.h"
#include "server/api/generation/generation_fields.h"

namespace quire {

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t reasoning_tokens = 0;
};

// {"prompt_tokens":..,"completion_tokens":..,"total_tokens":..,"prompt_tokens_details":{..}, ...}
Json usage_json(const Usage& usage);

Json token_ids_json(std::span<const TokenId> tokens);

// Members that every response of an operation repeats.
struct ResponseHeader {
  std::string id;
  std::int64_t created = 0;
  std::string model;
};

class GenerationOperation : public Operation {
 public:
  GenerationOperation(std::shared_ptr<const ServedModel> model, GenerationFields fields, ResponseHeader header);

  // Adds one engine request for this prompt; its length and max_tokens are checked by the caller.
  void add_prompt(std::vector<TokenId> prompt, std::int32_t max_tokens, std::shared_ptr<const Grammar> grammar,
                  const Call& call, bool at_text_start, std::vector<MediaRun> media = {});

  // For a stream of one choice; call before its prompt is added. Its chunks then hold single tokens, so that every
  // replica sends the same chunks.
  void set_origin(StreamOrigin origin) { origin_ = std::move(origin); }

  Wanted on_event(std::size_t index, OutputEvent event, std::string& out) final;
  void finish(std::string& out) override;
  bool finish_part(std::string& out) override;
  AnswerSize answer_size() const override;
  void fail(const Error& error, std::string& out) override;
  OperationSummary summary() const override;

 protected:
  struct Choice {
    explicit Choice(ChoiceStream choice_stream) : stream(std::move(choice_stream)) {}
    ChoiceStream stream;
    std::string text;  // whole so far, where the response is not streamed
    std::vector<TokenId> tokens;
    std::vector<TokenLogprob> logprobs;
    std::int64_t reasoning_tokens = 0;
  };
  // The addition of an event to a choice. A view: valid while the event is being handled.
  struct Delta {
    std::string_view text;
    std::span<const TokenId> tokens;
    std::span<const TokenLogprob> logprobs;
    bool last = false;  // the choice ended with it
  };

  // Handles an event's addition; a stream appends its chunks.
  virtual void on_delta(std::size_t choice, const Delta& delta, std::string& out) = 0;
  virtual void on_prompt_logprobs(std::size_t /*index*/, std::vector<std::optional<TokenLogprob>> /*logprobs*/) {}
  // return_progress: how much of the prompt of `choice` is computed.
  virtual void on_progress(std::size_t /*choice*/, const Json& /*progress*/, std::string& /*out*/) {}
  // Appends the next part of a whole response and returns whether another one follows. Its memory stays small beside
  // its text: no tree of all of it is made.
  virtual bool append_part(std::string& out) = 0;
  // The chunk that carries only the usage.
  virtual Json usage_chunk() = 0;

  const ServedModel& model() const { return *model_; }
  const GenerationFields& fields() const { return fields_; }
  const ResponseHeader& header() const { return header_; }
  std::vector<Choice>& choices() { return choices_; }
  const std::vector<Choice>& choices() const { return choices_; }
  // A chunk's text up to the value of its choice's index. Chunks are most of a server's output, so they are written as
  // text, without a JSON tree.
  std::string chunk_prefix(std::string_view object) const;
  // Appends the end of a chunk: the usage if it was asked for, and the event's end.
  void append_chunk_end(std::size_t choice, std::string& out) const;

  Usage usage() const;
  Usage choice_usage(std::size_t choice) const;
  const char* finish_reason(const Choice& choice) const;
  // vLLM's stop_reason: the stop string or stop token that ended the choice, null for an end-of-sequence token.
  Json stop_reason(const Choice& choice) const;
  // Adds members about the prompt's blocks if the request asked for them.
  Json with_transfer(Json body) const;
  // return_token_ids: as vLLM gives them, with the token that ended the choice where it has ended.
  Json returned_ids(std::span<const TokenId> tokens, const Choice& choice) const;

 private:
  Wanted take_event(std::size_t index, OutputEvent event, std::string& out);
  std::int64_t completion_tokens(const Choice& choice) const;
  Json progress_json(std::size_t index, const PromptProgress& progress) const;

  std::shared_ptr<const ServedModel> model_;
  GenerationFields fields_;
  ResponseHeader header_;
  std::string engine_id_;  // unique, whatever id the client chose
  std::vector<Choice> choices_;
  std::vector<std::int64_t> cached_tokens_;        // by request
  std::shared_ptr<const SharedPrefix> published_;  // published prefix of the last request
};

// vLLM's render endpoints: answers with the prompts of the operation in place of running it: an object, or a list of
// them where `is_list`.
Result<std::unique_ptr<Operation>> rendered(Result<std::unique_ptr<Operation>> operation, const Call& call,
                                            bool is_list);

}  // namespace quire
