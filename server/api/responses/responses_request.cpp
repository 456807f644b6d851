#include "server/api/responses/responses_request.h"

#include <fmt/core.h>

#include <algorithm>

#include "server/api/fields/chat.h"
#include "server/api/fields/generation.h"
#include "server/api/fields/responses.h"
#include "server/api/responses/conversations.h"

namespace quire {

namespace {

// Limit for the members that an answer repeats, as JSON; tools are the largest.
constexpr std::int64_t kMaxEchoBytes = std::int64_t{1} << 20;

class RequestReader {
 public:
  RequestReader(FieldReader& reader, const ServedModel& model, const Call& call)
      : reader_(reader), model_(model), call_(call) {}

  ResponsesRequest read() {
    reader_.refuse_from(fields::kResponseFields);
    reader_.refuse_from(fields::kNativeFields);
    reader_.check_accepted(fields::kConversationFields);
    read_socket_event();
    request_.fields = read_generation_fields(reader_, model_);
    if (call_.socket_memory != nullptr) request_.fields.stream = true;
    if (reader_.error()) return std::move(request_);
    read_conversation();
    read_limits();
    read_include();
    read_tools();
    read_text();
    read_template_fields(reader_, request_.prompt);
    read_reasoning();
    read_rest();
    check_echo();
    return std::move(request_);
  }

 private:
  // Each event with the whole response repeats it.
  void check_echo() {
    if (reader_.error()) return;
    request_.num_echo_bytes = std::ssize(dump_json(request_.echo));
    if (request_.num_echo_bytes <= kMaxEchoBytes) return;
    reader_.fail(
        fields::responses::kTools,
        fmt::format("'tools' and the other fields that an answer repeats take more than {} bytes", kMaxEchoBytes));
  }

  // Reads the fields that only a WebSocket's messages have.
  void read_socket_event() {
    const bool is_socket = call_.socket_memory != nullptr;
    const auto type = reader_.word(fields::responses::kType);
    if (!type && is_socket) reader_.missing(fields::responses::kType);
    if (!is_socket) reader_.refuse_unless(fields::responses::kGenerate, true, fields::responses::kGenerate.note);
    request_.generates = reader_.boolean(fields::responses::kGenerate, true);
  }

  void read_conversation() {
    Json& echo = request_.echo;
    const std::string instructions = reader_.string(fields::responses::kInstructions).value_or("");
    echo["instructions"] = reader_.has(fields::responses::kInstructions) ? Json(instructions) : Json(nullptr);
    request_.previous_response_id = reader_.string(fields::responses::kPreviousResponseId).value_or("");
    echo["previous_response_id"] =
        reader_.has(fields::responses::kPreviousResponseId) ? Json(request_.previous_response_id) : Json();
    StoredItems before;
    read_conversation_id();
    if (!request_.conversation.empty()) {
      const auto entry = find_conversation(call_.responses.get(), request_.conversation, call_.key_name);
      if (entry == nullptr) {
        reader_.fail(fields::responses::kConversation,
                     fmt::format("Conversation with id '{}' not found.", request_.conversation),
                     "conversation_not_found");
      } else {
        before = entry->input;
      }
    }
    if (!request_.previous_response_id.empty()) {
      std::vector<ResponseStore::Entry> chain;
      const bool is_running = call_.background != nullptr &&
                              call_.background->find(request_.previous_response_id, call_.key_name).has_value();
      // The store has other things too.
      const bool is_response = request_.previous_response_id.rfind(kResponseIdPrefix, 0) == 0;
      if (call_.responses != nullptr && is_response)
        chain = call_.responses->conversation(request_.previous_response_id, call_.key_name);
      if (chain.empty() && is_response && call_.socket_memory != nullptr) {
        if (auto last = call_.socket_memory->find(request_.previous_response_id)) chain.push_back(std::move(last));
      }
      if (chain.empty()) {
        const bool is_stored = call_.responses != nullptr && is_response &&
                               call_.responses->find(request_.previous_response_id, call_.key_name) != nullptr;
        reader_.fail(
            fields::responses::kPreviousResponseId,
            fmt::format("Previous response with id '{}' {}.", request_.previous_response_id,
                        is_stored ? "cannot be continued: a response before it was deleted or dropped" : "not found"),
            "previous_response_not_found");
      } else if (is_running) {
        reader_.fail(fields::responses::kPreviousResponseId,
                     fmt::format("Previous response with id '{}' is still being generated: wait until it is completed",
                                 request_.previous_response_id),
                     "previous_response_not_completed");
      }
      before = items_of(chain);
    }
    request_.input = read_response_input(reader_, before, call_.responses.get(), call_.key_name);
    if (reader_.error()) return;
    Json items = read_items(reader_, before);
    if (reader_.error()) return;
    items.insert(items.end(), request_.input.items.begin(), request_.input.items.end());
    request_.prompt.param = "input";
    request_.prompt.media = media_list(model_, call_);
    request_.prompt.media->read_settings(reader_);
    request_.prompt.messages =
        messages_of_items(reader_, instructions, items, request_.input.paths, *request_.prompt.media);
    request_.conversation_items = std::move(items);
  }

