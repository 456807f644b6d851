// Object: a value with behaviour of its own inside one rendering: functions, macros, namespaces, the loop. One thread
// at a time. Invariant: objects that can refer back to themselves (namespaces, scopes with macros) are released by the
// Evaluator, not by reference counts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/jinja/values/value.h"

namespace quire::jinja {

class Evaluator;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;
};

// Nesting of a container of `values`: the deepest value's and one more.
std::size_t nesting_of(const std::vector<Value>& values);

class Object {
 public:
  explicit Object(std::size_t nesting = 0) : nesting_(nesting) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual std::string repr(Evaluator& evaluator) const;
  virtual bool callable() const { return false; }
  // A Python attribute; nothing if it has none.
  virtual std::optional<Value> attribute(Evaluator& evaluator, std::string_view name);
  // `object[key]`; nothing if it is not subscriptable or lacks the key.
  virtual std::optional<Value> item(const Value& key);
  virtual Value call(Evaluator& evaluator, const Arguments& arguments);
  // How deep the values it owns are nested: destroying it recurses that far.
  std::size_t nesting() const { return nesting_; }

 private:
  std::size_t nesting_;
};

// A built-in function: a global, or a method bound to its receiver.
class Function final : public Object {
 public:
  using Body = std::function<Value(Evaluator&, const Arguments&)>;
  Function(std::string name, Body body, std::string_view type, std::size_t nesting = 0)
      : Object(nesting), name_(std::move(name)), body_(std::move(body)), type_(type) {}
  std::string_view type_name() const override { return type_; }
  std::string repr(Evaluator& evaluator) const override;
  bool callable() const override { return true; }
  Value call(Evaluator& evaluator, const Arguments& arguments) override { return body_(evaluator, arguments); }

 private:
  std::string name_;
  Body body_;
  std::string_view type_;
};

class Namespace final : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  std::string repr(Evaluator& evaluator) const override;
  std::optional<Value> attribute(Evaluator& evaluator, std::string_view name) override;
  std::optional<Value> item(const Value& key) override;
  void set(Value key, Value value) { members_.set(std::move(key), std::move(value)); }
  void release() { members_ = Dict(); }

 private:
  Dict members_;
};

// Arguments matched to parameter names as Python does; fails like a TypeError would.
class Bound {
 public:
  // parameters: names separated by commas; those before a "/" cannot be given by keyword.
  Bound(std::string_view function, const Arguments& arguments, std::string_view parameters,
        std::size_t num_required = 0);
  bool has(std::size_t index) const { return values_[index].has_value(); }
  const Value& operator[](std::size_t index) const { return *values_[index]; }
  bool flag(std::size_t index, bool fallback = false) const;
  Integer integer(std::size_t index, Integer fallback) const;
  // The argument's str(), or the fallback; fails unless it is a string.
  Text text(std::size_t index, std::string_view fallback) const;
  Value value_or(std::size_t index, Value fallback) const;

 private:
  std::string function_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace quire::jinja
