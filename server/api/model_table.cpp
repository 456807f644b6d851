#include "server/api/model_table.h"

#include <algorithm>

namespace quire {

Result<std::shared_ptr<const ServedModel>> ModelTable::find(std::string_view name) const {
  for (const auto& model : models_) {
    const auto& aliases = model->aliases;
    if (name.empty() || model->name == name || std::find(aliases.begin(), aliases.end(), name) != aliases.end()) {
      return model;
    }
  }
  return tl::make_unexpected(Error{ErrorKind::kNotFound, "The model '" + std::string(name) + "' does not exist",
                                   "model_not_found", "model", std::nullopt});
}

ModelTable ModelTable::limited_to(std::int64_t max_context) const {
  std::vector<std::shared_ptr<const ServedModel>> limited;
  limited.reserve(models_.size());
  for (const auto& model : models_) {
    if (model->max_model_len <= max_context) {
      limited.push_back(model);
      continue;
    }
    auto copy = std::make_shared<ServedModel>(*model);
    copy->max_model_len = max_context;
    limited.push_back(std::move(copy));
  }
  return ModelTable(std::move(limited));
}

Result<std::shared_ptr<const ServedModel>> ModelTable::select(FieldReader& reader) const {
  const std::string name = reader.string("model").value_or("");
  if (reader.error()) return tl::make_unexpected(*reader.error());
  return find(name);
}

Result<Json> parse_object(std::string_view body) {
  if (body.empty()) return invalid("The request has no body; a JSON object is expected", "", "invalid_json");
  auto parsed = parse_json(body);
  if (parsed && !parsed->is_object()) return invalid("The request's body must be a JSON object", "", "invalid_type");
  return parsed;
}

}  // namespace quire