  // Reads `conversation`: an id, or an object with an id.
  void read_conversation_id() {
    const Json* given = reader_.find(fields::responses::kConversation);
    if (given == nullptr) return;
    if (!request_.previous_response_id.empty()) {
      return reader_.fail(fields::responses::kConversation,
                          "'conversation' and 'previous_response_id' exclude each other");
    }
    const Json id = given->is_object() ? given->value("id", Json()) : *given;
    if (!id.is_string() || id.get<std::string>().empty()) {
      return reader_.fail(fields::responses::kConversation,
                          "Invalid type for 'conversation': expected an id, or an object with its 'id'",
                          "invalid_type");
    }
    request_.conversation = id.get<std::string>();
    request_.echo["conversation"] = {{"id", request_.conversation}};
  }

  void read_limits() {
    const auto tokens = reader_.integer(fields::responses::kMaxOutputTokens);
    if (tokens) request_.fields.max_tokens = static_cast<std::int32_t>(*tokens);
    request_.echo["max_output_tokens"] = tokens ? Json(*tokens) : Json(nullptr);
    // This limits calls of the server's own tools, and there are none.
    const auto calls = reader_.integer(fields::responses::kMaxToolCalls);
    request_.echo["max_tool_calls"] = calls ? Json(*calls) : Json(nullptr);
    const auto truncation = reader_.word(fields::responses::kTruncation);
    request_.truncates = truncation == "auto";
    request_.echo["truncation"] = truncation.value_or("disabled");
    for (const auto& [name, value] :
         {std::pair{"temperature", request_.fields.sampling.temperature}, {"top_p", request_.fields.sampling.top_p}}) {
      // A default is a float: its shortest decimal is the configured text, unlike its value as a double.
      const Json* given = reader_.find(name);
      request_.echo[name] = given != nullptr ? *given : Json(std::stod(fmt::format("{}", value)));
    }
  }

  void read_include() {
    const auto top = reader_.integer(fields::responses::kTopLogprobs);
    request_.logprobs = top.value_or(0) > 0;
    std::size_t index = 0;
    for (const std::string& name : reader_.strings(fields::responses::kInclude).value_or(std::vector<std::string>{})) {
      if (name == "message.output_text.logprobs") {
        request_.logprobs = true;
      } else if (name == "reasoning.encrypted_content") {
        request_.returns_reasoning = true;
      } else if (!is_of_absent_items(name)) {
        reader_.fail(fmt::format("include[{}]", index), fmt::format("Invalid value in 'include': '{}'", name));
      }
      ++index;
    }
    if (request_.logprobs) request_.fields.sampling.num_logprobs = static_cast<std::int32_t>(top.value_or(0));
    request_.echo["top_logprobs"] = top.value_or(0);
  }

  // Members of items that only OpenAI's own tools make: accepted, because no such item exists here.
  static bool is_of_absent_items(std::string_view name) {
    for (const std::string_view known :
         {"file_search_call.results", "web_search_call.results", "web_search_call.action.sources",
          "message.input_image.image_url", "computer_call_output.output.image_url", "code_interpreter_call.outputs"}) {
      if (name == known) return true;
    }
    return false;
  }

