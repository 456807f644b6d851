// The vocabularies of the shared test material as tokenizers, each loaded once. One thread at a time.
#pragma once

#include <memory>
#include <string>

#include "core/text/tokenizer.h"

namespace quire::test {

// "llama-spm": tokenizers/llamacpp-vocab/ggml-vocab-llama-spm.gguf. Null where the material is absent.
std::shared_ptr<const Tokenizer> gguf_vocabulary(const std::string& name);
// A folder of the material with tokenizer.json (or .json.gz) and its companions: "tokenizers/hf/gpt2".
std::shared_ptr<const Tokenizer> json_vocabulary(const std::string& folder);

// All of it at once through a Detokenizer at the start of a text.
std::string decode(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special);

}  // namespace quire::test
