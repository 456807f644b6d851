#include "server/api/responses/response_items.h"

#include <fmt/core.h>

#include "server/api/common/operation.h"
#include "server/api/conversation/custom_tools.h"
#include "server/api/responses/responses_input.h"

namespace quire {

namespace {

bool is_white(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

void append_all(Json& list, Json&& more) {
  for (Json& each : more)
    list.push_back(std::move(each));
}

}  // namespace

void ResponseEvents::append(std::string& out, std::string_view type, std::string_view members) {
  if (!writes_) return;
  append_sse(out, type, fmt::format(R"({{"type":"{}","sequence_number":{},{}}})", type, num_events_++, members));
}

std::string ResponseItems::member(std::string_view name, std::string_view json) {
  return fmt::format(R"(,"{}":{})", name, json);
}

std::string ResponseItems::text_member(std::string_view name, std::string_view text) {
  std::string json;
  append_json_string(json, text);
  return member(name, json);
}

std::string ResponseItems::place() const {
  std::string json = "\"item_id\":";
  append_json_string(json, ids_.back());
  return json + member("output_index", std::to_string(items_.size()));
}

std::string ResponseItems::part_place() const {
  return place() + member(has_summary() ? "summary_index" : "content_index", "0");
}

Json ResponseItems::part(std::string_view text) const {
  if (kind_ == Kind::kReasoning) {
    return Json{{"type", has_summary() ? "summary_text" : "reasoning_text"}, {"text", std::string(text)}};
  }
  return Json{{"type", "output_text"},
              {"text", std::string(text)},
              {"annotations", Json::array()},
              {"logprobs", Json::array()}};
}

void ResponseItems::open(Kind kind, const char* prefix, Json item, std::string& out) {
  close("completed", out);
  kind_ = kind;
  ids_.push_back(make_id(prefix));
  item_ = Json{{"id", ids_.back()}};
  item_.update(item);
  text_.clear();
  logprobs_ = Json::array();
  events_.append(out, "response.output_item.added",
                 "\"output_index\":" + std::to_string(items_.size()) + member("item", dump_json(item_)));
  if (kind == Kind::kCall) return;
  events_.append(out, has_summary() ? "response.reasoning_summary_part.added" : "response.content_part.added",
                 part_place() + member("part", dump_json(part(""))));
}

void ResponseItems::write(std::string_view text, std::string& out) {
  text_ += text;
  std::string members = part_place() + text_member("delta", text);
  if (kind_ == Kind::kMessage) {
    members += member("logprobs", dump_json(held_logprobs_));
    append_all(logprobs_, std::move(held_logprobs_));
  }
  held_logprobs_ = Json::array();
  const char* type = kind_ == Kind::kMessage ? "response.output_text.delta"
                     : has_summary()         ? "response.reasoning_summary_text.delta"
                                             : "response.reasoning_text.delta";
  events_.append(out, type, members);
}

void ResponseItems::add_text(Kind kind, std::string_view text, std::string& out) {
  if (text.empty()) return;
  if (kind_ != kind) {
    if (held_kind_ != kind) held_.clear();
    held_kind_ = kind;
    held_ += text;
    if (is_white(held_)) return;
    if (kind == Kind::kReasoning) {
      Json item{{"type", "reasoning"}, {"status", "in_progress"}, {"summary", Json::array()}};
      if (!options_.summarises) item["content"] = Json::array();
      open(kind, "rs_", std::move(item), out);
    } else {
      open(kind, "msg_",
           {{"type", "message"}, {"status", "in_progress"}, {"role", "assistant"}, {"content", Json::array()}}, out);
    }
    text = held_;
    write(text, out);
    held_.clear();
    return;
  }
  write(text, out);
}

void ResponseItems::open_call(const ToolCallDelta& call, std::string& out) {
  const auto found = tools_.find(call.name);
  const ResponseTool tool =
      found == tools_.end() ? ResponseTool{ResponseToolKind::kFunction, "", call.name} : found->second;
  call_kind_ = tool.kind;
  Json item{{"type", "function_call"}, {"status", "in_progress"}, {"call_id", call.id}};
  if (!tool.name_space.empty()) item["namespace"] = tool.name_space;
  item["name"] = tool.name;
  const char* prefix = "fc_";
  switch (tool.kind) {
    case ResponseToolKind::kFunction: item["arguments"] = ""; break;
    case ResponseToolKind::kCustom:
      prefix = "ctc_";
      item["type"] = "custom_tool_call";
      item["input"] = "";
      break;
    case ResponseToolKind::kLocalShell:
      prefix = "lsh_";
      item["type"] = "local_shell_call";
      item.erase("name");
      item["action"] = shell_action("");
      break;
  }
  open(Kind::kCall, prefix, std::move(item), out);
}

// The text of a custom tool and the command of a shell are inside the arguments: they come whole, at the call's end.
void ResponseItems::add_call(const ToolCallDelta& call, std::string& out) {
  if (kind_ != Kind::kCall || call.index != call_ || !call.name.empty()) {
    call_ = call.index;
    held_.clear();
    open_call(call, out);
  }
  held_logprobs_ = Json::array();
  if (call.arguments.empty()) return;
  text_ += call.arguments;
  if (call_kind_ != ResponseToolKind::kFunction) return;
  events_.append(out, "response.function_call_arguments.delta", place() + text_member("delta", call.arguments));
}

void ResponseItems::add(const OutputDelta& delta, Json logprobs, std::string& out) {
  append_all(held_logprobs_, std::move(logprobs));
  add_text(Kind::kReasoning, delta.reasoning, out);
  add_text(Kind::kMessage, delta.content, out);
  for (const ToolCallDelta& call : delta.tool_calls)
    add_call(call, out);
}

void ResponseItems::add_compaction(const std::string& content, std::string& out) {
  ids_.push_back(make_id("cmp_"));
  Json item{{"id", ids_.back()}, {"type", "compaction"}, {"encrypted_content", content}};
  for (const char* type : {"response.output_item.added", "response.output_item.done"})
    events_.append(out, type, "\"output_index\":" + std::to_string(items_.size()) + member("item", dump_json(item)));
  items_.push_back(std::move(item));
}

void ResponseItems::close_part(std::string& out) {
  Json whole = part(text_);
  std::string members = part_place() + text_member("text", text_);
  if (kind_ == Kind::kMessage) {
    members += member("logprobs", dump_json(logprobs_));
    whole["logprobs"] = std::move(logprobs_);
  }
  const char* type = kind_ == Kind::kMessage ? "response.output_text.done"
                     : has_summary()         ? "response.reasoning_summary_text.done"
                                             : "response.reasoning_text.done";
  events_.append(out, type, members);
  events_.append(out, has_summary() ? "response.reasoning_summary_part.done" : "response.content_part.done",
                 part_place() + member("part", dump_json(whole)));
  item_[has_summary() ? "summary" : "content"].push_back(std::move(whole));
  if (kind_ == Kind::kReasoning && options_.returns_reasoning) {
    item_["encrypted_content"] = std::string(kReasoningMark) + text_;
  }
}

void ResponseItems::close_call(std::string& out) {
  switch (call_kind_) {
    case ResponseToolKind::kFunction:
      events_.append(
          out, "response.function_call_arguments.done",
          place() + text_member("name", item_["name"].get_ref<const std::string&>()) + text_member("arguments", text_));
      item_["arguments"] = text_;
      break;
    case ResponseToolKind::kCustom: {
      const std::string input = custom_input(text_);
      if (!input.empty())
        events_.append(out, "response.custom_tool_call_input.delta", place() + text_member("delta", input));
      events_.append(out, "response.custom_tool_call_input.done", place() + text_member("input", input));
      item_["input"] = input;
      break;
    }
    case ResponseToolKind::kLocalShell: item_["action"] = shell_action(text_); break;
  }
}

void ResponseItems::close(const char* status, std::string& out) {
  if (kind_ == Kind::kNone) return;
  kind_ == Kind::kCall ? close_call(out) : close_part(out);
  item_["status"] = status;
  events_.append(out, "response.output_item.done",
                 "\"output_index\":" + std::to_string(items_.size()) + member("item", dump_json(item_)));
  items_.push_back(std::move(item_));
  kind_ = Kind::kNone;
}

void ResponseItems::finish(bool cut, std::string& out) {
  if (kind_ == Kind::kNone) {
    open(Kind::kMessage, "msg_",
         {{"type", "message"}, {"status", "in_progress"}, {"role", "assistant"}, {"content", Json::array()}}, out);
    if (held_kind_ == Kind::kMessage && !held_.empty()) write(held_, out);
  }
  close(cut ? "incomplete" : "completed", out);
}

}  // namespace quire
