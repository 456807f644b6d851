#include "core/text/jinja/calls/macro.h"

#include <algorithm>

#include "core/text/jinja/failure.h"

namespace quire::jinja {

std::string Macro::repr(Evaluator& /*evaluator*/) const {
  return "<Macro '" + definition_.name + "'>";
}

std::optional<Value> Macro::attribute(Evaluator& /*evaluator*/, std::string_view name) {
  if (name == "name") return Value::string(definition_.name);
  if (name == "caller") return Value::boolean(definition_.uses_caller);
  if (name == "catch_varargs") return Value::boolean(definition_.uses_varargs);
  if (name == "catch_kwargs") return Value::boolean(definition_.uses_kwargs);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> names;
  for (const auto& parameter : definition_.parameters)
    names.push_back(Value::string(parameter));
  return Value::tuple(std::move(names));
}

bool Macro::declares(std::string_view name) const {
  return std::find(definition_.parameters.begin(), definition_.parameters.end(), name) != definition_.parameters.end();
}

// Defaults are evaluated in the macro's own scope, in which earlier parameters are already set.
void Macro::bind_parameters(Evaluator& evaluator, const Arguments& arguments,
                            const std::shared_ptr<Scope>& scope) const {
  const std::size_t num_without_default = definition_.parameters.size() - definition_.defaults.size();
  for (std::size_t i = 0; i < definition_.parameters.size(); ++i) {
    const std::string& name = definition_.parameters[i];
    const auto keyword = std::find_if(arguments.keywords.begin(), arguments.keywords.end(),
                                      [&name](const auto& k) { return k.first == name; });
    if (i < arguments.positional.size()) {
      if (keyword != arguments.keywords.end())
        fail("macro '" + definition_.name + "' got multiple values for argument '" + name + "'");
      scope->set(name, arguments.positional[i]);
    } else if (keyword != arguments.keywords.end()) {
      scope->set(name, keyword->second);
    } else if (i >= num_without_default) {
      scope->set(name, evaluator.evaluate_in(*definition_.defaults[i - num_without_default], scope));
    } else {
      scope->set(name, Value::undefined("parameter '" + name + "' was not provided"));
    }
  }
}

void Macro::bind_rest(const Arguments& arguments, Scope& scope) const {
  Dict rest;
  Value caller = Value::undefined("No caller defined");
  for (const auto& [name, value] : arguments.keywords) {
    if (declares(name)) continue;
    if (name == "caller" && definition_.uses_caller) {
      caller = value;
    } else if (definition_.uses_kwargs) {
      rest.set(Value::string(name), value);
    } else {
      fail("macro '" + definition_.name + "' takes no keyword argument '" + name + "'");
    }
  }
  if (definition_.uses_caller) scope.set("caller", caller);
  if (definition_.uses_kwargs) scope.set("kwargs", Value::dict(std::move(rest)));
  const std::size_t num_parameters = definition_.parameters.size();
  std::vector<Value> extra;
  if (arguments.positional.size() > num_parameters) {
    if (!definition_.uses_varargs) {
      fail("macro '" + definition_.name + "' takes not more than " + std::to_string(num_parameters) + " argument(s)");
    }
    extra.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(num_parameters),
                 arguments.positional.end());
  }
  if (definition_.uses_varargs) scope.set("varargs", Value::tuple(std::move(extra)));
}

Value Macro::call(Evaluator& evaluator, const Arguments& arguments) {
  const auto scope = std::make_shared<Scope>(Scope{scope_, {}});
  bind_parameters(evaluator, arguments, scope);
  bind_rest(arguments, *scope);
  return Value::string(evaluator.run_macro(definition_, scope));
}

}  // namespace quire::jinja
