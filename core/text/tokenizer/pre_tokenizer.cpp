#include "core/text/tokenizer/pre_tokenizer.h"

#include <algorithm>

#include "core/text/unicode.h"

namespace quire {
namespace {

using Word = PreTokenizer::Word;

struct Piece {
  Word span;
  bool matched = false;
};

// Forms words from the pieces of a word by a SplitBehavior.
class Gatherer {
 public:
  Gatherer(SplitBehavior behavior, std::vector<Word>& out) : behavior_(behavior), first_(out.size()), out_(out) {}

  void add(const Piece& piece) {
    if (piece.span.begin == piece.span.end) return;
    const bool has_previous = out_.size() > first_;
    bool joins = false;
    switch (behavior_) {
      case SplitBehavior::kIsolated: break;
      case SplitBehavior::kRemoved:
        if (piece.matched) return;
        break;
      case SplitBehavior::kContiguous: joins = piece.matched == previous_matched_; break;
      case SplitBehavior::kMergedWithPrevious: joins = piece.matched && !previous_matched_; break;
      // A match waits for the next piece, which is joined to it unless it is a match.
      case SplitBehavior::kMergedWithNext: joins = !piece.matched && previous_matched_; break;
    }
    previous_matched_ = piece.matched;
    if (joins && has_previous) {
      out_.back().end = piece.span.end;
    } else {
      out_.push_back(piece.span);
    }
  }

 private:
  SplitBehavior behavior_;
  bool previous_matched_ = false;
  std::size_t first_;
  std::vector<Word>& out_;
};

void split_word(std::string_view text, Word word, const PreTokenizer::Split& step, Regex::Matcher& matcher,
                std::size_t most, std::vector<Word>& out) {
  const std::string_view subject = text.substr(word.begin, word.end - word.begin);
  Gatherer gatherer(step.behavior, out);
  std::size_t done = 0;
  while (done < subject.size()) {
    if (out.size() > most) return;
    const auto match = matcher.find(step.pattern, subject, done);
    if (!match) break;
    gatherer.add({{word.begin + done, word.begin + match->begin}, step.invert});
    gatherer.add({{word.begin + match->begin, word.begin + match->end}, !step.invert});
    done = match->end;
  }
  gatherer.add({{word.begin + done, word.end}, step.invert});
}

// Cuts a word's runs of digits into groups of three.
void group_digits(std::string_view text, Word word, const PreTokenizer::DigitGroups& step, std::vector<Word>& out) {
  const auto is_digit = [&](char32_t code) {
    return step.any_number ? unicode::is_number(code) : unicode::is_decimal(code);
  };
  std::size_t done = word.begin;
  std::vector<std::size_t> digits;  // begins of the run's digits
  const auto end_run = [&](std::size_t end, bool word_follows) {
    if (!digits.empty() && !(step.before_word_end && word_follows)) {
      if (digits.front() > done) out.push_back({done, digits.front()});
      digits.push_back(end);
      const std::size_t count = digits.size() - 1;
      for (std::size_t from = 0; from < count;) {
        const std::size_t size = from == 0 && count % 3 != 0 ? count % 3 : 3;
        out.push_back({digits[from], digits[from + size]});
        from += size;
      }
      done = end;
    }
    digits.clear();
  };
  for (std::size_t at = word.begin; at < word.end;) {
    const auto decoded = unicode::decode(text.substr(at));
    if (is_digit(decoded.code)) {
      digits.push_back(at);
    } else {
      end_run(at, unicode::is_word(decoded.code));
    }
    at += decoded.length;
  }
  end_run(word.end, false);
  if (done < word.end) out.push_back({done, word.end});
}

// Applies one step to the words; steps that change the text make a new one.
class StepRunner {
 public:
  StepRunner(PreTokenizer::Words& words, bool at_start, Regex::Matcher& matcher, std::size_t most)
      : words_(words), at_start_(at_start), matcher_(matcher), most_(most) {}

  void operator()(const PreTokenizer::Split& step) {
    std::vector<Word> cut;
    cut.reserve(std::min(std::max<std::size_t>(words_.words.size(), words_.text.size() / 4), most_));
    for (const Word word : words_.words) {
      if (cut.size() > most_) break;
      split_word(words_.text, word, step, matcher_, most_, cut);
    }
    words_.words = std::move(cut);
  }

