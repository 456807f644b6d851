#include "core/text/jinja/parse/ast.h"

#include "core/text/jinja/failure.h"
#include "core/text/jinja/values/builtins.h"

namespace quire::jinja {
namespace {

void check(const Expr& expr, bool deferred) {
  if (!deferred && expr.kind == ExprKind::kFilter && find_filter(expr.name) == nullptr) {
    fail("No filter named '" + expr.name + "'.", expr.line);
  }
  if (!deferred && expr.kind == ExprKind::kTest && find_test(expr.name) == nullptr) {
    fail("No test named '" + expr.name + "'.", expr.line);
  }
  const bool inner = deferred || expr.kind == ExprKind::kConditional;
  for (const auto& child : expr.children) {
    if (child) check(*child, inner);
  }
  for (const auto& argument : expr.arguments)
    check(*argument.value, inner);
}

void check(const Body& body, bool deferred);

void check_all(const std::vector<ExprPtr>& exprs, bool deferred) {
  for (const auto& expr : exprs) {
    if (expr) check(*expr, deferred);
  }
}

void check(const Stmt& stmt, bool deferred) {
  switch (stmt.kind) {
    case StmtKind::kIf:
      for (const auto& branch : stmt.branches) {
        check(*branch.condition, true);
        check(branch.body, true);
      }
      return check(stmt.else_body, true);
    case StmtKind::kFor:
      check(*stmt.exprs[0], deferred);
      if (stmt.exprs[1]) check(*stmt.exprs[1], false);
      break;
    case StmtKind::kSetBlock:
    case StmtKind::kFilterBlock: check_all(stmt.exprs, false); break;
    default: check_all(stmt.exprs, deferred);
  }
  if (stmt.macro) {
    check_all(stmt.macro->defaults, false);
    check(stmt.macro->body, false);
  }
  check(stmt.body, false);
  check(stmt.else_body, false);
}

void check(const Body& body, bool deferred) {
  for (const auto& stmt : body)
    check(*stmt, deferred);
}

}  // namespace

void check_names(const Body& body) {
  check(body, false);
}

}  // namespace quire::jinja
