#include "server/api/messages/content_blocks.h"

#include <utility>

#include "server/api/common/operation.h"

namespace quire {

namespace {

// Clients return thinking blocks only with a signature. Quire does not check it.
constexpr const char* kSignature = "unsigned";

}  // namespace

void ContentBlocks::add(const OutputDelta& delta, std::string& out) {
  if (!delta.reasoning.empty()) add_thinking(delta.reasoning, out);
  if (!delta.content.empty()) add_text(delta.content, out);
  for (const ToolCallDelta& call : delta.tool_calls)
    add_call(call, out);
}

void ContentBlocks::add_thinking(std::string_view text, std::string& out) {
  if (kind_ != Kind::kThinking)
    open(Kind::kThinking, Json{{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}, out);
  if (shows_thinking_) append("thinking_delta", "thinking", text, out);
}

void ContentBlocks::add_text(std::string_view text, std::string& out) {
  if (kind_ != Kind::kText) {
    white_ += text;
    if (white_.find_first_not_of(" \t\r\n") == std::string::npos) return;
    open(Kind::kText, Json{{"type", "text"}, {"text", ""}, {"citations", nullptr}}, out);
    return append("text_delta", "text", std::exchange(white_, {}), out);
  }
  append("text_delta", "text", text, out);
}

void ContentBlocks::add_call(const ToolCallDelta& call, std::string& out) {
  if (kind_ != Kind::kToolUse || call.index != call_) {
    call_ = call.index;
    open(Kind::kToolUse,
         Json{{"type", "tool_use"},
              {"id", call.id},
              {"name", call.name},
              {"input", Json::object()},
              {"caller", {{"type", "direct"}}}},
         out);
  }
  if (!call.arguments.empty()) append("input_json_delta", "partial_json", call.arguments, out);
}

void ContentBlocks::open(Kind kind, Json block, std::string& out) {
  close(out);
  kind_ = kind;
  if (kind != Kind::kText) white_.clear();
  if (streams_) {
    append_sse(out, "content_block_start",
               dump_json(Json{{"type", "content_block_start"}, {"index", num_closed_}, {"content_block", block}}));
  } else {
    block_ = std::move(block);
    text_.clear();
  }
}

// Deltas are most of a stream, so they are written as text, without a JSON tree.
void ContentBlocks::append(const char* type, const char* member, std::string_view text, std::string& out) {
  if (!streams_) {
    text_ += text;
    return;
  }
  out += "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":";
  out += std::to_string(num_closed_);
  out += ",\"delta\":{\"type\":\"";
  out += type;
  out += "\",\"";
  out += member;
  out += "\":";
  append_json_string(out, text);
  out += "}}\n\n";
}

void ContentBlocks::close(std::string& out) {
  const Kind kind = std::exchange(kind_, Kind::kNone);
  if (kind == Kind::kNone) return;
  if (streams_) {
    if (kind == Kind::kThinking) append("signature_delta", "signature", kSignature, out);
    append_sse(out, "content_block_stop", dump_json(Json{{"type", "content_block_stop"}, {"index", num_closed_}}));
  } else {
    if (kind == Kind::kText) block_["text"] = std::move(text_);
    if (kind == Kind::kThinking) {
      block_["thinking"] = std::move(text_);
      block_["signature"] = kSignature;
    }
    if (kind == Kind::kToolUse) {
      // The input of a call that max_tokens cut off does not parse.
      const auto input = parse_json(text_);
      if (input && input->is_object()) block_["input"] = *input;
    }
    blocks_.push_back(std::move(block_));
  }
  ++num_closed_;
}

}  // namespace quire
