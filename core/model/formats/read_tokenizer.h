// Reads a model's tokenizer: a GGUF file's tokenizer.* metadata, or the JSON files of a Hugging Face directory, become
// the plain data that core/text builds a Tokenizer from. Any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/model/formats/gguf.h"
#include "core/text/tokenizer.h"

namespace quire {

// Each throws StartupError, one line that begins with `where` (the directory) and names what is missing, of the wrong
// kind, contradictory or unknown.
std::shared_ptr<const Tokenizer> read_gguf_tokenizer(const GgufFile& file, const std::string& where);
std::shared_ptr<const Tokenizer> read_hf_tokenizer(const std::filesystem::path& directory);

// Of a GGUF file, vocabulary-only ones included, or of a folder, one with just tokenizer.json included.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::filesystem::path& path);

// The tokenizer without the tokens that the model's embedding lacks; special ones among them are spelt like other text.
// Throws StartupError where a client's text, or the chat template, yields one of them.
std::shared_ptr<const Tokenizer> fit_vocabulary(std::shared_ptr<const Tokenizer> tokenizer, std::int64_t vocab_size,
                                                const std::string& chat_template, const std::string& where);

}  // namespace quire
