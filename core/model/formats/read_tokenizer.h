// Reads a model's tokenizer: a GGUF file's tokenizer.* metadata, or the JSON files of a Hugging Face directory, become
// the plain data that core/text builds a Tokenizer from. Any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/model/formats/gguf/gguf.h"
#include "core/text/tokenizer.h"

namespace quire {

// Each throws StartupError, one line that begins with `where` (the directory) and names the field that is missing, of
// the wrong kind, contradictory or unknown.
std::shared_ptr<const Tokenizer> read_gguf_tokenizer(const GgufFile& file, const std::string& where);
std::shared_ptr<const Tokenizer> read_hf_tokenizer(const std::filesystem::path& directory);

// Opens a GGUF file, even with a vocabulary only, or a folder, even with a tokenizer.json only.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::filesystem::path& path);

// The tokenizer without the tokens that the model's embedding lacks; special ones among them are encoded like other
// text. Throws StartupError if a client's text, or the chat template, yields one of them.
std::shared_ptr<const Tokenizer> fit_vocabulary(std::shared_ptr<const Tokenizer> tokenizer, std::int64_t vocab_size,
                                                const std::string& chat_template, const std::string& where);

}  // namespace quire
