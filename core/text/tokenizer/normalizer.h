// Normalizer: the changes that a model's file makes to a text before splitting it (NFC, replacements, a prefix).
// Immutable after construction; any thread (each with a Matcher of its own).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/text/tokenizer/character_map.h"
#include "core/text/tokenizer/regex.h"
#include "core/text/unicode.h"

namespace quire {

class Normalizer {
 public:
  struct Normalize {
    unicode::Form form;
  };
  struct Lowercase {};
  struct StripMarks {};
  struct Replace {
    Regex pattern;
    std::string content;
  };
  struct ReplaceCharacter {  // the common case, " " by "▁", without a search engine
    char from;
    std::string to;
  };
  struct Prepend {
    std::string prefix;
  };
  struct Strip {
    bool left = true;
    bool right = true;
  };
  // BERT's normalizer: each step can be off.
  struct Bert {
    bool clean = true;             // no control characters, every white space a space
    bool separate_chinese = true;  // a space around each ideograph
    bool strip_accents = true;
    bool lowercase = true;
  };
  struct Nmt {};  // SentencePiece's "nmt" rules: invisible characters vanish or become spaces
  struct MapCharacters {
    CharacterMap map;
  };
  // SentencePiece's spaces: each becomes a mark; of `collapse`d ones only those before a word remain.
  struct MarkSpaces {
    std::string mark;
    bool prefix = false;  // the text begins with a mark
    bool collapse = false;
  };
  using Step = std::variant<Normalize, Lowercase, StripMarks, Replace, ReplaceCharacter, Prepend, Strip, Bert, Nmt,
                            MapCharacters, MarkSpaces>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  // How many times longer than the normalised text the text can be, in bytes; nullopt: without bound.
  std::optional<std::size_t> largest_shrinkage() const;

  // The normalised text; an empty one stays empty (no prefix).
  std::string apply(std::string_view text, Regex::Matcher& matcher) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace quire
