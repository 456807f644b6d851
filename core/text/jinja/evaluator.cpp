#include "core/text/jinja/evaluator.h"

#include <algorithm>

#include "core/text/jinja/calls/loop_context.h"
#include "core/text/jinja/failure.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/values/builtins.h"
#include "core/text/jinja/values/repr.h"
#include "core/text/jinja/values/unicode.h"

namespace quire::jinja {
namespace {

// Average number of nested nodes within a level of RenderLimits::max_depth (a macro call, a recursive loop).
constexpr std::size_t kNodesPerLevel = 12;
constexpr std::size_t kCheckEvery = 4096;      // steps
constexpr std::size_t kVariablesPerStep = 16;  // variables compared in the time of a step

}  // namespace

void Scope::set(std::string_view name, Value value) {
  for (auto& [known, current] : variables) {
    if (known == name) {
      current = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent.get()) {
    for (const auto& [known, value] : scope->variables) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

Evaluator::Depth::Depth(Evaluator& evaluator, std::size_t levels) : evaluator_(evaluator), levels_(levels) {
  evaluator_.depth_ += levels_;
  if (evaluator_.depth_ <= evaluator_.limits_.max_depth * kNodesPerLevel) return;
  evaluator_.depth_ -= levels_;
  fail("the template recurses too deeply");
}

Evaluator::~Evaluator() {
  for (const auto& scope : captured_scopes_)
    scope->variables.clear();
  for (const auto& space : namespaces_)
    space->release();
}

Text Evaluator::render(const Body& body, std::vector<std::pair<std::string, Value>> context) {
  context_ = std::move(context);
  scope_ = std::make_shared<Scope>();
  for (auto& [name, value] : context_)
    scope_->variables.emplace_back(name, value);
  scope_ = std::make_shared<Scope>(Scope{scope_, {}});
  Text text;
  output_ = &text;
  run(body);
  return text;
}

void Evaluator::charge(std::size_t steps) {
  steps_ += std::min(steps, limits_.max_steps + 1);
  if (steps_ > limits_.max_steps) fail("the template takes too many steps");
  if (steps_ < next_check_) return;
  next_check_ = steps_ + kCheckEvery;
  if (limits_.work.reached()) throw Interrupted{};
}

void Evaluator::set_variable(std::string_view name, Value value) {
  charge(scope_->variables.size() / kVariablesPerStep);
  scope_->set(name, std::move(value));
}

void Evaluator::check_length(std::size_t bytes) const {
  if (bytes > limits_.max_output_bytes)
    fail("the template makes a text of more than " + std::to_string(limits_.max_output_bytes) + " bytes");
}

std::shared_ptr<Namespace> Evaluator::make_namespace() {
  charge(64);  // they live until the rendering ends
  namespaces_.push_back(std::make_shared<Namespace>());
  return namespaces_.back();
}

Value Evaluator::evaluate(const Expr& expr) {
  charge(1);
  line_ = expr.line;
  switch (expr.kind) {
    case ExprKind::kConstant: return expr.value;
    case ExprKind::kName: return evaluate_name(expr);
    case ExprKind::kBlockText: return block_text_;
    default: break;
  }
  const Depth depth(*this, 1);
  return evaluate_composite(expr);
}

Value Evaluator::evaluate_composite(const Expr& expr) {
  const auto operand = [this, &expr](std::size_t i) { return evaluate(*expr.children[i]); };
  switch (expr.kind) {
    case ExprKind::kList: return Value::list(evaluate_all(expr.children));
    case ExprKind::kTuple: return Value::tuple(evaluate_all(expr.children));
    case ExprKind::kDict: return evaluate_dict(expr);
    case ExprKind::kAttribute: return attribute(operand(0), expr.name);
    case ExprKind::kItem: {
      const Value object = operand(0);
      return item(object, operand(1));
    }
    case ExprKind::kSlice: return evaluate_slice(expr);
    case ExprKind::kCall: return evaluate_call(expr, nullptr);
    case ExprKind::kFilter: {
      const Value input = operand(0);
      return apply_filter(expr.name, input, evaluate_arguments(expr.arguments));
    }
    case ExprKind::kTest: {
      const Value input = operand(0);
      return Value::boolean(apply_test(expr.name, input, evaluate_arguments(expr.arguments)));
    }
    case ExprKind::kNot: return Value::boolean(!truthy(operand(0)));
    case ExprKind::kNegate: return negate(operand(0));
    case ExprKind::kPlus: return unary_plus(operand(0));
    case ExprKind::kBinary: {
      const Value left = operand(0);
      return binary(*this, expr.name, left, operand(1));
    }
    case ExprKind::kConcat: return evaluate_concat(expr);
    case ExprKind::kCompare: return evaluate_compare(expr);
    case ExprKind::kAnd: {
      Value left = operand(0);
      return truthy(left) ? operand(1) : left;
    }
    case ExprKind::kOr: {
      Value left = operand(0);
      return truthy(left) ? left : operand(1);
    }
    case ExprKind::kConditional: return evaluate_conditional(expr);
    default: return {};
  }
}

Value Evaluator::evaluate_name(const Expr& expr) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get())
    charge(scope->variables.size() / kVariablesPerStep);
  if (const Value* value = scope_->find(expr.name)) return *value;
  if (auto value = find_global(expr.name)) return *value;
  return Value::undefined("'" + expr.name + "' is undefined");
}

std::vector<Value> Evaluator::evaluate_all(const std::vector<ExprPtr>& exprs) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const auto& expr : exprs)
    values.push_back(evaluate(*expr));
  return values;
}