  // Items of the input may define tools too; the last definition of a name counts.
  void read_additional_tools(Json& chat) {
    const Json* input = reader_.find(fields::responses::kInput);
    if (input == nullptr || !input->is_array()) return;
    for (std::size_t i = 0; i < input->size() && !reader_.error(); ++i) {
      const Json& item = (*input)[i];
      if (!item.is_object() || item.value("type", Json()) != "additional_tools") continue;
      FieldReader fields(item, fmt::format("input[{}].", i));
      const Json* tools = fields.array("tools");
      if (tools == nullptr) fields.missing("tools");
      if (!fields.error()) add_tools(read_response_tools(fields, *tools), chat);
      take_error(reader_, fields);
    }
  }

  void add_tools(ReadResponseTools read, Json& chat) {
    if (!chat.contains("tools")) chat["tools"] = Json::array();
    Json& all = chat["tools"];
    for (Json& tool : read.chat) {
      for (std::size_t i = all.size(); i-- > 0;) {
        if (all[i]["function"]["name"] != tool["function"]["name"]) continue;
        all.erase(i);
        tool_paths_.erase(tool_paths_.begin() + static_cast<std::ptrdiff_t>(i));
      }
      all.push_back(std::move(tool));
    }
    tool_paths_.insert(tool_paths_.end(), read.paths.begin(), read.paths.end());
    for (auto& [name, tool] : read.tools)
      request_.tool_table.insert_or_assign(name, std::move(tool));
  }

  // Tools are checked and kept as those of chats: from here on there is one kind of them.
  void read_tools() {
    Json chat = Json::object();
    request_.echo["tools"] = Json::array();
    if (const Json* tools = reader_.array(fields::responses::kTools)) {
      ReadResponseTools read = read_response_tools(reader_, *tools);
      chat["tools"] = std::move(read.chat);
      request_.echo["tools"] = std::move(read.echo);
      request_.tool_table = std::move(read.tools);
      tool_paths_ = std::move(read.paths);
    }
    read_additional_tools(chat);
    const Json* choice = reader_.find(fields::responses::kToolChoice);
    request_.echo["tool_choice"] = choice != nullptr ? *choice : Json("auto");
    if (choice != nullptr) chat["tool_choice"] = chat_tool_choice(*choice);
    const bool parallel = reader_.boolean(fields::chat::kParallelToolCalls, true);
    request_.echo["parallel_tool_calls"] = parallel;
    chat["parallel_tool_calls"] = parallel;
    if (reader_.error()) return;
    request_.tools = read_translated_tools(reader_, chat, tool_paths_);
  }

  void read_text() {
    request_.grammar = read_constraint(reader_, model_);
    Json echo{{"format", {{"type", "text"}}}, {"verbosity", "medium"}};
    if (const Json* text = reader_.object(fields::responses::kText)) {
      FieldReader inner(*text, "text.");
      if (auto verbosity = inner.string("verbosity")) echo["verbosity"] = std::move(*verbosity);
      const Json* format = inner.object("format");
      take_error(reader_, inner);
      if (format != nullptr && !reader_.error()) echo["format"] = read_format(*format);
    }
    request_.echo["text"] = std::move(echo);
  }

  Json read_format(const Json& given) {
    FieldReader format(given, "text.format.");
    const auto type = format.word("type", {"text", "json_object", "json_schema"});
    if (!type) format.missing("type");
    Json echo{{"type", type.value_or("text")}};
    GrammarSpec spec;
    spec.kind = GrammarSpec::Kind::kJsonObject;
    std::string field = "text.format";
    if (type == "json_schema") {
      const auto name = format.string("name");
      if (!name) format.missing("name");
      const Json* schema = format.object("schema");
      if (schema == nullptr) format.missing("schema");
      spec.kind = GrammarSpec::Kind::kJsonSchema;
      if (schema != nullptr) spec.text = dump_json(*schema);
      field = "text.format.schema";
      if (auto description = format.string("description")) echo["description"] = std::move(*description);
      echo["name"] = name.value_or("");
      echo["schema"] = schema != nullptr ? *schema : Json();
      echo["strict"] = format.boolean("strict", false);
    }
    take_error(reader_, format);
    if (reader_.error() || type == "text") return echo;
    if (request_.grammar != nullptr) reader_.fail("text.format", "'text.format' and another field constrain the text");
    if (!reader_.error()) request_.grammar = compile_constraint(reader_, model_, field, spec);
    return echo;
  }

