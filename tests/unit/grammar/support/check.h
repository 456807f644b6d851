// Helpers of grammar tests: compiling, checking texts, reading vocabularies, walking under masks. One thread at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/grammar/compiler.h"

namespace quire::test {

// A vocabulary of all bytes and an end token.
const std::shared_ptr<const TokenVocabulary>& byte_vocabulary();
// The tokens of a Hugging Face tokenizer.json with byte-level BPE, gunzipped by name.
std::shared_ptr<const TokenVocabulary> read_vocabulary(const std::string& path);

GrammarSpec schema_spec(std::string schema);
GrammarSpec text_spec(GrammarSpec::Kind kind, std::string text);

// The compiled grammar; fails the running test where it is refused.
std::shared_ptr<const Grammar> compiled(const GrammarSpec& spec);
// The error's message, or "" where the grammar compiles.
std::string refusal(const GrammarSpec& spec);

// Whether the text is accepted as a whole, by the bytes' states and by their masks, which must agree.
bool accepts(const Grammar& grammar, std::string_view text);
bool accepts(const GrammarSpec& spec, std::string_view text);
// Whether the text is allowed so far.
bool begins(const Grammar& grammar, std::string_view text);

bool in_mask(const std::vector<std::uint32_t>& mask, TokenId token);
std::vector<std::uint32_t> mask_of(GrammarState& state, const TokenVocabulary& vocabulary);

}  // namespace quire::test
