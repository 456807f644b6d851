#include "server/api/responses/responses_input.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "server/api/common/operation.h"
#include "server/api/conversation/chat_prompt.h"
#include "server/api/conversation/custom_tools.h"
#include "server/api/fields/responses.h"
#include "server/api/responses/response_tools.h"

namespace quire {

namespace {

// Bounds for text that a request keeps while it runs although its template may omit it; prompts have a bound of their
// own.
constexpr std::size_t kMaxItemNameBytes = 1024;
constexpr std::size_t kMaxReasoningBytes = std::size_t{4} << 20;  // total over all items

const StoredItem* find_item_of(const StoredResponse& response, std::string_view id) {
  const StoredItem* const item = find_item(response.input, id);
  return item != nullptr ? item : find_item(response.output, id);
}

std::string joined_text(const Json& parts, const char* member) {
  std::string text;
  for (const Json& part : parts) {
    if (!text.empty()) text += '\n';
    text += part[member].get<std::string>();
  }
  return text;
}

class ItemReader {
 public:
  // `member`: of the body, that holds the items.
  ItemReader(FieldReader& reader, const char* member, ResponseStore* store, const std::string& owner)
      : reader_(reader), member_(member), store_(store), owner_(owner) {}

  // Notes the items of the conversation that the new ones continue.
  void note(const StoredItems& items) {
    for (const auto& item : items) {
      ids_.insert(item->id);
      if (!item->call_id.empty()) calls_.insert(item->call_id);
    }
  }

  void read(const Json& given) {
    const std::string path = fmt::format("{}[{}]", member_, num_read_++);
    if (!reader_.is_object(path, given)) return;
    FieldReader fields(given, path + ".");
    Json item = read_kind(fields);
    take_error(reader_, fields);
    if (reader_.error() || item.is_null()) return;
    if (const auto& id = item["id"].get_ref<const std::string&>(); !ids_.insert(id).second) {
      return reader_.fail(
          path,
          fmt::format("Duplicate item found with id {}. Remove duplicate items from '{}' and try again.", id, member_),
          "duplicate_item");
    }
    note_call(item);
    input_.items.push_back(std::move(item));
    input_.paths.push_back(path);
  }

  void read_all(const Json& given) {
    for (const Json& item : given) {
      if (reader_.limit().reached()) reader_.fail(interrupted().value());
      if (reader_.error()) return;
      read(item);
    }
  }

  ResponseInput take() { return std::move(input_); }

 private:
  Json read_kind(FieldReader& fields) {
    // Messages and references may leave their type out.
    const bool refers = !fields.has("role") && fields.has("id");
    const std::string type = fields.string("type").value_or(refers ? "item_reference" : "message");
    if (type == "message") return read_message(fields);
    if (type == "function_call") return read_call(fields);
    if (type == "custom_tool_call") return read_custom_call(fields);
    if (type == "local_shell_call") return read_shell_call(fields);
    if (type == "function_call_output") return read_call_output(fields, "fco_", type);
    if (type == "custom_tool_call_output") return read_call_output(fields, "ctco_", type);
    if (type == "local_shell_call_output") return read_call_output(fields, "lsho_", type);
    if (type == "reasoning") return read_reasoning(fields);
    if (type == "compaction" || type == "compaction_summary") return read_compaction(fields);
    if (type == "item_reference") return read_reference(fields);
    if (type == "compaction_trigger") {
      input_.asks_compaction = true;
      return nullptr;
    }
    if (type == "additional_tools") return nullptr;  // read with the tools
    // Another server's own tools left it in the conversation; their results are in its messages.
    fields.warn(fmt::format("{}: an item of type '{}' is left out: the server runs no tools of its own",
                            fields.path("type"), type));
    return nullptr;
  }

  // The item's id and type: its own id, or a fresh one.
  Json begin_item(FieldReader& fields, const char* prefix, const char* type) {
    auto id = fields.short_string("id", kMaxItemNameBytes);
    if (!id || id->empty()) {
      id = make_id(prefix);
      input_.item_ids.push_back(*id);
    }
    return Json{{"id", *id}, {"type", type}, {"status", "completed"}};
  }

