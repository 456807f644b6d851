#include "core/text/message_fit.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "core/base/json/json.h"
#include "core/text/tools/call_writer.h"

namespace quire {
namespace {

std::string word_of(const Json& object, const char* member) {
  const auto found = object.find(member);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool has_calls(const Json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && calls->is_array() && !calls->empty();
}

bool is_instruction(const Json& message) {
  const std::string role = word_of(message, "role");
  return role == "system" || role == "developer";
}

Json text_part(const std::string& text) {
  return Json::array({{{"type", "text"}, {"text", text}}});
}

Result<std::string> joined_text(const Json& parts, const std::string& field) {
  std::string text;
  for (const auto& part : parts) {
    if (part.is_string()) {
      text += part.get<std::string>();
      continue;
    }
    const std::string type = part.is_object() ? word_of(part, "type") : "";
    const char* const member = type == "refusal" ? "refusal" : "text";
    if ((type != "text" && type != "input_text" && type != "refusal") || !part.contains(member))
      return invalid("this model's chat template takes text only, not a part of type '" + type + "'", field);
    if (!part[member].is_string()) return invalid("a text part's text must be a string", field);
    text += part[member].get<std::string>();
  }
  return text;
}

// Returns a string if all content is text, so that it can be joined with another.
Result<Json> plain_content(const Json& content, bool takes_parts, const std::string& field) {
  if (!content.is_array()) return content;
  auto text = joined_text(content, field);
  if (text) return Json(std::move(*text));
  if (takes_parts) return content;
  return tl::make_unexpected(text.error());
}

void join(Json& content, const Json& more) {
  if (content.is_null() || content == "") {
    content = more;
  } else if (content.is_string() && more.is_string()) {
    if (more != "") content.get_ref<std::string&>().append("\n\n").append(more.get_ref<const std::string&>());
  } else if (!more.is_null() && more != "") {
    if (content.is_string()) content = text_part(content.get<std::string>());
    const Json parts = more.is_string() ? text_part(more.get<std::string>()) : more;
    content.insert(content.end(), parts.begin(), parts.end());
  }
}

std::vector<WrittenCall> written_calls(const Json& calls) {
  std::vector<WrittenCall> list;
  for (const Json& call : calls) {
    const Json function = call.value("function", Json::object());
    list.push_back({word_of(function, "name"), function.value("arguments", Json::object())});
  }
  return list;
}

std::set<std::string> ids_of_calls(const Json& message) {
  std::set<std::string> ids;
  if (!has_calls(message)) return ids;
  for (const Json& call : message["tool_calls"])
    ids.insert(word_of(call, "id"));
  return ids;
}

// Positions of messages by the ids of their calls, or of the call that they are a result of.
using PlacesById = std::map<std::string, std::set<std::size_t>>;

// The first place of the id behind `after`; none: the number of messages.
std::size_t next_place(const PlacesById& places, const std::string& id, std::size_t after, std::size_t end) {
  const auto found = places.find(id);
  if (found == places.end()) return end;
  const auto next = found->second.upper_bound(after);
  return next == found->second.end() ? end : *next;
}

// Moves results behind their calls where other messages stand between: a conversation may continue while a tool runs.
// If a later call repeats an id before the result, the result belongs to that call.
Json with_results_behind_calls(Json messages) {
  PlacesById calls;
  PlacesById results;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (word_of(messages[i], "role") == "tool") results[word_of(messages[i], "tool_call_id")].insert(i);
    for (const std::string& id : ids_of_calls(messages[i]))
      calls[id].insert(i);
  }
  Json out = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].is_null()) continue;  // moved
    out.push_back(messages[i]);
    if (!has_calls(messages[i])) continue;
    std::set<std::string> open = ids_of_calls(messages[i]);
    open.erase("");
    while (i + 1 < messages.size() && word_of(messages[i + 1], "role") == "tool") {
      out.push_back(messages[++i]);
      open.erase(word_of(out.back(), "tool_call_id"));
    }
    std::set<std::size_t> late;
    for (const std::string& id : open) {
      const std::size_t result = next_place(results, id, i, messages.size());
      if (result < next_place(calls, id, i, messages.size())) late.insert(result);
    }
    for (const std::size_t result : late) {
      for (const std::string& id : ids_of_calls(messages[result]))
        calls[id].erase(result);
      out.push_back(std::exchange(messages[result], {}));
    }
  }
  return out;
}

