// Log probabilities in the shapes of OpenAI's two APIs and of vLLM's prompt_logprobs. Pure functions; any
// thread.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/request/request.h"
#include "core/text/detokenizer.h"
#include "core/text/tokenizer.h"
#include "server/api/common/json.h"

namespace quire {

// JSON has no infinities: an impossible token's logprob is this, as OpenAI reports it.
inline constexpr double kMinLogprob = -9999.0;

// A token's text as a JSON string can hold it, or "token_id:17".
std::string token_name(const Tokenizer& tokenizer, TokenId token, bool as_id);

// Chat: [{"token","logprob","bytes","top_logprobs":[...]}]; at most `num_top` of each token's alternatives.
Json chat_logprobs(const Tokenizer& tokenizer, std::span<const TokenLogprob> logprobs, std::size_t num_top,
                   bool as_ids);
// The same list's entries as text.
void append_chat_logprobs(std::string& out, const Tokenizer& tokenizer, std::span<const TokenLogprob> logprobs,
                          std::size_t num_top, bool as_ids);

// Start positions of tokens in the shown text, in characters. A token without visible text, such as the start token of
// a prompt, or without a complete character, has the position of the next visible text. One thread at a time.
class TextPlaces {
 public:
  TextPlaces(const Tokenizer& tokenizer, DetokenizerOptions options) : detokenizer_(tokenizer, options) {}
  void begin_behind(std::string_view text);
  std::size_t next(TokenId token);

 private:
  Detokenizer detokenizer_;
  std::size_t offset_ = 0;
};

// Completions: the four parallel arrays, as text.
struct CompletionLogprobs {
  std::string tokens;
  std::string token_logprobs;
  std::string top_logprobs;
  std::string text_offset;

  void add(const Tokenizer& tokenizer, TokenId token, const TokenLogprob* logprob, std::size_t num_top, bool as_ids,
           std::size_t offset);
  std::string text() const;
};

// vLLM's prompt_logprobs: [null, {"17": {"logprob","rank","decoded_token"}}, ...].
Json prompt_logprobs_json(const Tokenizer& tokenizer, std::span<const std::optional<TokenLogprob>> logprobs);

}  // namespace quire
