// A prompt with media: the rendered text is cut at the marks, and the layout of each piece takes its mark's place. Pure
// functions; any thread; meant for text threads.
#pragma once

#include <span>
#include <vector>

#include "server/api/conversation/chat_prompt.h"
#include "server/api/conversation/media_list.h"

namespace quire {

struct MediaPrompt {
  std::vector<TokenId> tokens;  // placeholders at the rows of media
  std::vector<MediaRun> media;  // ordered by first row
  std::size_t num_marks = 0;    // marks in the text
};

// encode_prompt() for texts with marks of `media`, all of whose pieces were read.
Result<MediaPrompt> encode_media_prompt(std::span<const TextPiece> pieces, bool add_special, bool truncated,
                                        const ServedModel& model, const std::string& prompt_param,
                                        const MediaList& media);
// Encodes a conversation's prompt, with or without media.
Result<MediaPrompt> encode_rendered(std::span<const TextPiece> pieces, const ChatPromptFields& prompt,
                                    const ServedModel& model);

}  // namespace quire
