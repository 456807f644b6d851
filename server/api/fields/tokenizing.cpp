#include "server/api/fields/tokenizing.h"

#include "server/api/fields/completions.h"
#include "server/api/fields/generation.h"

namespace quire::fields {

namespace {

constexpr Field kTokenizeRows[] = {
    generation::kModel,         tokenizing::kContent,    tokenizing::kPrompt,
    tokenizing::kMessages,      tokenizing::kAddSpecial, generation::kAddSpecialTokens,
    completions::kParseSpecial, tokenizing::kWithPieces, tokenizing::kReturnTokenStrs,
};

constexpr Field kDetokenizeRows[] = {
    generation::kModel,
    tokenizing::kTokens,
    tokenizing::kSkipSpecialTokens,
};

}  // namespace

const FieldTable kTokenizeFields{"Tokens of a text", "", "/tokenize", kTokenizeRows};
const FieldTable kDetokenizeFields{"Text of tokens", "", "/detokenize", kDetokenizeRows};

}  // namespace quire::fields
