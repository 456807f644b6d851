// The fields of tokenizing and its inverse. Immutable; any thread.
#pragma once

#include "server/api/fields/field.h"

namespace quire::fields {

namespace tokenizing {

inline constexpr Field kContent{"content", text(), R"("y")", "llama-server's name; no special tokens by default"};
inline constexpr Field kPrompt{"prompt", text(), R"("y")", "vLLM's name; adds special tokens by default"};
inline constexpr Field kMessages{"messages", array(), R"([{"role":"user","content":"y"}])",
                                 "a chat, rendered with the model's template"};
inline constexpr Field kAddSpecial{"add_special", boolean(), "true", "llama-server's name of add_special_tokens"};
inline constexpr Field kWithPieces{"with_pieces", boolean(), "true", "tokens as {id, piece}"};
inline constexpr Field kReturnTokenStrs{"return_token_strs", boolean(), "true", "token_strs beside tokens"};
inline constexpr Field kTokens{"tokens", token_ids(), "[97]", "required"};
inline constexpr Field kSkipSpecialTokens{"skip_special_tokens", boolean(), "false",
                                          "control tokens are left out unless this is false"};

}  // namespace tokenizing

extern const FieldTable kTokenizeFields;
extern const FieldTable kDetokenizeFields;

}  // namespace quire::fields
