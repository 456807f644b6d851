#include "server/api/conversation/media_prompt.h"

#include <fmt/core.h>

#include <utility>

#include "server/api/generation/prompt_fit.h"

namespace quire {

namespace {

class PromptBuilder {
 public:
  PromptBuilder(const ServedModel& model, bool add_special, std::int64_t most, const std::string& param)
      : model_(model), add_special_(add_special), most_(most), param_(param) {}

  void add_text(std::string_view text, bool trusted) {
    if (!text.empty()) texts_.push_back({std::string(text), trusted});
  }

  Result<void> add_media(const MediaRead& read) {
    std::int64_t first_row = 0;
    for (const LayoutPart& part : read.layout.parts) {
      if (auto encoded = part.text.empty() ? Result<void>() : add_own_text(part.text); !encoded) return encoded;
      if (part.num_rows == 0) continue;
      if (auto encoded = encode_texts(); !encoded) return encoded;
      if (std::ssize(prompt_.tokens) + part.num_rows > most_)
        return tl::make_unexpected(far_too_long(model_, most_, param_));
      prompt_.media.push_back({std::ssize(prompt_.tokens), part.num_rows, first_row, part.grid_width, part.grid_height,
                               part.num_positions, part.is_bidirectional, read.key, read.piece});
      for (std::int64_t row = 0; row < part.num_rows; ++row)
        prompt_.tokens.push_back(media_placeholder(first_row + row));
      first_row += part.num_rows;
    }
    return {};
  }

  // Encodes the texts collected so far: those before and after a piece are separate, like those of its layout.
  Result<void> encode_texts() {
    if (texts_.empty() && !add_special_) return {};
    const auto room = static_cast<std::size_t>(most_ - std::ssize(prompt_.tokens));
    const auto tokens = model_.tokenizer->encode_at_most(texts_, std::exchange(add_special_, false), room);
    texts_.clear();
    if (!tokens) return tl::make_unexpected(far_too_long(model_, most_, param_));
    prompt_.tokens.insert(prompt_.tokens.end(), tokens->begin(), tokens->end());
    return {};
  }

  MediaPrompt take() { return std::move(prompt_); }

 private:
  Result<void> add_own_text(const std::string& text) {
    if (auto encoded = encode_texts(); !encoded) return encoded;
    add_text(text, true);
    return encode_texts();
  }

  const ServedModel& model_;
  bool add_special_;
  const std::int64_t most_;
  const std::string& param_;
  std::vector<TextPiece> texts_;
  MediaPrompt prompt_;
};

// Joins neighbours of equal trust, because a template may have divided a mark between them.
std::vector<TextPiece> joined(std::span<const TextPiece> pieces) {
  std::vector<TextPiece> out;
  for (const TextPiece& piece : pieces) {
    if (!out.empty() && out.back().trusted == piece.trusted) {
      out.back().text += piece.text;
    } else {
      out.push_back(piece);
    }
  }
  return out;
}

}  // namespace

Result<MediaPrompt> encode_media_prompt(std::span<const TextPiece> pieces, bool add_special, bool truncated,
                                        const ServedModel& model, const std::string& prompt_param,
                                        const MediaList& media) {
  const std::int64_t most = truncated ? most_read_tokens(model) : most_counted_tokens(model);
  PromptBuilder builder(model, add_special, most, prompt_param);
  std::size_t num_found = 0;
  for (const TextPiece& piece : joined(pieces)) {
    std::size_t from = 0;
    while (const auto mark = media.find_mark(piece.text, from)) {
      builder.add_text(std::string_view(piece.text).substr(from, mark->begin - from), piece.trusted);
      const MediaRead& read = media.pieces()[mark->index];
      builder.add_text(read.substitute, false);
      if (auto added = read.substitute.empty() ? builder.add_media(read) : Result<void>(); !added)
        return tl::make_unexpected(added.error());
      from = mark->end;
      ++num_found;
    }
    builder.add_text(std::string_view(piece.text).substr(from), piece.trusted);
  }
  if (auto encoded = builder.encode_texts(); !encoded) return tl::make_unexpected(encoded.error());
  MediaPrompt prompt = builder.take();
  prompt.num_marks = num_found;
  return prompt;
}

Result<MediaPrompt> encode_rendered(std::span<const TextPiece> pieces, const ChatPromptFields& prompt,
                                    const ServedModel& model) {
  if (!prompt.media || prompt.media->empty()) {
    auto tokens = encode_prompt(pieces, prompt.add_special_tokens, !prompt.is_bounded, model, prompt.param);
    if (!tokens) return tl::make_unexpected(tokens.error());
    return MediaPrompt{*std::move(tokens), {}, 0};
  }
  auto encoded =
      encode_media_prompt(pieces, prompt.add_special_tokens, !prompt.is_bounded, model, prompt.param, *prompt.media);
  if (encoded && encoded->num_marks == 0 && prompt.media->has_marks(prompt.messages))
    return invalid("The model's chat template does not show the images of this conversation", prompt.param,
                   "unsupported_content");
  return encoded;
}

}  // namespace quire
