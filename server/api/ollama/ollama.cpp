#include "server/api/ollama/ollama.h"

#include <iterator>

#include "server/api/conversation/media_list.h"
#include "server/api/conversation/prepared_chat.h"
#include "server/api/ollama/ollama_operation.h"
#include "server/api/ollama/ollama_request.h"

namespace quire {

namespace {

// The answer to a request without a prompt, which only loads the model; it is loaded by now.
std::unique_ptr<Operation> loaded_answer(const ServedModel& model, bool is_chat) {
  Json body = ollama_line(model.name);
  if (is_chat) {
    body["message"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    body["response"] = "";
  }
  body["done"] = true;
  body["done_reason"] = "load";
  return std::make_unique<ReadyOperation>(dump_json(body) + "\n");
}

// The prompt's tokens: of `raw`, or of the rendered conversation; tokens of `context` precede them.
std::optional<PreparedChat> prepare_prompt(FieldReader& reader, OllamaRequest& request) {
  const std::string param = request.prompt.param;
  std::optional<PreparedChat> prepared;
  if (request.raw) {
    prepared.emplace();
    prepared->prompt = *std::move(request.raw);
    if (request.grammar != nullptr) prepared->grammar = request.grammar->grammar;
  } else {
    request.prompt.is_bounded = true;
    prepared = encode_conversation(reader, *request.model, std::move(request.prompt), request.tools,
                                   std::move(request.grammar));
  }
  if (!prepared) return std::nullopt;
  if (!request.context.empty()) {
    std::vector<TokenId>& prompt = prepared->prompt;
    const auto bos = request.model->tokenizer->bos();
    const auto begin = prompt.begin() + (bos && !prompt.empty() && prompt.front() == *bos ? 1 : 0);
    const std::int64_t num_before = std::ssize(request.context) - (begin - prompt.begin());
    for (MediaRun& run : prepared->media)
      run.begin += num_before;
    request.context.insert(request.context.end(), begin, prompt.end());
    prompt = std::move(request.context);
  }
  if (!fit_chat(reader, *request.model, request.fields, param, *prepared)) return std::nullopt;
  // Incomplete or malformed calls become text, because this API sends whole calls only.
  prepared->reading.options.eager = false;
  prepared->reading.options.exact = true;
  return prepared;
}

Result<std::unique_ptr<Operation>> answer(FieldReader& reader, OllamaRequest request, bool is_chat, const Call& call) {
  const auto ready = Clock::now();
  if (reader.error()) return tl::make_unexpected(*reader.error());
  if (request.loads_only) return loaded_answer(*request.model, is_chat);
  if (is_chat && request.truncates)
    leave_out_oldest(reader, *request.model, request.fields, request.prompt, request.tools, request.grammar);
  auto prepared = reader.error() ? std::nullopt : prepare_prompt(reader, request);
  if (!prepared) return tl::make_unexpected(*reader.error());
  ResponseHeader header{make_id("ollama-"), call.created, request.model->name};
  auto operation =
      std::make_unique<OllamaOperation>(request.model, std::move(request.fields), std::move(header), prepared->reading,
                                        OllamaAnswer{is_chat, request.logprobs, request.top_logprobs, ready});
  operation->add_prompt(std::move(prepared->prompt), prepared->max_tokens, std::move(prepared->grammar), call, false,
                        std::move(prepared->media));
  return operation;
}

}  // namespace

Result<std::unique_ptr<Operation>> parse_ollama_chat(ModelCall& asked, const Call& call) {
  return answer(asked.reader, read_ollama_chat(asked.reader, asked.model, media_list(*asked.model, call)), true, call);
}

Result<std::unique_ptr<Operation>> parse_ollama_generate(ModelCall& asked, const Call& call) {
  return answer(asked.reader, read_ollama_generate(asked.reader, asked.model, media_list(*asked.model, call)), false,
                call);
}

}  // namespace quire
