// The syntax tree of a template, after Jinja2's own nodes, and the functions that make and check it. Immutable after
// construction; any thread. Invariant: no expression is higher than kMaxTreeHeight and no statement nested deeper, so
// walking and destroying a tree is bounded. Every error is a Failure that names its line.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/jinja/values/value.h"

namespace quire::jinja {

struct LexerOptions;

inline constexpr int kMaxTreeHeight = 400;
inline constexpr int kMaxNestedSource = 100;  // depth of nested brackets, operands and blocks while parsing

enum class ExprKind {
  kConstant,   // value
  kName,       // name
  kList,       // children
  kTuple,      // children
  kDict,       // children: key, value, key, value, ...
  kAttribute,  // children[0].name
  kItem,       // children[0][children[1]]
  kSlice,      // children[0][start:stop:step], absent ones null
  kCall,       // children[0](arguments)
  kFilter,     // children[0]|name(arguments)
  kTest,       // children[0] is name(arguments)
  kNot,
  kNegate,
  kPlus,
  kBinary,   // children[0] name children[1], name being the operator
  kConcat,   // children joined by ~
  kCompare,  // children[0] operators[0] children[1] operators[1] ...
  kAnd,
  kOr,
  kConditional,  // children[0] if children[1] else children[2] (may be null)
  kBlockText,    // the text a filter block or set block captured
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct ArgumentExpr {
  enum class Kind { kPositional, kKeyword, kSpread, kSpreadKeywords };
  Kind kind = Kind::kPositional;
  std::string name;
  ExprPtr value;
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  int line = 0;
  int height = 1;
  std::string name;
  Value value;
  std::vector<ExprPtr> children;
  std::vector<ArgumentExpr> arguments;
  std::vector<std::string> operators;
};

enum class StmtKind {
  kText,         // text
  kOutput,       // exprs
  kIf,           // branches, else_body
  kFor,          // target, exprs: iterable and filter (may be null), flag: recursive, body, else_body
  kSet,          // target, exprs[0]
  kSetBlock,     // target, exprs[0]: filters around kBlockText, body
  kMacro,        // macro
  kCallBlock,    // exprs[0]: the call, macro: the caller
  kFilterBlock,  // exprs[0], body
  kWith,         // targets in exprs at even places, values at odd ones, body
  kScope,        // body, in a scope of its own: generation, block
  kAutoescape,   // exprs[0], body
  kBreak,
  kContinue,
  kRefused,  // name: a statement that needs a template loader
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Branch {
  ExprPtr condition;
  Body body;
};

struct MacroDefinition {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // defaults of the last parameters
  Body body;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  bool flag = false;
  std::string name;
  Value text;
  ExprPtr target;
  std::vector<ExprPtr> exprs;
  std::vector<Branch> branches;
  std::unique_ptr<MacroDefinition> macro;
  Body body;
  Body else_body;
};

// The statements of a template's source, by Jinja2's grammar.
Body parse_template(std::string_view source, const LexerOptions& options);

// Fails on the first filter or test that does not exist. As in Jinja2, a name inside an `if` or a conditional
// expression is checked only when it is reached.
void check_names(const Body& body);

}  // namespace quire::jinja
