// ResponseItems: one answer's reasoning, text and tool calls as the Responses API's output items, and the events of a
// stream that report them. ResponseEvents: numbers and writes events. One thread at a time. Invariants: one item is
// open at a time; an item's events add up to the item; a message of white space alone is sent only if it is the whole
// output.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tools/output_parser.h"
#include "server/api/common/json.h"
#include "server/api/responses/response_tools.h"

namespace quire {

class ResponseEvents {
 public:
  // `writes`: false where the response is not streamed.
  explicit ResponseEvents(bool writes) : writes_(writes) {}

  // `members`: the event's own, as JSON text without the braces.
  void append(std::string& out, std::string_view type, std::string_view members);
  bool writes() const { return writes_; }

 private:
  bool writes_;
  std::int64_t num_events_ = 0;
};

struct ResponseItemOptions {
  bool summarises = false;         // reasoning is its summary, not its content
  bool returns_reasoning = false;  // adds encrypted_content, which a client can send back
};

class ResponseItems {
 public:
  // `tools` must outlive this: it gives the kind of a called tool; an unknown name counts as a function.
  ResponseItems(ResponseEvents& events, ResponseItemOptions options, const ResponseTools& tools)
      : events_(events), options_(options), tools_(tools) {}

  // `logprobs`: of the tokens that came with this text; kept for the text of messages, an array or null.
  void add(const OutputDelta& delta, Json logprobs, std::string& out);
  // Closes the last item: as incomplete where the answer was cut. An empty answer is an empty message.
  void finish(bool cut, std::string& out);
  // The one item of an answer that is a compaction.
  void add_compaction(const std::string& content, std::string& out);
  // Closes an open item as incomplete.
  void cut(std::string& out) { close("incomplete", out); }

  const Json& items() const { return items_; }
  const std::vector<std::string>& ids() const { return ids_; }

 private:
  enum class Kind { kNone, kReasoning, kMessage, kCall };

  void add_text(Kind kind, std::string_view text, std::string& out);
  void add_call(const ToolCallDelta& call, std::string& out);
  void write(std::string_view text, std::string& out);
  void open(Kind kind, const char* prefix, Json item, std::string& out);
  void close(const char* status, std::string& out);
  void close_part(std::string& out);
  void open_call(const ToolCallDelta& call, std::string& out);
  void close_call(std::string& out);
  Json part(std::string_view text) const;
  bool has_summary() const { return kind_ == Kind::kReasoning && options_.summarises; }
  // "item_id", "output_index" and, in a part of an item, the part's index.
  std::string place() const;
  std::string part_place() const;
  static std::string member(std::string_view name, std::string_view json);
  static std::string text_member(std::string_view name, std::string_view text);

  ResponseEvents& events_;
  const ResponseItemOptions options_;
  const ResponseTools& tools_;
  Kind kind_ = Kind::kNone;
  Json item_;             // the open one
  std::string text_;      // its text or arguments
  Json logprobs_;         // its text's
  std::size_t call_ = 0;  // the open call's index among the calls
  ResponseToolKind call_kind_ = ResponseToolKind::kFunction;
  Kind held_kind_ = Kind::kNone;
  std::string held_;  // white space that may begin a text of that kind
  Json held_logprobs_ = Json::array();
  Json items_ = Json::array();
  std::vector<std::string> ids_;
};

}  // namespace quire