  std::string required(FieldReader& fields, const char* name) {
    auto value = fields.string(name);
    if (!value) fields.missing(name);
    return value.value_or("");
  }
  // Reads a name that is kept with the item and need not be in the prompt.
  std::string required_name(FieldReader& fields, const char* name) {
    auto value = fields.short_string(name, kMaxItemNameBytes);
    if (!value) fields.missing(name);
    return value.value_or("");
  }

  Json read_message(FieldReader& fields) {
    const auto role = fields.word("role", {"user", "assistant", "system", "developer"});
    if (!role) fields.missing("role");
    const bool assistant = role == "assistant";
    MediaList pictures(nullptr, nullptr, 0);
    const auto text = read_content(fields, "content", assistant, assistant ? nullptr : &pictures);
    if (!text) fields.missing("content");
    Json item = begin_item(fields, "msg_", "message");
    item["role"] = role.value_or("");
    Json part{{"type", assistant ? "output_text" : "input_text"}, {"text", text.value_or("")}};
    if (assistant) {
      part["annotations"] = Json::array();
      part["logprobs"] = Json::array();
    }
    item["content"] = pictures.empty() ? Json::array({std::move(part)}) : *fields.find("content");
    return item;
  }

  Json read_call(FieldReader& fields) {
    Json item = begin_item(fields, "fc_", "function_call");
    for (const char* name : {"call_id", "name"})
      item[name] = required_name(fields, name);
    // Arguments that are not a string are kept as their JSON text; for the template, anything but an object becomes {}.
    const Json* const arguments = fields.find("arguments");
    if (arguments == nullptr) {
      item["arguments"] = "";
    } else {
      item["arguments"] = arguments->is_string() ? *arguments : Json(dump_json(*arguments));
    }
    if (auto name_space = fields.short_string("namespace", kMaxItemNameBytes))
      item["namespace"] = std::move(*name_space);
    return item;
  }

  Json read_custom_call(FieldReader& fields) {
    Json item = begin_item(fields, "ctc_", "custom_tool_call");
    for (const char* name : {"call_id", "name"})
      item[name] = required_name(fields, name);
    item["input"] = required(fields, "input");
    if (auto name_space = fields.short_string("namespace", kMaxItemNameBytes))
      item["namespace"] = std::move(*name_space);
    return item;
  }

  Json read_shell_call(FieldReader& fields) {
    Json item = begin_item(fields, "lsh_", "local_shell_call");
    item["call_id"] = required_name(fields, "call_id");
    const Json* action = fields.object("action");
    if (action == nullptr) fields.missing("action");
    item["action"] = action != nullptr ? *action : Json::object();
    return item;
  }

  Json read_call_output(FieldReader& fields, const char* prefix, const std::string& type) {
    Json item = begin_item(fields, prefix, type.c_str());
    // The id of a shell's output may be its call's.
    const bool by_id = type == "local_shell_call_output" && !fields.has("call_id");
    const std::string call_id = by_id ? item["id"].get<std::string>() : required_name(fields, "call_id");
    if (by_id) {
      item["id"] = make_id(prefix);
      input_.item_ids.push_back(item["id"]);
    }
    if (!fields.error() && calls_.count(call_id) == 0) {
      fields.fail("call_id", fmt::format("No tool call found for function call output with call_id '{}'", call_id));
    }
    item["call_id"] = call_id;
    MediaList pictures(nullptr, nullptr, 0);
    const auto output = read_content(fields, "output", false, &pictures);
    if (!output) fields.missing("output");
    item["output"] = pictures.empty() ? Json(output.value_or("")) : *fields.find("output");
    return item;
  }