  void read_reasoning() {
    Json echo{{"effort", nullptr}, {"summary", nullptr}};
    if (const Json* reasoning = reader_.object(fields::responses::kReasoning)) {
      FieldReader inner(*reasoning, "reasoning.");
      if (auto effort = read_reasoning_effort(inner, "effort", request_.prompt)) echo["effort"] = std::move(*effort);
      for (const char* name : {"summary", "generate_summary"}) {
        const auto summary = inner.short_string(name, fields::kMostHintBytes);
        if (!summary || *summary == "none") continue;
        request_.summarises = true;
        echo["summary"] = *summary;
      }
      inner.refuse_unless("mode", "standard", "there is one mode");
      inner.refuse_unless("context", "auto", "the chat template decides which reasoning it shows");
      take_error(reader_, inner);
    }
    request_.echo["reasoning"] = std::move(echo);
  }

  // Accepts compaction only with a threshold that the input stays below, since nothing is compacted then.
  void read_context_management() {
    const Json* edits = reader_.array(fields::responses::kContextManagement);
    for (std::size_t i = 0; edits != nullptr && i < edits->size() && !reader_.error(); ++i) {
      const std::string path = fmt::format("context_management[{}]", i);
      if (!reader_.is_object(path, (*edits)[i])) return;
      FieldReader edit((*edits)[i], path + ".");
      const auto type = edit.word("type", {"compaction"});
      if (!type) edit.missing("type");
      const auto threshold = edit.integer("compact_threshold", 1, kMaxInt32);
      request_.compact_threshold =
          std::min(request_.compact_threshold.value_or(kMaxInt32), threshold.value_or(kMaxInt32));
      take_error(reader_, edit);
    }
  }

  void read_rest() {
    read_context_management();
    const auto store = reader_.boolean(fields::responses::kStore);
    const bool can_store = call_.unstored().empty();
    if (store == true && !can_store) reader_.refuse(fields::responses::kStore, call_.unstored());
    request_.store = store.value_or(true) && can_store;
    request_.echo["store"] = request_.store;
    request_.background = reader_.boolean(fields::responses::kBackground, false) && call_.socket_memory == nullptr;
    if (request_.background && call_.background == nullptr)
      reader_.refuse(fields::responses::kBackground, "a request of a batch has no client that waits");
    if (request_.background && !request_.store) {
      reader_.fail(fields::responses::kBackground,
                   "'background' needs 'store': the response is read after it was made");
    }
    reader_.short_string(fields::chat::kServiceTier, fields::kMostHintBytes);
    request_.echo["service_tier"] = "default";
    for (const fields::Field& hint :
         {fields::generation::kUser, fields::chat::kSafetyIdentifier, fields::chat::kPromptCacheKey}) {
      auto value = reader_.short_string(hint, fields::kMostHintBytes);
      if (value) request_.echo[std::string(hint.name)] = std::move(*value);
    }
    const bool continues = !request_.previous_response_id.empty() || !request_.conversation.empty();
    read_retention(reader_, request_.fields, continues);
    if (auto retention = reader_.string(fields::chat::kPromptCacheRetention))
      request_.echo["prompt_cache_retention"] = std::move(*retention);
    Json metadata = read_metadata(reader_);
    request_.echo["metadata"] = metadata.is_null() ? Json::object() : std::move(metadata);
  }

  FieldReader& reader_;
  const ServedModel& model_;
  const Call& call_;
  ResponsesRequest request_;
  std::vector<std::string> tool_paths_;
};

}  // namespace

ResponsesRequest read_responses_request(FieldReader& reader, const ServedModel& model, const Call& call) {
  return RequestReader(reader, model, call).read();
}

}  // namespace quire