// Several calls of one message as messages with one call each, its result behind it.
Json with_single_calls(const Json& messages) {
  Json out = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!has_calls(messages[i]) || messages[i]["tool_calls"].size() == 1) {
      out.push_back(messages[i]);
      continue;
    }
    std::vector<Json> results;
    std::size_t last = i;
    while (last + 1 < messages.size() && word_of(messages[last + 1], "role") == "tool")
      results.push_back(messages[++last]);
    std::map<std::string, std::deque<std::size_t>> left;  // places in `results`, by call
    for (std::size_t k = 0; k < results.size(); ++k)
      left[word_of(results[k], "tool_call_id")].push_back(k);
    Json each = messages[i];
    for (const Json& call : messages[i]["tool_calls"]) {
      each["tool_calls"] = Json::array({call});
      out.push_back(each);
      each = {{"role", "assistant"}, {"content", ""}};
      const auto own = left.find(word_of(call, "id"));
      if (own == left.end() || own->second.empty()) continue;
      out.push_back(std::exchange(results[own->second.front()], {}));
      own->second.pop_front();
    }
    for (Json& result : results) {
      if (!result.is_null()) out.push_back(std::move(result));
    }
    i = last;
  }
  return out;
}

// The mark of an insert: a beginning that all share, its number and an end, so that none is the beginning of another.
std::string mark_of(const std::string& beginning, std::size_t number) {
  return fmt::format("{}{}e", beginning, number);
}

std::string_view beginning_of_marks(std::string_view first_mark) {
  return first_mark.substr(0, first_mark.size() - mark_of("", 0).size());
}

// The insert whose mark begins the text, which begins as all marks do; null: none.
const TextInsert* insert_at(std::string_view text, std::string_view beginning, const std::vector<TextInsert>& inserts) {
  std::size_t number = 0;
  const std::string_view rest = text.substr(beginning.size());
  const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  const bool is_one = parsed.ec == std::errc() && number < inserts.size() && text.starts_with(inserts[number].mark);
  return is_one ? &inserts[number] : nullptr;
}

class Fitter {
 public:
  explicit Fitter(const TemplateCapabilities& capabilities) : can_(capabilities) {}

