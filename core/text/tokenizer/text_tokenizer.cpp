#include "core/text/tokenizer/text_tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/text/unicode.h"

namespace quire {
namespace {

constexpr std::array<std::string_view, 23> kEndTexts = {"<|eot_id|>",
                                                        "<|eom_id|>",
                                                        "<|im_end|>",
                                                        "<|end|>",
                                                        "<|endoftext|>",
                                                        "<|end_of_text|>",
                                                        "<end_of_turn>",
                                                        "<|end_of_turn|>",
                                                        "<|end▁of▁sentence|>",
                                                        "<｜end▁of▁sentence｜>",
                                                        "<EOT>",
                                                        "<|EOT|>",
                                                        "<|return|>",
                                                        "<|call|>",
                                                        "<|flush|>",
                                                        "<|calls|>",
                                                        "[EOT]",
                                                        "[EOS]",
                                                        "<end_of_utterance>",
                                                        "<eos>",
                                                        "<turn|>",
                                                        "<|tool_response>",
                                                        "[e~["};

// The pieces joined to a text, and its trusted ranges.
struct Joined {
  std::string text;
  std::vector<AddedTokens::Range> trusted;
};

Joined join(std::span<const TextPiece> pieces) {
  Joined joined;
  for (const TextPiece& piece : pieces) {
    const std::size_t begin = joined.text.size();
    if (unicode::is_valid(piece.text)) {
      joined.text += piece.text;
    } else {
      unicode::append_sanitized(joined.text, piece.text);
    }
    if (!piece.trusted) continue;
    if (!joined.trusted.empty() && joined.trusted.back().end == begin) {
      joined.trusted.back().end = joined.text.size();
    } else {
      joined.trusted.push_back({begin, joined.text.size()});
    }
  }
  return joined;
}

}  // namespace

struct TextTokenizer::Run {
  std::vector<TokenId>& out;
  std::size_t most;
  Regex::Matcher matcher;
  MergeModel::ScratchPtr merging;
  UnigramModel::Scratch unigram;
  PreTokenizer::Words words;

