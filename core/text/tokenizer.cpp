#include "core/text/tokenizer.h"

namespace quire {

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool add_special, bool parse_special) const {
  const TextPiece piece{std::string(text), parse_special};
  return encode(std::span(&piece, 1), add_special);
}

std::optional<std::vector<TokenId>> Tokenizer::encode_at_most(std::span<const TextPiece> pieces, bool add_special,
                                                              std::size_t most) const {
  auto tokens = encode(pieces, add_special);
  if (tokens.size() > most) return std::nullopt;
  return tokens;
}

}  // namespace quire
