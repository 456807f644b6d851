#include "server/api/common/model_table.h"

#include <xxhash.h>

#include <algorithm>

#include "core/base/message_text.h"
#include "server/api/fields/generation.h"

namespace quire {

namespace {

constexpr std::size_t kMaxShownName = 200;  // bytes of a name that is not served

// The adapter named by the model's name, or by llama-server's `lora`. Null: none.
const NamedAdapter* asked_adapter(const TableEntry& model, std::string_view name, FieldReader& reader) {
  const NamedAdapter* asked = find_adapter(model, name);
  const Json* const list = reader.array(fields::generation::kLora);
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const std::string path = "lora[" + std::to_string(i) + "]";
    if (!reader.is_object(path, (*list)[i])) return nullptr;
    FieldReader item((*list)[i], path + ".");
    const auto id = item.integer("id", 0, static_cast<std::int64_t>(model.adapters.size()) - 1);
    const double scale = item.number("scale", 0.0, 1.0).value_or(0.0);
    take_error(reader, item);
    if (!id || scale == 0.0) continue;
    const NamedAdapter& listed = model.adapters[static_cast<std::size_t>(*id)];
    if (scale != 1.0)
      reader.fail(path + ".scale", "'" + path + ".scale' must be 0 or 1: an adapter is used as its file has it");
    if (asked != nullptr && asked != &listed)
      reader.fail(fields::generation::kLora, "'lora' names a second adapter: a request has one");
    asked = &listed;
  }
  return asked;
}

// The model with its adapter; null: the adapter is not in memory, and `asleep` waits for it.
Result<std::shared_ptr<const ServedModel>> with_adapter(const std::shared_ptr<const ServedModel>& model,
                                                        const NamedAdapter& adapter, SleepingModel& asleep) {
  auto taken = model->take_adapter ? model->take_adapter(adapter.name) : std::nullopt;
  if (!taken) return tl::make_unexpected(not_served(adapter.name));
  if (taken->adapter == nullptr) {
    asleep = {adapter.name, std::move(taken->wait)};
    return std::shared_ptr<const ServedModel>();
  }
  auto adapted = std::make_shared<ServedModel>(*model);
  adapted->name = adapter.name;
  adapted->adapter = std::move(taken->adapter);
  return adapted;
}

constexpr std::string_view kTag = ":latest";

bool has_tag(std::string_view name) {
  return name.size() > kTag.size() && name.ends_with(kTag);
}

}  // namespace

Error not_served(std::string_view name) {
  return Error{ErrorKind::kNotFound, "The model '" + shortened(std::string(name), kMaxShownName) + "' does not exist",
               "model_not_found", "model", std::nullopt};
}

const char* model_state_name(ModelState state) {
  switch (state) {
    case ModelState::kUnloaded: return "unloaded";
    case ModelState::kLoading: return "loading";
    case ModelState::kReady: return "ready";
    case ModelState::kSleeping: return "sleeping";
    case ModelState::kWaking: return "waking";
    case ModelState::kDraining: return "draining";
    case ModelState::kFailed: return "failed";
  }
  return "failed";
}

const NamedAdapter* find_adapter(const TableEntry& model, std::string_view name) {
  const auto found = std::ranges::find(model.adapters, name, &NamedAdapter::name);
  if (found != model.adapters.end()) return &*found;
  const bool is_own = model.name == name || std::ranges::find(model.aliases, name) != model.aliases.end();
  return !is_own && has_tag(name) ? find_adapter(model, name.substr(0, name.size() - kTag.size())) : nullptr;
}

Result<const TableEntry*> ModelTable::entry(std::string_view name) const {
  for (const TableEntry& entry : entries_) {
    if (entry.state == ModelState::kUnloaded) continue;
    const auto& aliases = entry.aliases;
    const bool is_own = name.empty() || entry.name == name || std::ranges::find(aliases, name) != aliases.end();
    if (is_own || std::ranges::find(entry.adapters, name, &NamedAdapter::name) != entry.adapters.end()) return &entry;
  }
  if (has_tag(name)) return entry(name.substr(0, name.size() - kTag.size()));
  return tl::make_unexpected(not_served(name));
}

