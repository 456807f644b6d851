#include "core/text/jinja/values/object.h"

#include <algorithm>

#include "core/text/jinja/evaluator.h"
#include "core/text/jinja/failure.h"
#include "core/text/jinja/values/repr.h"

namespace quire::jinja {

std::size_t nesting_of(const std::vector<Value>& values) {
  std::size_t nesting = 0;
  for (const auto& value : values)
    nesting = std::max(nesting, value.nesting());
  return nesting + 1;
}

std::string Object::repr(Evaluator& /*evaluator*/) const {
  return "<" + std::string(type_name()) + " object>";
}

std::optional<Value> Object::attribute(Evaluator& /*evaluator*/, std::string_view /*name*/) {
  return std::nullopt;
}

std::optional<Value> Object::item(const Value& /*key*/) {
  return std::nullopt;
}

Value Object::call(Evaluator& /*evaluator*/, const Arguments& /*arguments*/) {
  fail("'" + std::string(type_name()) + "' object is not callable");
}

std::string Function::repr(Evaluator& /*evaluator*/) const {
  return "<" + std::string(type_) + " " + name_ + ">";
}

std::string Namespace::repr(Evaluator& evaluator) const {
  const Evaluator::Depth depth(evaluator, 2);
  return "<Namespace " + jinja::repr(evaluator, Value::dict(members_)).bytes() + ">";
}

std::optional<Value> Namespace::attribute(Evaluator& /*evaluator*/, std::string_view name) {
  return item(Value::string(name));
}

std::optional<Value> Namespace::item(const Value& key) {
  const Value* found = members_.find(key);
  return found == nullptr ? std::nullopt : std::optional<Value>(*found);
}

Bound::Bound(std::string_view function, const Arguments& arguments, std::string_view parameters,
             std::size_t num_required)
    : function_(function) {
  std::vector<std::string_view> names;
  std::size_t num_positional_only = 0;
  for (std::size_t begin = 0; begin < parameters.size();) {
    const std::size_t end = std::min(parameters.find(',', begin), parameters.size());
    const auto name = parameters.substr(begin, end - begin);
    if (name == "/") {
      num_positional_only = names.size();
    } else {
      names.push_back(name);
    }
    begin = end + 1;
  }
  values_.resize(names.size());
  if (arguments.positional.size() > names.size()) {
    fail(function_ + "() takes at most " + std::to_string(names.size()) + " arguments (" +
         std::to_string(arguments.positional.size()) + " given)");
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    values_[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.keywords) {
    const auto found = std::find(names.begin(), names.end(), name);
    const auto index = static_cast<std::size_t>(found - names.begin());
    if (found == names.end() || index < num_positional_only) {
      fail(function_ + "() got an unexpected keyword argument '" + name + "'");
    }
    if (values_[index]) fail(function_ + "() got multiple values for argument '" + name + "'");
    values_[index] = value;
  }
  for (std::size_t i = 0; i < num_required; ++i) {
    if (!values_[i]) fail(function_ + "() missing required argument '" + std::string(names[i]) + "'");
  }
}

bool Bound::flag(std::size_t index, bool fallback) const {
  return has(index) ? truthy(*values_[index]) : fallback;
}

Integer Bound::integer(std::size_t index, Integer fallback) const {
  if (!has(index)) return fallback;
  if (values_[index]->is_undefined()) fail(values_[index]->undefined_reason());
  if (!values_[index]->is_integral())
    fail(function_ + "(): '" + type_name(*values_[index]) + "' object cannot be interpreted as an integer");
  return values_[index]->as_integer();
}

Text Bound::text(std::size_t index, std::string_view fallback) const {
  if (!has(index)) return Text(std::string(fallback), true);
  if (!values_[index]->is_string()) fail(function_ + "() argument must be str, not " + type_name(*values_[index]));
  return values_[index]->text();
}

Value Bound::value_or(std::size_t index, Value fallback) const {
  if (!has(index)) return fallback;
  return *values_[index];
}

}  // namespace quire::jinja