  void encode(const MergeModel& model, std::string_view word) { model.encode(word, *merging, out); }
  void encode(const UnigramModel& model, std::string_view word) { model.encode(word, unigram, out); }
  void encode(const WordPieceModel& model, std::string_view word) { model.encode(word, out); }
};

// If every byte of a text ends up in some token, the longest token bounds the text that a number of tokens can hold. A
// token's text in the vocabulary is at least as long as the text that it stands for.
TextTokenizer::TextTokenizer(TextTokenizerParts parts) : parts_(std::move(parts)) {
  const auto* const merging = std::get_if<MergeModel>(&*parts_.model);
  const auto shrinkage = parts_.normalizer.largest_shrinkage();
  const bool keeps_all = merging != nullptr && merging->covers_every_byte() && shrinkage &&
                         parts_.pre_tokenizer.never_drops() && !parts_.added.takes_spaces() &&
                         !parts_.added_normalized.takes_spaces();
  if (!keeps_all) return;
  longest_ = std::max({parts_.names.longest(), parts_.added.longest(), parts_.added_normalized.longest()}) * *shrinkage;
}

std::vector<TokenId> TextTokenizer::encode(std::span<const TextPiece> pieces, bool add_special) const {
  return *encode_at_most(pieces, add_special, std::numeric_limits<std::size_t>::max());
}

std::optional<std::vector<TokenId>> TextTokenizer::encode_at_most(std::span<const TextPiece> pieces, bool add_special,
                                                                  std::size_t most) const {
  const Joined joined = join(pieces);
  if (longest_ > 0 && joined.text.size() / longest_ > most) return std::nullopt;
  std::vector<TokenId> out;
  const SurroundingTokens& around = parts_.around;
  out.reserve(around.prefix.size() + std::min(joined.text.size() / 3, most) + around.suffix.size());
  if (add_special) out = around.prefix;
  std::vector<AddedTokens::Part> found;
  parts_.added.split(joined.text, joined.trusted, found);
  const auto* const merging = std::get_if<MergeModel>(&*parts_.model);
  Run run{out, most, {}, merging != nullptr ? merging->make_scratch(joined.text.size()) : nullptr, {}, {}};
  for (const auto& part : found) {
    if (out.size() > most) return std::nullopt;
    if (part.token >= 0) {
      out.push_back(TokenId{part.token});
    } else {
      const auto [begin, end] = part.range;
      encode_fragment(std::string_view(joined.text).substr(begin, end - begin), begin == 0, run);
    }
  }
  if (add_special) out.insert(out.end(), around.suffix.begin(), around.suffix.end());
  if (out.size() > most) return std::nullopt;
  return out;
}

void TextTokenizer::encode_fragment(std::string_view fragment, bool at_start, Run& run) const {
  if (parts_.normalizer.empty()) return encode_words(fragment, at_start, run);
  const std::string normalized = parts_.normalizer.apply(fragment, run.matcher);
  if (parts_.added_normalized.empty()) return encode_words(normalized, at_start, run);
  std::vector<AddedTokens::Part> found;
  parts_.added_normalized.split(normalized, {}, found);
  for (const auto& part : found) {
    if (part.token >= 0) {
      run.out.push_back(TokenId{part.token});
    } else {
      const auto [begin, end] = part.range;
      encode_words(std::string_view(normalized).substr(begin, end - begin), at_start && begin == 0, run);
    }
  }
}

void TextTokenizer::encode_words(std::string_view text, bool at_start, Run& run) const {
  // Each word yields a token at least, if no text is dropped.
  const std::size_t most_words = longest_ > 0 ? run.most : std::numeric_limits<std::size_t>::max();
  parts_.pre_tokenizer.split(text, at_start, run.matcher, run.words, most_words);
  std::visit(
      [&](const auto& model) {
        for (const auto [begin, end] : run.words.words) {
          if (run.out.size() > run.most) return;
          run.encode(model, run.words.text.substr(begin, end - begin));
        }
      },
      *parts_.model);
}

std::string_view TextTokenizer::token_bytes(TokenId id) const {
  if (id.value < 0 || id.value >= vocab_size()) return {};
  return parts_.bytes[static_cast<std::size_t>(id.value)];
}

bool TextTokenizer::is_special(TokenId id) const {
  return id.value >= 0 && id.value < vocab_size() && parts_.special[static_cast<std::size_t>(id.value)];
}

std::optional<TokenId> TextTokenizer::find_token(std::string_view text) const {
  const std::int32_t id = parts_.names.find(text);
  return id < 0 ? std::nullopt : std::optional(TokenId{id});
}

bool is_end_of_generation_text(std::string_view text) {
  return std::find(kEndTexts.begin(), kEndTexts.end(), text) != kEndTexts.end();
}

std::vector<TokenId> ends_by_text(const TextIndex& names) {
  const auto has = [&](std::string_view text) { return names.find(text) >= 0; };
  const bool ends_messages = (has("<|return|>") && has("<|call|>")) || (has("<|flush|>") && has("<|calls|>"));
  std::vector<TokenId> ends;
  for (const std::string_view text : kEndTexts) {
    const std::int32_t id = names.find(text);
    if (id >= 0 && !(ends_messages && text == "<|end|>")) ends.push_back(TokenId{id});
  }
  return ends;
}

void put_in_order(std::vector<TokenId>& ends, std::optional<TokenId> own) {
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  if (!own) return;
  std::erase(ends, *own);
  ends.insert(ends.begin(), *own);
}

std::optional<std::uint8_t> byte_token_value(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'A' && c <= 'F')) return std::nullopt;
    value = value * 16 + (digit ? c - '0' : c - 'A' + 10);
  }
  return static_cast<std::uint8_t>(value);
}

}  // namespace quire
