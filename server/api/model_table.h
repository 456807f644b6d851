// ModelTable: the models that are served, by name. Immutable after construction; any thread.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "server/api/field_reader.h"
#include "server/api/served_model.h"

namespace quire {

class ModelTable {
 public:
  explicit ModelTable(std::vector<std::shared_ptr<const ServedModel>> models) : models_(std::move(models)) {}

  const std::vector<std::shared_ptr<const ServedModel>>& all() const { return models_; }
  // By name or alias; the first model where the name is empty. Error: 404 "model_not_found".
  Result<std::shared_ptr<const ServedModel>> find(std::string_view name) const;
  // The same models with contexts of at most this many tokens.
  ModelTable limited_to(std::int64_t max_context) const;
  // The model that the body's `model` names; its type error stays in the reader.
  Result<std::shared_ptr<const ServedModel>> select(FieldReader& reader) const;

 private:
  std::vector<std::shared_ptr<const ServedModel>> models_;
};

// Parses a body that must be a JSON object.
Result<Json> parse_object(std::string_view body);

}  // namespace quire
