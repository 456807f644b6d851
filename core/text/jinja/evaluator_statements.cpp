#include <algorithm>

#include "core/text/jinja/calls/loop_context.h"
#include "core/text/jinja/calls/macro.h"
#include "core/text/jinja/evaluator.h"
#include "core/text/jinja/failure.h"
#include "core/text/jinja/values/builtins.h"
#include "core/text/jinja/values/repr.h"

namespace quire::jinja {

// Runs its owner's statements in another scope while it lives.
class Evaluator::InScope {
 public:
  InScope(Evaluator& evaluator, std::shared_ptr<Scope> scope)
      : evaluator_(evaluator), previous_(std::exchange(evaluator.scope_, std::move(scope))) {}
  ~InScope() { evaluator_.scope_ = std::move(previous_); }
  InScope(const InScope&) = delete;
  InScope& operator=(const InScope&) = delete;

 private:
  Evaluator& evaluator_;
  std::shared_ptr<Scope> previous_;
};

// Captures output while it lives.
class Evaluator::Capture {
 public:
  explicit Capture(Evaluator& evaluator)
      : evaluator_(evaluator),
        text_(std::make_unique<Text>()),
        previous_(std::exchange(evaluator.output_, text_.get())) {}
  ~Capture() { evaluator_.output_ = previous_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  Text take() { return std::move(*text_); }

 private:
  Evaluator& evaluator_;
  std::unique_ptr<Text> text_;
  Text* previous_;
};

void Evaluator::emit(const Text& text) {
  num_bytes_ += text.size();
  check_length(num_bytes_);
  output_->append(text);
}

void Evaluator::emit(const Value& value) {
  if (autoescape_ && !value.is_markup()) return emit(escape_html(to_text(*this, value)));
  if (value.is_string()) return emit(value.text());
  emit(to_text(*this, value));
}

Text Evaluator::capture(const Body& body) {
  Capture captured(*this);
  run(body);
  return captured.take();
}

Evaluator::Flow Evaluator::run(const Body& body) {
  for (const auto& stmt : body) {
    if (const Flow flow = run(*stmt); flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::run(const Stmt& stmt) {
  charge(1);
  line_ = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kText: emit(stmt.text.text()); return Flow::kNormal;
    case StmtKind::kOutput:
      for (const auto& expr : stmt.exprs)
        emit(evaluate(*expr));
      return Flow::kNormal;
    case StmtKind::kSet: assign(*stmt.target, evaluate(*stmt.exprs[0])); return Flow::kNormal;
    case StmtKind::kMacro: set_variable(stmt.macro->name, make_macro(*stmt.macro)); return Flow::kNormal;
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
    case StmtKind::kRefused: fail("'" + stmt.name + "' needs other templates, which a chat template has not");
    default: break;
  }
  const Depth depth(*this, 2);
  return run_nested(stmt);
}

Evaluator::Flow Evaluator::run_nested(const Stmt& stmt) {
  switch (stmt.kind) {
    case StmtKind::kIf: return run_if(stmt);
    case StmtKind::kFor: run_for(stmt); return Flow::kNormal;
    case StmtKind::kSetBlock:
    case StmtKind::kFilterBlock: run_set_block(stmt); return Flow::kNormal;
    case StmtKind::kCallBlock: run_call_block(stmt); return Flow::kNormal;
    case StmtKind::kAutoescape: {
      const bool enabled = truthy(evaluate(*stmt.exprs[0]));
      const bool previous = std::exchange(autoescape_, enabled);
      const InScope inner(*this, std::make_shared<Scope>(Scope{scope_, {}}));
      const Flow flow = run(stmt.body);
      autoescape_ = previous;
      return flow;
    }
    default: return run_with(stmt);
  }
}

Evaluator::Flow Evaluator::run_if(const Stmt& stmt) {
  for (const auto& branch : stmt.branches) {
    if (truthy(evaluate(*branch.condition))) return run(branch.body);
  }
  return run(stmt.else_body);
}

// Runs a `with` block; without variables it is a `block` or `generation` block.
Evaluator::Flow Evaluator::run_with(const Stmt& stmt) {
  auto inner = std::make_shared<Scope>(Scope{scope_, {}});
  for (std::size_t i = 0; i + 1 < stmt.exprs.size(); i += 2) {
    inner->set(stmt.exprs[i]->name, evaluate(*stmt.exprs[i + 1]));
  }
  const InScope entered(*this, std::move(inner));
  return run(stmt.body);
}

void Evaluator::run_set_block(const Stmt& stmt) {
  Text text;
  {
    const InScope inner(*this, std::make_shared<Scope>(Scope{scope_, {}}));
    text = capture(stmt.body);
  }
  const Value outer = std::exchange(block_text_, Value::string(std::move(text), autoescape_));
  Value value = evaluate(*stmt.exprs[0]);
  block_text_ = outer;
  if (stmt.kind == StmtKind::kFilterBlock) {
    emit(value);
  } else {
    assign(*stmt.target, std::move(value));
  }
}

Value Evaluator::make_macro(const MacroDefinition& macro) {
  captured_scopes_.push_back(scope_);
  charge(64);  // the scope lives until the rendering ends
  return Value::object(std::make_shared<Macro>(macro, scope_));
}

void Evaluator::run_call_block(const Stmt& stmt) {
  const Value caller = make_macro(*stmt.macro);
  emit(evaluate_call(*stmt.exprs[0], &caller));
}

Text Evaluator::run_macro(const MacroDefinition& macro, const std::shared_ptr<Scope>& scope) {
  const InScope inner(*this, scope);
  return capture(macro.body);
}

std::vector<Value> Evaluator::loop_items(const Stmt& stmt, std::vector<Value> items,
                                         const std::shared_ptr<Scope>& parent) {
  if (!stmt.exprs[1]) return items;
  std::vector<Value> kept;
  for (auto& item : items) {
    const InScope inner(*this, std::make_shared<Scope>(Scope{parent, {}}));
    assign(*stmt.target, item);
    if (truthy(evaluate(*stmt.exprs[1]))) kept.push_back(std::move(item));
  }
  return kept;
}

void Evaluator::run_for(const Stmt& stmt) {
  auto items = iterate(evaluate(*stmt.exprs[0]));
  run_loop(stmt, std::move(items), 0, scope_);
}

Text Evaluator::run_recursion(const Stmt& loop, std::vector<Value> items, std::size_t depth,
                              const std::shared_ptr<Scope>& parent) {
  Capture captured(*this);
  run_loop(loop, std::move(items), depth, parent);
  return captured.take();
}

void Evaluator::run_loop(const Stmt& stmt, std::vector<Value> items, std::size_t depth,
                         const std::shared_ptr<Scope>& parent) {
  const Depth nested(*this, 2);
  items = loop_items(stmt, std::move(items), parent);
  // An iteration that `break` or `continue` ends does not count, as in Jinja2: `else` runs if no iteration came to its
  // end.
  bool any_finished = false;
  const auto loop = std::make_shared<LoopContext>(stmt, std::move(items), depth, parent);
  for (; loop->index() < loop->size(); loop->advance()) {
    auto inner = std::make_shared<Scope>(Scope{parent, {}});
    inner->variables.emplace_back("loop", Value::object(loop));
    const InScope entered(*this, std::move(inner));
    assign(*stmt.target, loop->current());
    const Flow flow = run(stmt.body);
    if (flow == Flow::kBreak) break;
    any_finished = any_finished || flow == Flow::kNormal;
  }
  if (any_finished) return;
  const InScope inner(*this, std::make_shared<Scope>(Scope{parent, {}}));
  run(stmt.else_body);
}

// Gives a variable of any scope, or a namespace's member, another value; false if `owner` is neither.
bool Evaluator::replace(const Expr& owner, const Value& value) {
  if (owner.kind == ExprKind::kAttribute) {
    const Value space = evaluate(*owner.children[0]);
    if (!space.is_object() || dynamic_cast<Namespace*>(space.object().get()) == nullptr) return false;
    assign(owner, value);
    return true;
  }
  if (owner.kind != ExprKind::kName) return false;
  for (Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    const auto own = std::find_if(scope->variables.begin(), scope->variables.end(),
                                  [&owner](const auto& variable) { return variable.first == owner.name; });
    if (own == scope->variables.end()) continue;
    own->second = value;
    return true;
  }
  return false;
}

// Runs Python's methods that change a list: values are immutable, so its owner gets another list. Nothing if it is no
// such method or the list has no owner.
std::optional<Value> Evaluator::change_list(const Expr& owner, const Value& list, std::string_view method,
                                            const std::vector<ArgumentExpr>& arguments) {
  const bool is_pop = method == "pop";
  if (!is_pop && method != "append" && method != "extend" && method != "insert") return std::nullopt;
  const Arguments given = evaluate_arguments(arguments);
  std::vector<Value> items = list.items();
  charge(items.size() + 1);
  const auto size = static_cast<Integer>(items.size());
  Value result = Value::none();
  if (is_pop) {
    Integer at = Bound("pop", given, "index,/").integer(0, -1);
    if (at < 0) at += size;
    if (at < 0 || at >= size) fail(size == 0 ? "pop from empty list" : "pop index out of range");
    result = items[static_cast<std::size_t>(at)];
    items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
  } else if (method == "insert") {
    const Bound bound("insert", given, "index,object,/", 2);
    Integer at = bound.integer(0, 0);
    at = std::clamp<Integer>(at < 0 ? at + size : at, 0, size);
    items.insert(items.begin() + static_cast<std::ptrdiff_t>(at), bound[1]);
  } else if (method == "append") {
    items.push_back(Bound("append", given, "object,/", 1)[0]);
  } else {
    const std::vector<Value> more = iterate(Bound("extend", given, "iterable,/", 1)[0]);
    items.insert(items.end(), more.begin(), more.end());
  }
  if (!replace(owner, Value::list(std::move(items)))) return std::nullopt;
  return result;
}

void Evaluator::assign(const Expr& target, Value value) {
  if (target.kind == ExprKind::kName) return set_variable(target.name, std::move(value));
  if (target.kind == ExprKind::kAttribute) {
    const Value space = evaluate(*target.children[0]);
    auto* members = space.is_object() ? dynamic_cast<Namespace*>(space.object().get()) : nullptr;
    if (members == nullptr) fail("cannot assign attribute on non-namespace object");
    members->set(Value::string(target.name), std::move(value));
    return;
  }
  const auto items = iterate(value);
  const std::size_t expected = target.children.size();
  if (items.size() > expected) fail("too many values to unpack (expected " + std::to_string(expected) + ")");
  if (items.size() < expected) {
    fail("not enough values to unpack (expected " + std::to_string(expected) + ", got " + std::to_string(items.size()) +
         ")");
  }
  for (std::size_t i = 0; i < expected; ++i)
    assign(*target.children[i], items[i]);
}

}  // namespace quire::jinja
