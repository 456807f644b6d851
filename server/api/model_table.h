// ModelTable: the models that are served, by name. Immutable after construction; any thread.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "server/api/field_reader.h"
#include "server/api/served_model.h"

namespace quire {

// What an endpoint that takes JSON begins with.
struct ModelCall {
  std::unique_ptr<const Json> body;  // an object; stays where it is, for the reader points into it
  FieldReader reader;
  std::shared_ptr<const ServedModel> model;
};

class ModelTable {
 public:
  explicit ModelTable(std::vector<std::shared_ptr<const ServedModel>> models) : models_(std::move(models)) {}

  const std::vector<std::shared_ptr<const ServedModel>>& all() const { return models_; }
  // By name or alias; the first model where the name is empty. Error: 404 "model_not_found".
  Result<std::shared_ptr<const ServedModel>> find(std::string_view name) const;
  // The same models with contexts of at most this many tokens.
  ModelTable limited_to(std::int64_t max_context) const;
  // Parses a body and finds the model it names. Errors: the body is no JSON object, its `model` no text or not served.
  Result<ModelCall> open(std::string_view body) const;

 private:
  std::vector<std::shared_ptr<const ServedModel>> models_;
};

}  // namespace quire