Value Evaluator::evaluate_dict(const Expr& expr) {
  Dict dict;
  for (std::size_t i = 0; i < expr.children.size(); i += 2) {
    Value key = evaluate(*expr.children[i]);
    dict.set(std::move(key), evaluate(*expr.children[i + 1]));
  }
  return Value::dict(std::move(dict));
}

Value Evaluator::evaluate_slice(const Expr& expr) {
  Value bounds[3] = {Value::none(), Value::none(), Value::none()};
  const Value object = evaluate(*expr.children[0]);
  for (std::size_t i = 0; i < 3; ++i) {
    if (expr.children[i + 1]) bounds[i] = evaluate(*expr.children[i + 1]);
  }
  return slice(*this, object, bounds[0], bounds[1], bounds[2]);
}

Value Evaluator::evaluate_concat(const Expr& expr) {
  Text text;
  for (const auto& child : expr.children)
    text.append(to_text(*this, evaluate(*child)));
  check_length(text.size());
  charge(text.size() / 32);
  return Value::string(std::move(text));
}

Value Evaluator::evaluate_compare(const Expr& expr) {
  Value left = evaluate(*expr.children[0]);
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = evaluate(*expr.children[i + 1]);
    if (!compare(*this, expr.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::evaluate_conditional(const Expr& expr) {
  if (truthy(evaluate(*expr.children[1]))) return evaluate(*expr.children[0]);
  if (expr.children[2]) return evaluate(*expr.children[2]);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
}

Arguments Evaluator::evaluate_arguments(const std::vector<ArgumentExpr>& exprs) {
  Arguments arguments;
  for (const auto& expr : exprs) {
    Value value = evaluate(*expr.value);
    switch (expr.kind) {
      case ArgumentExpr::Kind::kPositional: arguments.positional.push_back(std::move(value)); break;
      case ArgumentExpr::Kind::kKeyword: arguments.keywords.emplace_back(expr.name, std::move(value)); break;
      case ArgumentExpr::Kind::kSpread:
        for (auto& item : iterate(value))
          arguments.positional.push_back(std::move(item));
        break;
      case ArgumentExpr::Kind::kSpreadKeywords:
        if (!value.is_dict()) fail("argument after ** must be a mapping, not " + type_name(value));
        for (const auto& [key, member] : value.dict().entries()) {
          if (!key.is_string()) fail("keywords must be strings");
          arguments.keywords.emplace_back(key.bytes(), member);
        }
        break;
    }
  }
  return arguments;
}

Value Evaluator::evaluate_call(const Expr& expr, const Value* caller) {
  const Expr& callee = *expr.children[0];
  if (callee.kind == ExprKind::kAttribute && caller == nullptr) {
    // A method called at once needs no bound function object.
    const Value receiver = evaluate(*callee.children[0]);
    if (changes_values_ && receiver.is_list()) {
      if (auto result = change_list(*callee.children[0], receiver, callee.name, expr.arguments)) return *result;
    }
    if (const auto method = find_method(receiver, callee.name)) {
      return method(*this, receiver, evaluate_arguments(expr.arguments));
    }
    const Value function = attribute(receiver, callee.name);
    return call(function, evaluate_arguments(expr.arguments));
  }
  const Value function = evaluate(callee);
  Arguments arguments = evaluate_arguments(expr.arguments);
  if (caller != nullptr) arguments.keywords.emplace_back("caller", *caller);
  return call(function, arguments);
}

Value Evaluator::call(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) fail(callee.undefined_reason());
  if (!callee.is_object() || !callee.object()->callable()) fail("'" + type_name(callee) + "' object is not callable");
  const Depth depth(*this, kNodesPerLevel / 2);
  return callee.object()->call(*this, arguments);
}

Value Evaluator::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) fail(object.undefined_reason());
  if (auto found = python_attribute(*this, object, name)) return *found;
  if (object.is_dict()) {
    if (const Value* member = object.dict().find(name)) return *member;
  } else if (object.is_object()) {
    if (auto member = object.object()->item(Value::string(name))) return *member;
  }
  return undefined_member(object, Value::string(name));
}

Value Evaluator::item(const Value& object, const Value& key) {
  if (object.is_undefined()) fail(object.undefined_reason());
  if (auto found = subscript(object, key)) return *found;
  if (key.is_string()) {
    if (auto found = python_attribute(*this, object, key.bytes())) return *found;
  }
  return undefined_member(object, key);
}

std::vector<Value> Evaluator::iterate(const Value& value) {
  std::vector<Value> items = iterate_value(*this, value);
  charge(items.size());
  return items;
}

void Evaluator::sort_entries(std::vector<Dict::Entry>& entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [this](const auto& a, const auto& b) { return compare(*this, "<", a.first, b.first); });
}

Value Evaluator::evaluate_in(const Expr& expr, const std::shared_ptr<Scope>& scope) {
  const auto previous = std::exchange(scope_, scope);
  Value value = evaluate(expr);
  scope_ = previous;
  return value;
}

}  // namespace quire::jinja
