// A small byte-level BPE vocabulary that tokenizes any text, for synthetic models. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire {

struct SynthVocab {
  // What a token's text looks like once sampled; rows of the embedding are scaled by it.
  enum class Kind : std::uint8_t { kPlainAscii, kOtherBytes, kControl };

  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;  // GGUF token types
  std::vector<Kind> kinds;
  std::vector<std::string> merges;
  std::uint32_t end_of_text = 0;
  std::uint32_t end_of_turn = 0;
};

// The 256 bytes, common English words with the merges that build them, ChatML's control tokens, then unused tokens up
// to `size`. size: at least kMinSynthVocab.
SynthVocab make_synth_vocab(std::int64_t size);

inline constexpr std::int64_t kMinSynthVocab = 512;

extern const char* const kSynthChatTemplate;

}  // namespace quire
