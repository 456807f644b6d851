// The pieces that the kinds of GGUF vocabularies share, and the makers of those that encoders use. All functions throw
// StartupError if the data contradict themselves. Any thread.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer/text_tokenizer.h"
#include "core/text/tokenizer_data.h"

namespace quire {

inline constexpr std::string_view kSpaceMark = "▁";

// Tokens that a kind of vocabulary adds around a text if the file does not say.
struct SpecialDefaults {
  bool add_bos = false;
  bool add_eos = false;
  bool add_separator = false;
};

TokenKind kind_of(const VocabularyData& data, std::size_t id);
bool is_special_kind(TokenKind kind);  // control and unknown tokens

// All parts except the model, the bytes and the cutting of texts.
TextTokenizerParts common_parts(const VocabularyData& data, const SpecialDefaults& defaults);

std::string with_spaces(std::string_view text);  // replaces space marks by spaces
void check_scores(const VocabularyData& data);
// The texts that the model spells with, by id; fills `byte_tokens` and the parts' bytes.
std::vector<std::string> read_texts(const VocabularyData& data, TextTokenizerParts& parts,
                                    std::array<std::int32_t, 256>& byte_tokens);

std::shared_ptr<const Tokenizer> make_word_piece(const VocabularyData& data);
std::shared_ptr<const Tokenizer> make_unigram(const VocabularyData& data);

}  // namespace quire
