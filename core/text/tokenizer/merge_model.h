// MergeModel: turns a word into tokens by merging neighbours, best pair first, leftmost among equals. It serves
// byte-level BPE, character BPE and SentencePiece's score-driven merging, which differ only in the source of the pairs
// and their ranks. Immutable after construction; any thread, each with a Scratch of its own. Invariant: time is O(n log
// n) in the length of any word.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/text/tokenizer/read/symbol_tables.h"

namespace quire {

struct MergeOptions {
  bool byte_level = false;                      // words are bytes; else UTF-8 characters
  bool ignore_merges = false;                   // a word that is a token is that token
  bool whole_lines = false;                     // ... if it begins with a line break
  bool byte_fallback = false;                   // an unknown character becomes its bytes' tokens, if all of them exist
  bool fuse_unknown = false;                    // neighbouring unknown characters share one unknown token
  std::int32_t unknown = -1;                    // its id; -1: unknown characters are left out
  std::array<std::int32_t, 256> byte_tokens{};  // ids for byte_fallback; -1: none
};

class MergeModel {
 public:
  // `texts`: each token's text by id (bytes if byte_level); tokens with an empty text, control tokens, are never a
  // merge's result. `merges`: pairs, best first. A merge whose result is not a token still merges; its characters are
  // emitted.
  MergeModel(std::span<const std::string> texts, std::span<const std::pair<std::string, std::string>> merges,
             MergeOptions options);
  // SentencePiece: two neighbours whose texts together are a token merge, the best score first.
  static MergeModel from_scores(std::span<const std::string> texts, std::span<const float> scores,
                                MergeOptions options);

  // Whether every byte of a word is part of a token, and unknown characters never share one.
  bool covers_every_byte() const;

  struct Scratch;
  struct ScratchDeleter {
    void operator()(Scratch*) const;
  };
  using ScratchPtr = std::unique_ptr<Scratch, ScratchDeleter>;
  // `text_bytes`: approximate size of the text to encode; sizes its cache of words.
  ScratchPtr make_scratch(std::size_t text_bytes) const;

  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  struct Symbol {
    std::int32_t id;
    std::uint32_t begin;  // offset in the segment
  };

  MergeModel(std::span<const std::string> texts, MergeOptions options);
  void add_pair(std::string_view left, std::string_view right, std::uint32_t rank);
  std::int32_t symbol_of(std::string_view text);
  void learn_neighbours(std::string_view text);
  void find_first_symbols();

  void encode_segment(std::string_view segment, Scratch& scratch, std::vector<TokenId>& out) const;
  void load_symbols(std::string_view segment, Scratch& scratch) const;
  void merge_short(std::vector<Symbol>& symbols, std::vector<std::uint32_t>& ranks) const;
  void merge_long(Scratch& scratch) const;
  void emit(std::string_view segment, Scratch& scratch, std::vector<TokenId>& out) const;
  void emit_characters(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const;
  void emit_unknown(std::string_view character, Scratch& scratch, std::vector<TokenId>& out) const;

  MergeOptions options_;
  std::int32_t num_tokens_ = 0;
  std::int32_t num_symbols_ = 0;  // tokens and intermediate results
  TextIndex index_;               // texts to symbols: tokens, then intermediate results
  PairTable pairs_;
  std::array<std::int32_t, 256> first_symbols_{};  // symbols of single bytes, or of ASCII characters
  CharacterPairs neighbours_;                      // pairs of characters that are neighbours inside some token
};

}  // namespace quire