  Result<FittedMessages> fit(const Json& messages, const Json& tools) {
    given_ = {&messages, &tools};
    Json plain = Json::array();
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const std::string field = fmt::format("messages[{}]", i);
      if (!messages[i].is_object()) return invalid("a message must be an object", field);
      Json& message = plain.emplace_back(messages[i]);
      if (!message.contains("content")) message["content"] = nullptr;
      auto content = plain_content(message["content"], can_.parts_content, field + ".content");
      if (!content) return tl::make_unexpected(content.error());
      message["content"] = *std::move(content);
      fit_calls(message, i);
    }
    plain = with_results_behind_calls(std::move(plain));
    Json shown = can_.tools ? tools : Json();
    if (!tools.is_null() && !can_.tools) explain(tools, plain);
    if (can_.tool_calls && !can_.parallel_calls) plain = with_single_calls(plain);
    if (!can_.without_user) add_missing_user(plain);
    look_at_end(plain);
    for (std::size_t i = 0; i < plain.size(); ++i)
      add(plain, i);
    for (Json& message : out_)
      fit_content(message["content"]);
    return FittedMessages{std::move(out_), std::move(shown), warnings(), std::move(inserts_)};
  }

 private:
  // Explains tools that the template does not show, and the model's form of a call, in a message.
  void explain(const Json& tools, Json& messages) {
    if (messages.empty() || !is_instruction(messages.front()))
      messages.insert(messages.begin(), Json{{"role", "system"}, {"content", ""}});
    std::string text = "You can call these functions:\n";
    for (const Json& tool : tools)
      text += dump_json(tool["function"]) + "\n";
    text += "To call one, answer with nothing but its name and arguments in this form:\n";
    join(messages.front()["content"], text + calls_as_text({{"NAME", {{"PARAMETER", "value"}}}}));
  }

  // Without a user's message the last instruction is one, or an empty text.
  void add_missing_user(Json& messages) {
    const auto is_users = [](const Json& message) { return word_of(message, "role") == "user"; };
    if (std::any_of(messages.begin(), messages.end(), is_users)) return;
    const auto last = std::find_if(messages.rbegin(), messages.rend(), is_instruction);
    if (last == messages.rend()) {
      messages.insert(messages.begin(), Json{{"role", "user"}, {"content", ""}});
      return;
    }
    (*last)["role"] = "user";
    ++num_folded_;
  }

  // Notes how the messages end: system messages after such an end may be lost by the template.
  void look_at_end(const Json& messages) {
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const Json& message = messages[i];
      if (is_instruction(message)) continue;
      end_ = i + 1;
      const bool is_merged = ends_with_result_ && word_of(message, "role") == "user" && !can_.user_after_result;
      ends_with_result_ = is_merged || word_of(message, "role") == "tool";
      ends_with_answer_ = word_of(message, "role") == "assistant" && !has_calls(message);
    }
  }

  // A word that no message or tool contains stands for the calls until the template is rendered: their marks may be
  // control tokens, which texts of messages never are.
  std::string calls_as_text(const std::vector<WrittenCall>& calls) {
    if (mark_.empty()) {
      const std::string all = dump_json(*given_.first) + dump_json(*given_.second);
      mark_ = "QuireWritesCall";
      while (all.find(mark_) != std::string::npos)
        mark_ += 's';
    }
    inserts_.push_back({mark_of(mark_, inserts_.size()), write_calls(can_.tool_format, calls)});
    return inserts_.back().mark;
  }

  void fit_content(Json& content) const {
    if (content.is_null() && !can_.null_content) content = "";
    if (content.is_string() && !can_.string_content && can_.parts_content)
      content = text_part(content.get<std::string>());
  }

  // --- calls

  void fit_calls(Json& message, std::size_t index) {
    if (word_of(message, "role") == "tool") return fit_id(message, "tool_call_id", index);
    if (!has_calls(message)) return;
    for (Json& call : message["tool_calls"]) {
      if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
      Json& function = call["function"];
      function["arguments"] = fit_arguments(function.value("arguments", Json()), word_of(function, "name"));
      fit_id(call, "id", index);
      names_[word_of(call, "id")] = word_of(function, "name");
    }
  }

  // Arguments that are no object are shown as an empty one.
  Json fit_arguments(const Json& given, const std::string& name) {
    Json object = given;
    if (given.is_string()) {
      auto parsed = parse_json(given.get_ref<const std::string&>());
      object = parsed ? std::move(*parsed) : Json(false);
    }
    const bool is_empty = given.is_null() || given == "" || given == "null";
    const bool fits = object.is_object();
    if (!fits && !is_empty) replaced_.insert(name);
    if (!fits) object = Json::object();
    if (can_.object_arguments || !can_.tool_calls) return object;
    return given.is_string() && fits ? given : Json(dump_spaced_json(object));
  }

  void fit_id(Json& owner, const char* member, std::size_t index) const {
    const std::string id = word_of(owner, member);
    if (!can_.nine_letter_ids) return;
    const bool fits =
        id.size() == 9 && std::all_of(id.begin(), id.end(), [](unsigned char c) { return std::isalnum(c); });
    if (!fits) owner[member] = nine_letter_id(id.empty() ? fmt::format("message {}", index) : id);
  }

  // --- turns

  void add(Json& messages, std::size_t index) {
    Json& message = messages[index];
    const std::string role = word_of(message, "role");
    if (is_instruction(message)) return add_instruction(messages, index);
    if (role == "user") return add_user(std::move(message), false);
    if (role == "assistant") return add_answer(std::move(message), index + 1 == messages.size());
    if (role == "tool") return add_result(std::move(message));
    push(std::move(message));
  }

  void push(Json message) {
    is_folded_ = false;
    has_begun_ = has_begun_ || !is_instruction(message);
    if (word_of(message, "role") != "tool") follows_call_ = has_calls(message);
    out_.push_back(std::move(message));
  }

  std::string last_role() const { return out_.empty() ? "" : word_of(out_.back(), "role"); }

  void add_instruction(Json& messages, std::size_t index) {
    Json message = std::move(messages[index]);
    if (word_of(message, "role") == "developer" && (has_begun_ || !can_.developer_role)) message["role"] = "system";
    const bool is_lost = (ends_with_result_ && can_.tool_results && !can_.system_with_results) ||
                         (ends_with_answer_ && !can_.system_with_answer);
    const bool takes_role = !is_lost && (can_.system_role || word_of(message, "role") == "developer");
    const bool follows_one = !out_.empty() && is_instruction(out_.back());
    if (takes_role && follows_one && !can_.several_systems) return join(out_.back()["content"], message["content"]);
    const bool fits = !has_begun_ || (index >= end_ ? can_.last_system : can_.later_system);
    if (takes_role && fits) return push(std::move(message));
    ++num_folded_;
    add_text("user", message["content"]);
  }

  // Adds text without a message of its own: to the last turn if it has that role, or as a turn that the role's next
  // message continues.
  void add_text(const char* role, const Json& content) {
    if (last_role() == role && !has_calls(out_.back())) return join(out_.back()["content"], content);
    add_user(Json{{"role", role}, {"content", content}}, true);
  }

  void add_user(Json message, bool is_folded) {
    const std::string before = last_role();
    const bool repeats = before == "user" && (is_folded_ || !can_.repeated_turns);
    if (repeats || (before == "tool" && !can_.user_after_result)) {
      num_merged_ += is_folded_ || is_folded ? 0 : 1;
      join(out_.back()["content"], message["content"]);
      is_folded_ = false;
      return;
    }
    push(std::move(message));
    is_folded_ = is_folded;
  }

  void add_answer(Json message, bool is_last) {
    const bool is_empty = !has_calls(message) && (message["content"].is_null() || message["content"] == "");
    if (is_empty && !is_last && !can_.empty_answers) return;
    if (!can_.answer_first && !has_begun_) {
      push(Json{{"role", "user"}, {"content", ""}});
      ++num_begun_;
    }
    if (has_calls(message) && !can_.tool_calls) {
      join(message["content"], calls_as_text(written_calls(message["tool_calls"])));
      message.erase("tool_calls");
      ++num_written_;
    }
    const bool repeats = last_role() == "assistant" && !has_calls(out_.back()) && !can_.repeated_turns;
    if (repeats && (!has_calls(message) || can_.text_beside_calls)) {
      ++num_merged_;
      join(out_.back()["content"], message["content"]);
      message["content"] = std::move(out_.back()["content"]);
      out_.erase(out_.size() - 1);
    }
    const bool has_text = !message["content"].is_null() && message["content"] != "";
    if (has_calls(message) && has_text && !can_.text_beside_calls) {
      Json text = std::exchange(message["content"], "");
      if (can_.repeated_turns) {
        push(Json{{"role", "assistant"}, {"content", std::move(text)}});
      } else {
        held_ = std::move(text);
      }
    }
    push(std::move(message));
  }

  void add_result(Json message) {
    if (held_.is_string() && held_ != "") {
      Json text = "The assistant wrote before this call: " + held_.get<std::string>();
      join(text, message["content"]);
      message["content"] = std::move(text);
      ++num_held_;
    }
    held_ = nullptr;
    const bool takes_lone = can_.lone_results && can_.user_after_result;
    // Calls that were written as text are none.
    if (can_.tool_results && (takes_lone || follows_call_ || !can_.tool_calls)) return push(std::move(message));
    ++num_written_;
    const auto name = names_.find(word_of(message, "tool_call_id"));
    Json text = fmt::format("Result of {}:\n", name == names_.end() ? "a function" : name->second);
    if (message["content"].is_string()) {
      text = text.get<std::string>() + message["content"].get<std::string>();
    } else {
      join(text, message["content"]);
    }
    add_text("user", text);
  }

  std::vector<std::string> warnings() const {
    std::vector<std::string> list;
    const auto note = [&list](std::size_t count, std::string_view text) {
      if (count > 0) list.push_back(fmt::format("{} {}", count, text));
    };
    note(num_folded_, "system message(s) folded into turns of the user: the chat template takes none at that place");
    note(num_merged_, "message(s) merged with the one before: the chat template wants turns to alternate");
    note(num_written_, "message(s) with calls or results of tools written as text: the chat template has none");
    note(num_held_, "text(s) beside calls put before their results: the chat template shows calls alone");
    note(num_begun_, "empty turn(s) of the user put before an answer: the chat template begins with the user");
    for (const std::string& name : replaced_) {
      list.push_back(
          fmt::format("the arguments of a call of '{}' in the history are no JSON object: shown as {{}}", name));
    }
    return list;
  }

  const TemplateCapabilities& can_;
  std::pair<const Json*, const Json*> given_ = {};  // the caller's messages and tools
  std::string mark_;                                // beginning of the words that stand for calls
  std::vector<TextInsert> inserts_;
  Json out_ = Json::array();
  bool is_folded_ = false;                    // the last message is text that the user's next message continues
  std::map<std::string, std::string> names_;  // tools by the ids of their calls
  std::set<std::string> replaced_;            // tools whose arguments were not objects
  Json held_;                                 // text beside a call, held until the call's result comes
  bool has_begun_ = false;                    // `out_` has a message that is no instruction
  bool follows_call_ = false;                 // the last message that is no result has calls
  std::size_t end_ = 0;                       // place behind the last message that is no instruction
  bool ends_with_result_ = false;
  bool ends_with_answer_ = false;
  std::size_t num_begun_ = 0;
  std::size_t num_folded_ = 0;
  std::size_t num_held_ = 0;
  std::size_t num_merged_ = 0;
  std::size_t num_written_ = 0;
};

}  // namespace

