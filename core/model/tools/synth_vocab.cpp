#include "core/model/tools/synth_vocab.h"

#include <fmt/core.h>

#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "kernels/check.h"

namespace quire {

namespace {

// GGUF's token types.
constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kControlType = 3;
constexpr std::int32_t kUnused = 5;

// Words in every vocabulary, written as in running text: each is also a token after a space.
constexpr std::string_view kWords[] = {
    "the",  "and", "of",   "to",  "in",  "is",   "that", "it",    "for",  "as",   "was",
    "with", "be",  "by",   "on",  "not", "this", "are",  "or",    "from", "at",   "an",
    "have", "had", "they", "you", "one", "all",  "were", "there", "can",  "said",
};

std::string utf8(std::uint32_t code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xC0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 0x3F))};
}

// The character that stands for a byte in byte-level BPE (GPT-2): printable Latin-1 for itself, the rest from U+0100
// on.
std::vector<std::string> byte_alphabet() {
  std::vector<std::string> out;
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    out.push_back(utf8(itself ? byte : next++));
  }
  return out;
}

class Builder {
 public:
  explicit Builder(std::int64_t size) : size_(static_cast<std::size_t>(size)) {
    const std::vector<std::string> alphabet = byte_alphabet();
    for (std::size_t byte = 0; byte < alphabet.size(); ++byte) {
      add(alphabet[byte], kNormal,
          byte >= 0x20 && byte < 0x7F ? SynthVocab::Kind::kPlainAscii : SynthVocab::Kind::kOtherBytes);
    }
    for (const std::string_view word : kWords)
      add_word_in_text(word, alphabet[' ']);
    if (size >= kWordySynthVocab) {
      for (const std::string_view word : kCommonWords)
        add_word_in_text(word, alphabet[' ']);
    }
    vocab_.end_of_text = add_control("<|endoftext|>");
    add_control("<|im_start|>");
    vocab_.end_of_turn = add_control("<|im_end|>");
    QUIRE_CHECK(vocab_.tokens.size() <= size_, "kMinSynthVocab holds the words");
    for (std::size_t i = 0; vocab_.tokens.size() < size_; ++i) {
      add(fmt::format("[PAD{}]", i), kUnused, SynthVocab::Kind::kControl);
    }
  }

  SynthVocab take() { return std::move(vocab_); }

 private:
  void add(const std::string& token, std::int32_t type, SynthVocab::Kind kind) {
    vocab_.tokens.push_back(token);
    vocab_.types.push_back(type);
    vocab_.kinds.push_back(kind);
    known_.insert(token);
  }
  std::uint32_t add_control(const std::string& token) {
    add(token, kControlType, SynthVocab::Kind::kControl);
    return static_cast<std::uint32_t>(vocab_.tokens.size() - 1);
  }
  void add_word_in_text(std::string_view word, const std::string& space) {
    std::vector<std::string> pieces;
    for (const char letter : word)
      pieces.emplace_back(1, letter);
    add_word(pieces);
    pieces.insert(pieces.begin(), space);
    add_word(std::move(pieces));
  }
  // Adds merges at the end until they make the word one token: other words' merges come first, as they will when it is
  // tokenized.
  void add_word(std::vector<std::string> pieces) {
    for (merge(pieces); pieces.size() > 1; merge(pieces)) {
      ranks_.emplace(std::pair(pieces[0], pieces[1]), vocab_.merges.size());
      vocab_.merges.push_back(pieces[0] + ' ' + pieces[1]);
      const std::string joined = pieces[0] + pieces[1];
      if (!known_.contains(joined)) add(joined, kNormal, SynthVocab::Kind::kPlainAscii);
    }
  }
  // Byte pair encoding: applies the merge of lowest rank until none applies.
  void merge(std::vector<std::string>& pieces) const {
    for (;;) {
      std::size_t best = ranks_.size();
      std::size_t place = 0;
      for (std::size_t i = 0; i + 1 < pieces.size(); ++i) {
        const auto found = ranks_.find({pieces[i], pieces[i + 1]});
        if (found == ranks_.end() || found->second >= best) continue;
        best = found->second;
        place = i;
      }
      if (best == ranks_.size()) return;
      pieces[place] += pieces[place + 1];
      pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    }
  }

  std::size_t size_;
  SynthVocab vocab_;
  std::set<std::string> known_;
  std::map<std::pair<std::string, std::string>, std::size_t> ranks_;  // rank of each merge
};

}  // namespace

const char* const kSynthChatTemplate =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

SynthVocab make_synth_vocab(std::int64_t size) {
  QUIRE_CHECK(size >= kMinSynthVocab, "a synthetic vocabulary has room for its words");
  return Builder(size).take();
}

}  // namespace quire
