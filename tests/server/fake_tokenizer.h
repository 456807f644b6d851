// A tokenizer whose tokens are bytes, with four special tokens above them; and the model around it. Immutable; any
// thread.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "core/text/tokenizer.h"
#include "server/api/common/served_model.h"

namespace quire::test {

inline constexpr TokenId kBos{256};
inline constexpr TokenId kEos{257};
inline constexpr TokenId kImStart{258};
inline constexpr TokenId kImEnd{259};

class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer();
  using Tokenizer::encode;
  std::vector<TokenId> encode(std::span<const TextPiece> pieces, bool add_special) const override;
  std::int32_t vocab_size() const override { return 260; }
  std::string_view token_bytes(TokenId id) const override;
  bool is_special(TokenId id) const override { return id.value >= 256 && id.value < vocab_size(); }
  std::optional<TokenId> find_token(std::string_view text) const override;
  std::optional<TokenId> bos() const override { return kBos; }
  std::span<const TokenId> end_of_generation() const override { return ends_; }
  bool strips_leading_space() const override { return false; }

 private:
  std::array<std::string, 260> texts_;
  std::array<TokenId, 2> ends_{kEos, kImEnd};
};

// A model called "fake", alias "gpt-fake", with the default chat template.
std::shared_ptr<ServedModel> fake_model(RequestQueue& queue, std::int64_t max_model_len = 2048);

// Each byte of `text` as a token.
std::vector<TokenId> bytes(std::string_view text);

}  // namespace quire::test
