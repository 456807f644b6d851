// A small byte-level BPE vocabulary that tokenizes any text, for synthetic models. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct SynthVocab {
  // Form of a token's text once sampled; rows of the embedding are scaled by it.
  enum class Kind : std::uint8_t { kPlainAscii, kOtherBytes, kControl };

  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;  // GGUF token types
  std::vector<Kind> kinds;
  std::vector<std::string> merges;
  std::uint32_t end_of_text = 0;
  std::uint32_t end_of_turn = 0;
};

// The 256 bytes, common English words with the merges that build them, ChatML's control tokens, then unused tokens up
// to `size`. size: at least kMinSynthVocab; from kWordySynthVocab on with all of kCommonWords.
SynthVocab make_synth_vocab(std::int64_t size);

inline constexpr std::int64_t kMinSynthVocab = 512;
inline constexpr std::int64_t kWordySynthVocab = 4096;

// Words that are a token each after a space, in the usual vocabularies and in a synthetic one: prompts of load runs
// consist of them, so that they have the requested length.
inline constexpr std::array<std::string_view, 64> kCommonWords = {
    "time",    "year",   "people",   "way",      "day",     "man",     "thing", "woman", "life",    "child",  "world",
    "school",  "state",  "family",   "group",    "country", "problem", "hand",  "part",  "place",   "case",   "week",
    "company", "system", "program",  "question", "work",    "number",  "night", "point", "home",    "water",  "room",
    "mother",  "area",   "money",    "story",    "fact",    "month",   "lot",   "right", "study",   "book",   "eye",
    "job",     "word",   "business", "issue",    "side",    "kind",    "head",  "house", "service", "friend", "father",
    "power",   "hour",   "game",     "line",     "end",     "member",  "law",   "car",   "city"};

extern const char* const kSynthChatTemplate;

}  // namespace quire
