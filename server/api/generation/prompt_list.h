// The texts of a completion or an embedding: one string, several, one list of token ids, or several. Any thread.
#pragma once

#include <string>
#include <vector>

#include "core/content/media.h"
#include "server/api/common/field_reader.h"
#include "server/api/common/served_model.h"

namespace quire {

inline constexpr std::size_t kMaxPrompts = 2048;  // OpenAI's limit for a request

struct Prompt {
  std::string text;  // prompt text for `echo`
  std::vector<TokenId> tokens;
  std::vector<MediaRun> media = {};
};

// Errors stay in the reader, named by their place ("prompt[2][0]"). `prefix` is put before each that is a text.
// `truncated`: they are cut later, so that none is too long.
std::vector<Prompt> read_prompts(FieldReader& reader, const fields::Field& row, const ServedModel& model,
                                 const std::string& prefix = {}, bool truncated = false);

// The text that tokens stand for, from a text's beginning.
std::string decoded(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens, bool skip_special_tokens = true);

}  // namespace quire