  // The texts of a list of parts of one type, each an object with a string `text`.
  std::string read_parts(FieldReader& fields, const char* member, const char* type) {
    const Json* list = fields.array(member);
    if (list == nullptr) return {};
    std::string text;
    std::size_t index = 0;
    for (const Json& part : *list) {
      const std::string name = fmt::format("{}[{}]", member, index++);
      const bool known = part.is_object() && part.value("type", Json()) == type && part.contains("text");
      if (!known || !part["text"].is_string()) {
        fields.fail(name, fmt::format("'{}' must be a part of type '{}' with its 'text'", fields.path(name), type));
        return {};
      }
      if (!text.empty()) text += '\n';
      text += part["text"].get<std::string>();
    }
    return text;
  }

  Json read_reasoning(FieldReader& fields) {
    Json item = begin_item(fields, "rs_", "reasoning");
    std::string summary = read_parts(fields, "summary", "summary_text");
    std::string text = read_parts(fields, "content", "reasoning_text");
    const auto kept = fields.string("encrypted_content");
    if (text.empty() && kept && !kept->empty()) {
      if (kept->rfind(kReasoningMark, 0) == 0) {
        text = kept->substr(kReasoningMark.size());
      } else if (summary.empty()) {
        fields.warn(fmt::format("{}: reasoning that another server encrypted is left out", fields.path("type")));
        return nullptr;
      }
    }
    reasoning_bytes_ += summary.size() + text.size();
    if (reasoning_bytes_ > kMaxReasoningBytes)
      fields.fail("content", fmt::format("the reasoning of '{}' is longer than {} bytes", member_, kMaxReasoningBytes));
    item["summary"] = Json::array();
    if (!summary.empty()) item["summary"].push_back({{"type", "summary_text"}, {"text", std::move(summary)}});
    item["content"] = Json::array();
    if (!text.empty()) item["content"].push_back({{"type", "reasoning_text"}, {"text", std::move(text)}});
    return item;
  }

  Json read_compaction(FieldReader& fields) {
    Json item = begin_item(fields, "cmp_", "compaction");
    item.erase("status");
    const std::string text = required(fields, "encrypted_content");
    if (!fields.error() && text.rfind(kCompactionMark, 0) != 0) {
      fields.fail("encrypted_content", "The encrypted content was not made by this server");
    }
    item["encrypted_content"] = text;
    return item;
  }

  Json read_reference(FieldReader& fields) {
    const std::string id = required_name(fields, "id");
    if (fields.error()) return nullptr;
    const auto response = store_ != nullptr ? store_->find_item(id, owner_) : nullptr;
    if (const StoredItem* const item = response != nullptr ? find_item_of(*response, id) : nullptr) {
      if (reader_.limit().takes(item->text.size())) return read_item(*item);
      fields.fail(interrupted().value());
      return nullptr;
    }
    fields.fail("id", fmt::format("Item with id '{}' not found.", id), "item_not_found");
    return nullptr;
  }

  void note_call(const Json& item) {
    const auto& type = item["type"].get_ref<const std::string&>();
    if (type == "function_call" || type == "custom_tool_call" || type == "local_shell_call")
      calls_.insert(item["call_id"].get<std::string>());
  }

  FieldReader& reader_;
  const char* member_;
  ResponseStore* store_;
  const std::string& owner_;
  std::set<std::string> ids_;
  std::set<std::string> calls_;
  std::size_t num_read_ = 0;
  std::size_t reasoning_bytes_ = 0;
  ResponseInput input_;
};

// Converts items to messages. Consecutive items of an assistant are one message, in the order reasoning, text, calls;
// an item out of that order begins the next message.
class MessageBuilder {
 public:
  MessageBuilder(FieldReader& reader, const std::string& instructions, MediaList& media)
      : reader_(reader), media_(media) {
    if (!instructions.empty()) messages_.push_back({{"role", "system"}, {"content", instructions}});
  }