  void operator()(const PreTokenizer::DigitGroups& step) {
    std::vector<Word> cut;
    for (const Word word : words_.words)
      group_digits(words_.text, word, step, cut);
    words_.words = std::move(cut);
  }

  void operator()(const PreTokenizer::PrefixSpace&) {
    rewrite([](std::string_view word, bool, std::string& out, std::vector<Word>& cut) {
      const std::size_t begin = out.size();
      if (word.front() != ' ') out += ' ';
      out += word;
      cut.push_back({begin, out.size()});
    });
  }

  void operator()(const PreTokenizer::ToByteAlphabet&) {
    rewrite([](std::string_view word, bool, std::string& out, std::vector<Word>& cut) {
      const std::size_t begin = out.size();
      for (const char byte : word)
        unicode::append(out, unicode::byte_to_char(static_cast<std::uint8_t>(byte)));
      cut.push_back({begin, out.size()});
    });
    in_alphabet_ = true;
  }

  void operator()(const PreTokenizer::Metaspace& step) {
    rewrite([&](std::string_view word, bool first, std::string& out, std::vector<Word>& cut) {
      std::size_t begin = out.size();
      const bool wanted = step.scheme == PrependScheme::kAlways || (step.scheme == PrependScheme::kFirst && first);
      if (wanted && word.front() != ' ' && !word.starts_with(step.replacement)) out += step.replacement;
      for (std::size_t at = 0; at < word.size();) {
        const bool space = word[at] == ' ';
        const bool marks = space || word.substr(at).starts_with(step.replacement);
        if (step.split && marks && out.size() > begin) {
          cut.push_back({begin, out.size()});
          begin = out.size();
        }
        const std::size_t length = space || !marks ? 1 : step.replacement.size();
        out += space ? std::string_view(step.replacement) : word.substr(at, length);
        at += length;
      }
      cut.push_back({begin, out.size()});
    });
  }

  // Words in the byte alphabet become the bytes they stand for.
  void finish() {
    if (!in_alphabet_) return;
    rewrite([](std::string_view word, bool, std::string& out, std::vector<Word>& cut) {
      const std::size_t begin = out.size();
      out += unicode::bytes_from_alphabet(word).value_or(std::string(word));
      cut.push_back({begin, out.size()});
    });
  }

 private:
  template <class Write>
  void rewrite(const Write& write) {
    std::string out;
    out.reserve(words_.text.size() + words_.text.size() / 2);
    std::vector<Word> cut;
    for (const Word word : words_.words) {
      write(words_.text.substr(word.begin, word.end - word.begin), at_start_ && word.begin == 0, out, cut);
    }
    words_.rewritten = std::move(out);
    words_.text = words_.rewritten;
    words_.words = std::move(cut);
  }

  PreTokenizer::Words& words_;
  bool at_start_;
  bool in_alphabet_ = false;
  Regex::Matcher& matcher_;
  std::size_t most_;
};

}  // namespace

bool PreTokenizer::never_drops() const {
  return std::none_of(steps_.begin(), steps_.end(), [](const Step& step) {
    const auto* const split = std::get_if<Split>(&step);
    const auto* const metaspace = std::get_if<Metaspace>(&step);
    return (split != nullptr && split->behavior == SplitBehavior::kRemoved) ||
           (metaspace != nullptr && metaspace->replacement.empty());
  });
}

void add_bert_steps(PreTokenizer& pre_tokenizer) {
  pre_tokenizer.add(PreTokenizer::Split{Regex::compile("\\s"), SplitBehavior::kRemoved});
  pre_tokenizer.add(PreTokenizer::Split{Regex::compile(kPunctuationPattern)});
}

void PreTokenizer::split(std::string_view fragment, bool at_start, Regex::Matcher& matcher, Words& words,
                         std::size_t most) const {
  words.text = fragment;
  words.words.clear();
  if (fragment.empty()) return;
  words.words.push_back({0, fragment.size()});
  StepRunner run(words, at_start, matcher, most);
  for (const Step& step : steps_)
    std::visit(run, step);
  run.finish();
}

}  // namespace quire