Result<FittedMessages> fit_messages(const Json& messages, const Json& tools, const TemplateCapabilities& capabilities) {
  return Fitter(capabilities).fit(messages, tools);
}

std::vector<TextPiece> with_inserts(std::vector<TextPiece> pieces, const std::vector<TextInsert>& inserts) {
  if (inserts.empty()) return pieces;
  const std::string_view beginning = beginning_of_marks(inserts.front().mark);
  std::vector<TextPiece> out;
  for (const TextPiece& piece : pieces) {
    const std::string_view text = piece.text;
    std::size_t begin = 0;
    for (std::size_t at = text.find(beginning); at != std::string_view::npos; at = text.find(beginning, at + 1)) {
      const TextInsert* const insert = insert_at(text.substr(at), beginning, inserts);
      if (insert == nullptr) continue;
      out.push_back({std::string(text.substr(begin, at - begin)), piece.trusted});
      out.insert(out.end(), insert->pieces.begin(), insert->pieces.end());
      begin = at + insert->mark.size();
      at = begin - 1;
    }
    out.push_back({std::string(text.substr(begin)), piece.trusted});
  }
  return out;
}

std::string nine_letter_id(std::string_view text) {
  constexpr std::string_view kAlphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string id;
  for (int i = 0; i < 9; ++i, hash /= kAlphabet.size())
    id += kAlphabet[hash % kAlphabet.size()];
  return id;
}

}  // namespace quire