  // `path`: of the item in the body.
  void add(const Json& item, const std::string& path) {
    const auto& type = item["type"].get_ref<const std::string&>();
    const bool is_users = type == "message" && item["role"] == "user";
    follows_compaction_ = follows_compaction_ && is_users;
    if (type == "message") add_message(item, path);
    if (type == "reasoning") add_reasoning(item);
    if (type == "compaction") add_compaction(item["encrypted_content"].get<std::string>());
    if (type == "function_call") add_call(item, item["arguments"]);
    if (type == "custom_tool_call") add_call(item, custom_arguments(item["input"].get<std::string>()));
    if (type == "local_shell_call") add_call(item, shell_arguments(item["action"]));
    if (type.ends_with("_call_output")) add_call_output(item, path);
  }

  Json take() { return std::move(messages_); }

 private:
  Json& assistant(bool begins) {
    if (begins || messages_.empty() || messages_.back()["role"] != "assistant") {
      messages_.push_back({{"role", "assistant"}, {"content", ""}});
      has_text_ = false;
    }
    return messages_.back();
  }

  bool has_calls() const { return !messages_.empty() && messages_.back().contains("tool_calls"); }

  // Content that was read before, and may have pictures.
  std::string text_of(const Json& item, const char* member, const std::string& path) {
    FieldReader fields(item, path + ".");
    auto text = read_content(fields, member, true, &media_);
    take_error(reader_, fields);
    return text.value_or("");
  }

  void add_message(const Json& item, const std::string& path) {
    const auto& role = item["role"].get_ref<const std::string&>();
    std::string text = text_of(item, "content", path);
    if (role == "assistant") {
      assistant(has_text_ || has_calls())["content"] = std::move(text);
      has_text_ = true;
      return;
    }
    // Templates know one system message, at the beginning.
    const bool system = role == "system" || role == "developer";
    if (system && messages_.size() == 1 && messages_[0]["role"] != "user" && messages_[0]["role"] != "assistant") {
      text = messages_[0]["content"].get<std::string>() + "\n\n" + text;
      messages_[0]["content"] = std::move(text);
      return;
    }
    if (follows_compaction_ && role == "user") return extend_user(text);
    messages_.push_back({{"role", role}, {"content", std::move(text)}});
    has_text_ = false;
  }

  // Joins the users' messages that a compaction kept, the summary and the user's next text into one message, for
  // templates whose turns must alternate.
  void add_compaction(const std::string& content) {
    while (messages_.size() > 1 && messages_.back()["role"] == "user" &&
           messages_[messages_.size() - 2]["role"] == "user") {
      const std::string last = messages_.back()["content"].get<std::string>();
      messages_.erase(messages_.size() - 1);
      messages_.back()["content"] = messages_.back()["content"].get<std::string>() + "\n\n" + last;
    }
    if (messages_.empty() || messages_.back()["role"] != "user")
      messages_.push_back({{"role", "user"}, {"content", ""}});
    extend_user("Summary of the conversation so far:\n" + content.substr(kCompactionMark.size()));
    follows_compaction_ = true;
    has_text_ = false;
  }

  void extend_user(const std::string& text) {
    const std::string before = messages_.back()["content"].get<std::string>();
    messages_.back()["content"] = before.empty() ? text : before + "\n\n" + text;
  }

  void add_reasoning(const Json& item) {
    const bool has_content = item.contains("content") && !item["content"].empty();
    std::string text = joined_text(has_content ? item["content"] : item["summary"], "text");
    if (text.empty()) return;
    Json& message = assistant(has_text_ || has_calls());
    if (message.contains("reasoning_content")) {
      text = message["reasoning_content"].get<std::string>() + "\n" + text;
    }
    message["reasoning_content"] = std::move(text);
  }

