#include "core/model/synth_vocab.h"

#include <fmt/core.h>

#include <set>
#include <string_view>

#include "kernels/check.h"

namespace quire {

namespace {

// GGUF's token types.
constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kControlType = 3;
constexpr std::int32_t kUnused = 5;

// Written as in running text: each also stands for itself after a space.
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
    for (const std::string_view word : kWords) {
      add_word(word, "");
      add_word(word, alphabet[' ']);
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
  // Merges letter by letter, so that each prefix is a token.
  void add_word(std::string_view word, const std::string& start) {
    std::string prefix = start;
    for (const char letter : word) {
      if (!prefix.empty() && !known_.contains(prefix + letter)) {
        vocab_.merges.push_back(prefix + ' ' + letter);
        add(prefix + letter, kNormal, SynthVocab::Kind::kPlainAscii);
      }
      prefix += letter;
    }
  }

  std::size_t size_;
  SynthVocab vocab_;
  std::set<std::string> known_;
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
