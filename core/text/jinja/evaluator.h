// Evaluator: one rendering of a parsed template. One thread at a time; lives as long as its rendering. Invariants:
// every evaluated node is charged against the limits, so any template ends; objects that refer to themselves
// (namespaces, scopes that hold macros) are released by the destructor. Errors are Failures (failure.h).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/chat_template.h"
#include "core/text/jinja/parse/ast.h"
#include "core/text/jinja/values/object.h"
#include "core/text/jinja/values/value.h"

namespace quire::jinja {

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> variables;  // names belong to the tree, the context or the program

  void set(std::string_view name, Value value);
  const Value* find(std::string_view name) const;
};

class Evaluator {
 public:
  Evaluator(const RenderLimits& limits, std::chrono::sys_seconds now, bool changes_values = false)
      : limits_(limits), now_(now), changes_values_(changes_values) {}
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;
  ~Evaluator();

  // The template's text; `context` holds its variables. Once per evaluator.
  Text render(const Body& body, std::vector<std::pair<std::string, Value>> context);
  int line() const { return line_; }  // line of the node evaluated last

  void charge(std::size_t steps);
  void check_length(std::size_t bytes) const;            // limit of a single string
  std::chrono::sys_seconds now() const { return now_; }  // local time as a clock on the wall shows it

  Value call(const Value& callee, const Arguments& arguments);
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  Value apply_filter(std::string_view name, const Value& input, const Arguments& arguments);
  bool apply_test(std::string_view name, const Value& input, const Arguments& arguments);
  // All items of Python's iter(); fails on values that cannot be iterated.
  std::vector<Value> iterate(const Value& value);
  void sort_entries(std::vector<Dict::Entry>& entries);  // by key

  std::shared_ptr<Namespace> make_namespace();

  // Runs the body of a macro or recursive loop for its text, in a scope under `parent`.
  Text run_macro(const MacroDefinition& macro, const std::shared_ptr<Scope>& scope);
  Text run_recursion(const Stmt& loop, std::vector<Value> items, std::size_t depth,
                     const std::shared_ptr<Scope>& parent);
  Value evaluate_in(const Expr& expr, const std::shared_ptr<Scope>& scope);

  // Counts nested evaluation while it lives; fails beyond the limit.
  class Depth {
   public:
    Depth(Evaluator& evaluator, std::size_t levels);
    ~Depth() { evaluator_.depth_ -= levels_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Evaluator& evaluator_;
    std::size_t levels_;
  };

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class Capture;
  class InScope;

  Value evaluate(const Expr& expr);
  Value evaluate_composite(const Expr& expr);
  Value evaluate_name(const Expr& expr);
  Value evaluate_dict(const Expr& expr);
  Value evaluate_slice(const Expr& expr);
  Value evaluate_concat(const Expr& expr);
  Value evaluate_compare(const Expr& expr);
  Value evaluate_call(const Expr& expr, const Value* caller);
  std::optional<Value> change_list(const Expr& owner, const Value& list, std::string_view method,
                                   const std::vector<ArgumentExpr>& arguments);
  Value evaluate_conditional(const Expr& expr);
  std::vector<Value> evaluate_all(const std::vector<ExprPtr>& exprs);
  Arguments evaluate_arguments(const std::vector<ArgumentExpr>& exprs);

  Flow run(const Body& body);
  Flow run(const Stmt& stmt);
  Flow run_if(const Stmt& stmt);
  void run_for(const Stmt& stmt);
  void run_loop(const Stmt& stmt, std::vector<Value> items, std::size_t depth, const std::shared_ptr<Scope>& parent);
  std::vector<Value> loop_items(const Stmt& stmt, std::vector<Value> items, const std::shared_ptr<Scope>& parent);
  Flow run_nested(const Stmt& stmt);
  void run_set_block(const Stmt& stmt);
  void run_call_block(const Stmt& stmt);
  Flow run_with(const Stmt& stmt);
  Value make_macro(const MacroDefinition& macro);
  void assign(const Expr& target, Value value);
  void set_variable(std::string_view name, Value value);
  bool replace(const Expr& owner, const Value& value);
  void emit(const Value& value);
  void emit(const Text& text);
  Text capture(const Body& body);

  RenderLimits limits_;
  std::chrono::sys_seconds now_;
  bool changes_values_;
  std::size_t steps_ = 0;
  std::size_t next_check_ = 0;  // number of steps at which the work limit is checked next
  std::size_t depth_ = 0;
  std::size_t num_bytes_ = 0;
  int line_ = 0;
  bool autoescape_ = false;
  Text* output_ = nullptr;
  Value block_text_;
  std::shared_ptr<Scope> scope_;
  std::vector<std::pair<std::string, Value>> context_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Scope>> captured_scopes_;  // scopes that a macro refers to
};

}  // namespace quire::jinja
