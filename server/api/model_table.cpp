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

Result<ModelCall> ModelTable::open(std::string_view body) const {
  if (body.empty()) return invalid("The request has no body; a JSON object is expected", "", "invalid_json");
  auto parsed = parse_json(body);
  if (!parsed) return tl::make_unexpected(parsed.error());
  if (!parsed->is_object()) return invalid("The request's body must be a JSON object", "", "invalid_type");
  auto object = std::make_unique<const Json>(*std::move(parsed));
  FieldReader reader(*object);
  const std::string name = reader.string("model").value_or("");
  if (reader.error()) return tl::make_unexpected(*reader.error());
  auto model = find(name);
  if (!model) return tl::make_unexpected(model.error());
  return ModelCall{std::move(object), std::move(reader), *std::move(model)};
}

}  // namespace quire
