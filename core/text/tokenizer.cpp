#include "core/text/tokenizer.h"

namespace quire {

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool add_special, bool parse_special) const {
  const TextPiece piece{std::string(text), parse_special};
  return encode(std::span(&piece, 1), add_special);
}

}  // namespace quire