ModelTable ModelTable::limited_to(std::int64_t max_context) const {
  std::vector<TableEntry> limited = entries_;
  for (TableEntry& entry : limited) {
    if (entry.max_model_len <= max_context) continue;
    entry.max_model_len = max_context;
    if (!entry.served) continue;
    auto copy = std::make_shared<ServedModel>(*entry.served);
    copy->max_model_len = max_context;
    entry.served = std::move(copy);
  }
  return ModelTable(std::move(limited));
}

const std::shared_ptr<const ServedModel>& ModelTable::version_for(const TableEntry& model, const Json& body,
                                                                  std::string_view key_name) const {
  if (model.canary_share <= 0.0) return model.served;
  const auto canary = entry(canary_name(model.name));
  if (!canary || !(*canary)->served || place_in_traffic(body, key_name) >= model.canary_share) return model.served;
  return (*canary)->served;
}

Result<std::variant<ModelCall, SleepingModel>> ModelTable::open(std::string_view body, std::string_view key_name,
                                                                const WorkLimit& limit) const {
  if (body.empty()) return invalid("The request has no body; a JSON object is expected", "", "invalid_json");
  auto parsed = parse_json_object(body, limit);
  if (!parsed) return tl::make_unexpected(parsed.error());
  auto object = std::make_unique<const Json>(*std::move(parsed));
  FieldReader reader(*object);
  reader.set_limit(limit);
  const std::string name = reader.string(fields::generation::kModel).value_or("");
  if (reader.error()) return tl::make_unexpected(*reader.error());
  const auto found = entry(name);
  if (!found) return tl::make_unexpected(found.error());
  const NamedAdapter* const adapter = asked_adapter(**found, name, reader);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  if (!(*found)->served) return SleepingModel{(*found)->name};
  std::shared_ptr<const ServedModel> served = version_for(**found, *object, key_name);
  if (adapter != nullptr) {
    SleepingModel asleep;
    auto adapted = with_adapter(served, *adapter, asleep);
    if (!adapted) return tl::make_unexpected(adapted.error());
    if (*adapted == nullptr) return asleep;
    served = *std::move(adapted);
  }
  return ModelCall{std::move(object), std::move(reader), std::move(served)};
}

namespace {

// Length of the first text that identifies a conversation; its later turns never change it.
constexpr std::size_t kMostOfText = 1024;
constexpr const char* kConversationFields[] = {"prompt_cache_key", "session_id", "user", "safety_identifier"};
constexpr const char* kTextFields[] = {"prompt", "input", "query", "text_1", "input_prefix"};

std::string beginning_of(const Json& text) {
  const std::string whole = text.is_string() ? text.get<std::string>() : dump_json(text);
  return whole.substr(0, kMostOfText);
}

const Json* text_member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || !found->is_string() ? nullptr : &*found;
}

// The first message of a user; a system prompt before it is the same in many conversations.
const Json* first_question(const Json& messages) {
  for (const Json& message : messages) {
    const Json* const role = message.is_object() ? text_member(message, "role") : nullptr;
    if (role != nullptr && *role == "user" && message.contains("content")) return &message["content"];
  }
  return nullptr;
}

std::string conversation_of(const Json& body) {
  for (const char* name : kConversationFields) {
    if (const Json* const id = text_member(body, name)) return name + id->get<std::string>();
  }
  if (const auto metadata = body.find("metadata"); metadata != body.end() && metadata->is_object()) {
    if (const Json* const id = text_member(*metadata, "user_id")) return "user_id" + id->get<std::string>();
  }
  for (const char* name : {"messages", "input"}) {
    const auto messages = body.find(name);
    if (messages == body.end() || !messages->is_array()) continue;
    if (const Json* const question = first_question(*messages)) return beginning_of(*question);
  }
  for (const char* name : kTextFields) {
    if (const auto text = body.find(name); text != body.end()) return beginning_of(*text);
  }
  return {};
}

}  // namespace

std::string canary_name(std::string_view model) {
  return std::string(model) + "@canary";
}

double place_in_traffic(const Json& body, std::string_view key_name) {
  const std::string who = std::string(key_name) + "\n" + conversation_of(body);
  return static_cast<double>(XXH3_64bits(who.data(), who.size()) >> 11) * 0x1p-53;
}

}  // namespace quire