  void add_call(const Json& item, Json arguments) {
    const auto& call_id = item["call_id"].get_ref<const std::string&>();
    const std::string name =
        offered_name(item.value("namespace", std::string()), item.value("name", std::string(kLocalShell)));
    names_[call_id] = name;
    assistant(false)["tool_calls"].push_back(
        {{"id", call_id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", std::move(arguments)}}}});
  }

  void add_call_output(const Json& item, const std::string& path) {
    const auto& call_id = item["call_id"].get_ref<const std::string&>();
    Json message{{"role", "tool"}, {"content", text_of(item, "output", path)}, {"tool_call_id", call_id}};
    if (const auto name = names_.find(call_id); name != names_.end()) message["name"] = name->second;
    messages_.push_back(std::move(message));
    has_text_ = false;
  }

  FieldReader& reader_;
  MediaList& media_;
  Json messages_ = Json::array();
  std::map<std::string, std::string> names_;  // function names by call id
  bool has_text_ = false;                     // the last message is an assistant's whose text has come
  bool follows_compaction_ = false;           // the last message is a user's that ends with a summary
};

// Whether the conversation has room for `num_added` more items; notes an error if not.
bool check_size(FieldReader& reader, const char* member, std::size_t num_added, const StoredItems& before) {
  if (num_added + before.size() > kMaxMessages) {
    reader.fail(member, fmt::format("More than {} items", kMaxMessages));
  } else if (num_bytes(before) > kMaxConversationBytes) {
    reader.fail(member,
                fmt::format("The conversation takes more than {} MiB; begin a new one, or compact this one with "
                            "POST /v1/responses/compact",
                            kMaxConversationBytes >> 20));
  }
  return !reader.error();
}

}  // namespace

ResponseInput read_response_input(FieldReader& reader, const StoredItems& before, ResponseStore* store,
                                  const std::string& owner) {
  const Json* input = reader.find(fields::responses::kInput);
  if (input == nullptr) {
    if (before.empty()) reader.missing(fields::responses::kInput);
    check_size(reader, "input", 0, before);
    return {};
  }
  ItemReader items(reader, "input", store, owner);
  items.note(before);
  if (!input->is_string() && !input->is_array()) {
    reader.fail(fields::responses::kInput, "Invalid type for 'input': expected a string or an array of items",
                "invalid_type");
  } else if (!check_size(reader, "input", input->is_string() ? 1 : input->size(), before)) {
    return {};
  } else if (input->is_string()) {
    items.read(Json{{"role", "user"}, {"content", *input}});
  } else if (input->empty() && before.empty()) {
    // Clients probe the endpoint without input, which counts as an empty user message.
    items.read(Json{{"role", "user"}, {"content", ""}});
  } else {
    items.read_all(*input);
  }
  return items.take();
}

ResponseInput read_conversation_items(FieldReader& reader, const StoredItems& before, ResponseStore* store,
                                      const std::string& owner) {
  const Json* given = reader.array(fields::responses::kItems);
  if (given == nullptr) return {};
  ItemReader items(reader, "items", store, owner);
  items.note(before);
  if (check_size(reader, "items", given->size(), before)) items.read_all(*given);
  return items.take();
}

Json messages_of_items(FieldReader& reader, const std::string& instructions, const Json& items,
                       const std::vector<std::string>& paths, MediaList& media) {
  MessageBuilder messages(reader, instructions, media);
  const std::size_t num_before = items.size() - std::min(items.size(), paths.size());
  for (std::size_t i = 0; i < items.size() && !reader.error(); ++i)
    messages.add(items[i], i < num_before ? "input" : paths[i - num_before]);
  return messages.take();
}

StoredItems items_of(const std::vector<ResponseStore::Entry>& conversation) {
  StoredItems items;
  for (const auto& response : conversation) {
    items.insert(items.end(), response->input.begin(), response->input.end());
    items.insert(items.end(), response->output.begin(), response->output.end());
  }
  return items;
}

Json read_items(FieldReader& reader, const StoredItems& items) {
  Json read = Json::array();
  bool goes_on = reader.limit().takes(num_bytes(items));
  for (std::size_t i = 0; goes_on && i < items.size(); ++i) {
    read.push_back(read_item(*items[i]));
    goes_on = !reader.limit().reached();
  }
  if (!goes_on) reader.fail(interrupted().value());
  return read;
}

}  // namespace quire
