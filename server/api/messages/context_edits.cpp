#include "server/api/messages/context_edits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "server/api/conversation/prepared_chat.h"
#include "server/api/fields/messages.h"
#include "server/api/messages/messages_request.h"

namespace quire {

namespace {

constexpr std::int64_t kUsesTrigger = 100'000;        // tokens; Anthropic's default
constexpr std::int64_t kCompactionTrigger = 150'000;  // likewise
constexpr std::int64_t kUsesKept = 3;
constexpr std::int64_t kThinkingKept = 1;
constexpr std::size_t kMostEdits = 16;
constexpr const char* kCleared = "[Old tool result content cleared]";

// {"type": TYPE, "value": N}, of one of the types.
struct Amount {
  std::string type;
  std::int64_t value = 0;
};
std::optional<Amount> read_amount(FieldReader& edit, FieldName name, std::initializer_list<std::string_view> types) {
  const Json* object = edit.object(name);
  if (object == nullptr) return std::nullopt;
  FieldReader inner(*object, edit.path(name) + ".");
  const auto type = inner.word("type", types);
  const auto value = inner.integer("value", 0, kMaxInt32);
  if (!type) require_field(inner, "type");
  if (!value) require_field(inner, "value");
  take_error(edit, inner);
  return Amount{type.value_or(""), value.value_or(0)};
}

ContextEdit read_tool_uses(FieldReader& edit) {
  ContextEdit read;
  const auto trigger = read_amount(edit, "trigger", {"input_tokens", "tool_uses"});
  if (trigger && trigger->type == "tool_uses") {
    read.trigger_uses = trigger->value;
  } else {
    read.trigger_tokens = trigger ? trigger->value : kUsesTrigger;
  }
  const auto keep = read_amount(edit, "keep", {"tool_uses"});
  read.keep = keep ? keep->value : kUsesKept;
  if (const auto least = read_amount(edit, "clear_at_least", {"input_tokens"})) read.clear_at_least = least->value;
  read.clears_inputs = edit.boolean("clear_tool_inputs", false);
  read.excluded = edit.strings("exclude_tools", 1024).value_or(std::vector<std::string>{});
  return read;
}

ContextEdit read_thinking_edit(FieldReader& edit) {
  ContextEdit read;
  read.what = ContextEdit::What::kThinking;
  const Json* keep = edit.find("keep");
  if (keep != nullptr && keep->is_string()) {
    if (*keep != "all") edit.fail("keep", edit.path("keep") + ": Input should be 'all' or a number of thinking turns");
    return read;
  }
  const auto turns = read_amount(edit, "keep", {"thinking_turns"});
  read.keep = turns ? turns->value : kThinkingKept;
  return read;
}

ContextEdit read_compaction_edit(FieldReader& edit) {
  ContextEdit read;
  read.what = ContextEdit::What::kCompaction;
  const auto trigger = read_amount(edit, "trigger", {"input_tokens"});
  read.trigger_tokens = trigger ? trigger->value : kCompactionTrigger;
  edit.boolean("pause_after_compaction");
  edit.string("instructions");
  return read;
}

// Number of prompt tokens of the conversation so far.
std::optional<std::int64_t> num_tokens(FieldReader& reader, const ServedModel& model, const MessagesRequest& request) {
  const Json no_fields = Json::object();
  FieldReader attempt(no_fields);
  attempt.set_limit(reader.limit());
  const auto encoded = encode_conversation(attempt, model, request.prompt, request.tools, request.grammar);
  if (encoded) return static_cast<std::int64_t>(encoded->prompt.size());
  take_error(reader, attempt);
  return std::nullopt;
}

std::map<std::string, std::string> names_of_calls(const Json& messages) {
  std::map<std::string, std::string> names;
  for (const Json& message : messages) {
    if (!message.contains("tool_calls")) continue;
    for (const Json& call : message["tool_calls"])
      names[call["id"].get<std::string>()] = call["function"]["name"].get<std::string>();
  }
  return names;
}

void clear_inputs_of(Json& messages, const std::string& id) {
  for (Json& message : messages) {
    if (!message.contains("tool_calls")) continue;
    for (Json& call : message["tool_calls"]) {
      if (call["id"] == id) call["function"]["arguments"] = Json::object();
    }
  }
}

// The results that the edit may clear, oldest first.
std::vector<Json*> results_to_clear(Json& messages, const ContextEdit& edit) {
  std::vector<Json*> results;
  for (Json& message : messages) {
    if (message["role"] == "tool") results.push_back(&message);
  }
  const auto kept = std::min<std::size_t>(static_cast<std::size_t>(*edit.keep), results.size());
  results.resize(results.size() - kept);
  const auto names = names_of_calls(messages);
  std::erase_if(results, [&](const Json* result) {
    const auto name = names.find((*result)["tool_call_id"].get<std::string>());
    const bool is_excluded =
        name != names.end() && std::ranges::find(edit.excluded, name->second) != edit.excluded.end();
    return is_excluded || (*result)["content"] == kCleared;
  });
  return results;
}

// Refuses a compaction whose trigger the conversation has reached; below it, a compaction does nothing.
void check_compaction(FieldReader& reader, const ServedModel& model, const ContextEdit& edit,
                      const MessagesRequest& request) {
  if (model.max_model_len <= *edit.trigger_tokens) return;
  const auto count = num_tokens(reader, model, request);
  if (!count || *count <= *edit.trigger_tokens) return;
  reader.fail(fields::messages::kContextManagement,
              fmt::format("context_management: the conversation has {} tokens, more than the trigger of '{}': the "
                          "server does not compact it; send a summary of its older turns",
                          *count, edit.type),
              "unsupported_parameter");
}

std::int64_t clear_tool_uses(const ContextEdit& edit, Json& messages) {
  const auto num_uses = std::ranges::count_if(messages, [](const Json& each) { return each["role"] == "tool"; });
  if (edit.trigger_uses && num_uses <= *edit.trigger_uses) return 0;
  const std::vector<Json*> cleared = results_to_clear(messages, edit);
  for (Json* const result : cleared) {
    (*result)["content"] = kCleared;
    if (edit.clears_inputs) clear_inputs_of(messages, (*result)["tool_call_id"].get<std::string>());
  }
  return std::ssize(cleared);
}

std::int64_t clear_thinking(const ContextEdit& edit, Json& messages) {
  std::vector<Json*> turns;
  for (Json& message : messages) {
    if (message.contains("reasoning_content")) turns.push_back(&message);
  }
  if (!edit.keep || std::ssize(turns) <= *edit.keep) return 0;
  turns.resize(turns.size() - static_cast<std::size_t>(*edit.keep));
  for (Json* const turn : turns)
    turn->erase("reasoning_content");
  return std::ssize(turns);
}

}  // namespace

std::vector<ContextEdit> read_context_edits(FieldReader& reader) {
  std::vector<ContextEdit> edits;
  const Json* management = reader.object(fields::messages::kContextManagement);
  if (management == nullptr) return edits;
  FieldReader inner(*management, "context_management.");
  const Json* list = inner.array("edits");
  if (list != nullptr && list->size() > kMostEdits) inner.fail("edits", "context_management.edits: too many edits");
  for (std::size_t i = 0; list != nullptr && i < list->size() && !inner.error(); ++i) {
    const std::string path = fmt::format("edits.{}", i);
    if (!inner.is_object(path, (*list)[i])) break;
    FieldReader edit((*list)[i], inner.path(path) + ".");
    const auto type = edit.string("type");
    if (!type) require_field(edit, "type");
    if (type == "clear_tool_uses_20250919") {
      edits.push_back(read_tool_uses(edit));
    } else if (type == "clear_thinking_20251015") {
      edits.push_back(read_thinking_edit(edit));
    } else if (type == "compact_20260112") {
      edits.push_back(read_compaction_edit(edit));
    } else if (type) {
      edit.fail(
          "type",
          edit.path("type") + ": clear_tool_uses_20250919, clear_thinking_20251015 and compact_20260112 are supported",
          "unsupported_parameter");
    }
    if (!edit.error()) edits.back().type = *type;
    take_error(inner, edit);
  }
  take_error(reader, inner);
  return edits;
}

Json apply_context_edits(FieldReader& reader, const ServedModel& model, const std::vector<ContextEdit>& edits,
                         MessagesRequest& request) {
  Json applied = Json::array();
  std::optional<std::int64_t> before;
  for (const ContextEdit& edit : edits) {
    if (edit.what == ContextEdit::What::kCompaction) {
      check_compaction(reader, model, edit, request);
      continue;
    }
    const bool is_thinking = edit.what == ContextEdit::What::kThinking;
    Json messages = request.prompt.messages;
    const std::int64_t num_cleared = is_thinking ? clear_thinking(edit, messages) : clear_tool_uses(edit, messages);
    if (num_cleared == 0) continue;
    if (!before) before = num_tokens(reader, model, request);
    if (!before) return applied;
    if (edit.trigger_tokens && *before <= *edit.trigger_tokens) continue;
    std::swap(request.prompt.messages, messages);
    const auto after = num_tokens(reader, model, request);
    if (!after) return applied;
    if (*before - *after < edit.clear_at_least) {
      std::swap(request.prompt.messages, messages);
      continue;
    }
    applied.push_back({{"type", edit.type},
                       {is_thinking ? "cleared_thinking_turns" : "cleared_tool_uses", num_cleared},
                       {"cleared_input_tokens", std::max<std::int64_t>(0, *before - *after)}});
    before = after;
  }
  return Json{{"applied_edits", std::move(applied)}};
}

}  // namespace quire
