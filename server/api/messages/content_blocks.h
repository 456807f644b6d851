// ContentBlocks: one answer's reasoning, text and tool calls as Anthropic's content blocks: events of a stream, or the
// whole list. One thread at a time. Invariants: one block is open at a time; no text block is only white space; a
// block's deltas add up to the block of the list.
#pragma once

#include <string>
#include <string_view>

#include "core/text/tools/output_parser.h"
#include "server/api/common/json.h"

namespace quire {

class ContentBlocks {
 public:
  // `streams`: writes events; otherwise collects the blocks. `shows_thinking`: false leaves thinking blocks empty.
  ContentBlocks(bool streams, bool shows_thinking) : streams_(streams), shows_thinking_(shows_thinking) {}

  void add(const OutputDelta& delta, std::string& out);
  void finish(std::string& out) { close(out); }

  // The collected blocks: `content` of a message.
  Json take() { return std::move(blocks_); }

 private:
  enum class Kind { kNone, kThinking, kText, kToolUse };

  void add_thinking(std::string_view text, std::string& out);
  void add_text(std::string_view text, std::string& out);
  void add_call(const ToolCallDelta& call, std::string& out);
  void open(Kind kind, Json block, std::string& out);
  void append(const char* type, const char* member, std::string_view text, std::string& out);
  void close(std::string& out);

  const bool streams_;
  const bool shows_thinking_;
  Kind kind_ = Kind::kNone;
  std::size_t num_closed_ = 0;
  std::size_t call_ = 0;  // the open tool_use's index among the calls
  std::string white_;     // white space that may open a text block
  Json block_;            // the open block, if blocks are collected
  std::string text_;      // its text or arguments
  Json blocks_ = Json::array();
};

}  // namespace quire
