#include "server/api/common/model_table.h"

#include <algorithm>

#include "server/api/common/canary.h"

namespace quire {

namespace {

Error not_served(std::string_view name) {
  return Error{ErrorKind::kNotFound, "The model '" + std::string(name) + "' does not exist", "model_not_found", "model",
               std::nullopt};
}

// The model as it is under the name of one of its adapters.
std::shared_ptr<const ServedModel> with_adapter(const std::shared_ptr<const ServedModel>& model,
                                                std::string_view name) {
  const auto found = std::ranges::find(model->adapters, name, &NamedAdapter::name);
  if (found == model->adapters.end()) return model;
  auto adapted = std::make_shared<ServedModel>(*model);
  adapted->name = found->name;
  adapted->adapter = found->adapter;
  return adapted;
}

}  // namespace

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

Result<const TableEntry*> ModelTable::entry(std::string_view name) const {
  for (const TableEntry& entry : entries_) {
    if (entry.state == ModelState::kUnloaded) continue;
    const auto& aliases = entry.aliases;
    if (name.empty() || entry.name == name || std::find(aliases.begin(), aliases.end(), name) != aliases.end()) {
      return &entry;
    }
  }
  constexpr std::string_view kTag = ":latest";
  if (name.size() > kTag.size() && name.ends_with(kTag)) return entry(name.substr(0, name.size() - kTag.size()));
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

Result<std::variant<ModelCall, SleepingModel>> ModelTable::open(std::string_view body,
                                                                std::string_view key_name) const {
  if (body.empty()) return invalid("The request has no body; a JSON object is expected", "", "invalid_json");
  auto parsed = parse_json_object(body);
  if (!parsed) return tl::make_unexpected(parsed.error());
  auto object = std::make_unique<const Json>(*std::move(parsed));
  FieldReader reader(*object);
  const std::string name = reader.string("model").value_or("");
  if (reader.error()) return tl::make_unexpected(*reader.error());
  const auto found = entry(name);
  if (!found) return tl::make_unexpected(found.error());
  if (!(*found)->served) return SleepingModel{(*found)->name};
  auto served = with_adapter(version_for(**found, *object, key_name), name);
  return ModelCall{std::move(object), std::move(reader), std::move(served)};
}

}  // namespace quire
