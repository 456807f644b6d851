// ChatReading: the settings for reading a conversation's answers. ChatReader: splits one choice's text, as it comes,
// into content, reasoning and tool calls, for any API's shape. One thread at a time. Invariant: every call has an id of
// its own, on its first delta, with or without ids in its format.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tools/output_parser.h"

namespace quire {

struct ChatReading {
  const ToolFormat* format = nullptr;  // null: the text is plain content
  std::vector<ToolSpec> tools;
  OutputParserOptions options;
  bool short_ids = false;  // calls get ids of nine letters, which the template demands in the next turn
  std::string id_tail;     // end of calls' ids, before their places; empty: random ids
};

class ChatReader {
 public:
  explicit ChatReader(const ChatReading& reading);

  // `num_tokens`: number of tokens in this text. `last`: no more text follows. Returns deltas in the order of the text;
  // at least one.
  std::vector<OutputDelta> read(std::string_view text, std::size_t num_tokens, bool last);

  std::size_t num_calls() const { return num_calls_; }
  std::int64_t num_reasoning_tokens() const { return num_reasoning_tokens_; }

 private:
  bool short_ids_;
  std::string id_tail_;
  std::unique_ptr<OutputParser> parser_;  // null: the text is plain content
  std::size_t num_calls_ = 0;
  std::int64_t num_reasoning_tokens_ = 0;
};

}  // namespace quire
