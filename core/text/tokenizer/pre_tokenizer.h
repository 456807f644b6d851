// PreTokenizer: cuts a text into the words that a model's merges stay within. Immutable after construction; any thread
// (each with a Matcher of its own). Invariant: words are in order, do not overlap and are never empty; only a step that
// removes text leaves any out.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/text/tokenizer/regex.h"

namespace quire {

// Treatment of a pattern's matches, in the terms of tokenizer.json.
enum class SplitBehavior : std::uint8_t { kIsolated, kRemoved, kContiguous, kMergedWithPrevious, kMergedWithNext };

enum class PrependScheme : std::uint8_t { kAlways, kFirst, kNever };

class PreTokenizer {
 public:
  struct Word {
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  // Cuts by a pattern; with `invert` the text between matches counts as matched.
  struct Split {
    Regex pattern;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
  };
  // Cuts each run of digits into groups of three, the first one shorter: counted from the run's end.
  struct DigitGroups {
    bool any_number = false;       // every Unicode number, not only decimal digits
    bool before_word_end = false;  // only runs not followed by a word character
  };
  // Puts a space before each word that has none.
  struct PrefixSpace {};
  // From here on the words are bytes written in GPT-2's alphabet. Needed only before another step.
  struct ToByteAlphabet {};
  // Spaces become `replacement`, which the scheme also puts in front; words then begin at each replacement if `split`.
  struct Metaspace {
    std::string replacement;
    PrependScheme scheme = PrependScheme::kAlways;
    bool split = true;
  };
  using Step = std::variant<Split, DigitGroups, PrefixSpace, ToByteAlphabet, Metaspace>;

  // The words of one fragment and the text they are spans of: the fragment, or a copy that a step rewrote.
  struct Words {
    std::string_view text;
    std::string rewritten;
    std::vector<Word> words;
  };

  void add(Step step) { steps_.push_back(std::move(step)); }
  // Whether all of a text is in some word.
  bool never_drops() const;
  // `at_start`: the fragment begins the whole text. `words` is reused: its memory is kept between calls. If there are
  // more than `most` words, some beyond these may be left out; only for steps that never drop text.
  void split(std::string_view fragment, bool at_start, Regex::Matcher& matcher, Words& words,
             std::size_t most = std::numeric_limits<std::size_t>::max()) const;

 private:
  std::vector<Step> steps_;
};

// The pre-tokenizers that GGUF files name in tokenizer.ggml.pre.
struct NamedPreTokenizer {
  PreTokenizer pre_tokenizer;
  bool ignore_merges = false;  // a word that is a token becomes that token, without merges
  bool add_bos = false;        // used if the file does not say
  bool nfc = false;            // the model's own tokenizer normalises to NFC first
  bool add_separator = false;  // put between the texts of a pair if the file does not say
};

// Throws StartupError for a name that is not known.
NamedPreTokenizer make_pre_tokenizer(std::string_view name);

// BERT's cuts: at white space, which is dropped, and around punctuation.
void add_bert_steps(PreTokenizer& pre_tokenizer);

// Punctuation by the definition of Hugging Face's tokenizers: Unicode's, and all ASCII that is neither letter nor
// digit.
inline constexpr std::string_view kPunctuationPattern = "[\\p{P}!-/:-@\\[-`{-~]";

inline constexpr std::string_view kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

}  // namespace quire
