// ChatReading: how the texts of a conversation's answers are read. ChatReader: one choice's text, as it comes, into
// content, reasoning and tool calls, for any API's shape. One thread at a time. Invariant: every call has an id of its
// own, on its first delta, whether its format has one or not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tools/output_parser.h"

namespace quire {

struct ChatReading {
  const ToolFormat* format = nullptr;  // null: the text is content as it stands
  std::vector<ToolSpec> tools;
  OutputParserOptions options;
  bool short_ids = false;  // calls get ids of nine letters, which the template demands in the next turn
  std::string id_tail;     // of calls' ids, before their places; empty: they are random
};

class ChatReader {
 public:
  explicit ChatReader(const ChatReading& reading);

  // `num_tokens`: how many made this text. `last`: no more comes.
  // In the order of the text; at least one.
  std::vector<OutputDelta> read(std::string_view text, std::size_t num_tokens, bool last);

  std::size_t num_calls() const { return num_calls_; }
  std::int64_t num_reasoning_tokens() const { return num_reasoning_tokens_; }

 private:
  bool short_ids_;
  std::string id_tail_;
  std::unique_ptr<OutputParser> parser_;  // null: content as it stands
  std::size_t num_calls_ = 0;
  std::int64_t num_reasoning_tokens_ = 0;
};

}  // namespace quire
