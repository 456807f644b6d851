// Macro: a template's macro, or the body of a call block, with the scope it was defined in. One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "core/text/jinja/evaluator.h"
#include "core/text/jinja/parse/ast.h"
#include "core/text/jinja/values/object.h"

namespace quire::jinja {

class Macro final : public Object {
 public:
  Macro(const MacroDefinition& definition, std::shared_ptr<Scope> scope)
      : definition_(definition), scope_(std::move(scope)) {}
  std::string_view type_name() const override { return "Macro"; }
  std::string repr(Evaluator& evaluator) const override;
  bool callable() const override { return true; }
  std::optional<Value> attribute(Evaluator& evaluator, std::string_view name) override;
  Value call(Evaluator& evaluator, const Arguments& arguments) override;

 private:
  void bind_parameters(Evaluator& evaluator, const Arguments& arguments, const std::shared_ptr<Scope>& scope) const;
  void bind_rest(const Arguments& arguments, Scope& scope) const;
  bool declares(std::string_view name) const;

  const MacroDefinition& definition_;
  std::shared_ptr<Scope> scope_;
};

}  // namespace quire::jinja
