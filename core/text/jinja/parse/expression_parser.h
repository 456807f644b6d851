// ExpressionParser: the token cursor and the expression half of the template grammar. One thread at a time.
// Invariant: every expression it returns is at most kMaxTreeHeight high.
#pragma once

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/jinja/parse/ast.h"
#include "core/text/jinja/parse/lexer.h"

namespace quire::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  using EndNames = std::initializer_list<std::string_view>;

  const Token& current() const { return tokens_[position_]; }
  const Token& look_ahead() const { return tokens_[position_ + 1 < tokens_.size() ? position_ + 1 : position_]; }
  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_operator(std::string_view text) const { return is(TokenKind::kOperator) && current().text == text; }
  bool is_name(std::string_view text) const { return is(TokenKind::kName) && current().text == text; }
  Token next() { return tokens_[position_ + 1 < tokens_.size() ? position_++ : position_]; }
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  void expect_operator(std::string_view text);
  std::string expect_name();
  [[noreturn]] void fail_here(const std::string& message) const;
  [[noreturn]] void fail_unexpected(const std::string& expected) const;

  ExprPtr parse_expression(bool with_condition = true);
  // An expression, or several separated by commas. If `parenthesized`, nothing at all is the empty tuple.
  ExprPtr parse_tuple(bool with_condition = true, EndNames end_names = {}, bool parenthesized = false);
  // A name, an attribute of a namespace (if allowed) or a tuple of names to assign to.
  ExprPtr parse_target(bool with_tuple, EndNames end_names = {}, bool with_namespace = false);
  ExprPtr parse_filters(ExprPtr input, bool inline_start);
  ExprPtr parse_unary(bool with_filter = true);

  ExprPtr make(ExprKind kind, std::vector<ExprPtr> children = {}, std::string name = {}) const;

  // Names beyond their parameters that the enclosing macro definitions use.
  struct MacroUses {
    bool caller = false;
    bool varargs = false;
    bool kwargs = false;
  };
  std::vector<MacroUses> macro_uses_;

  // Counts nesting while it lives.
  class Nested {
   public:
    explicit Nested(ExpressionParser& parser);
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  bool is_tuple_end(EndNames end_names) const;
  ExprPtr parse_condition();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_primary();
  ExprPtr parse_name_or_constant();
  ExprPtr parse_number();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filter_chain(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_subscribed(ExprPtr node);
  ExprPtr parse_call(ExprPtr node);
  std::vector<ArgumentExpr> parse_arguments();
  ArgumentExpr parse_argument();
  ExprPtr parse_test(ExprPtr node);
  std::string parse_dotted_name();
  void note_use(const std::string& name);

  std::vector<Token> tokens_;
  std::size_t position_ = 0;
  int nesting_ = 0;
};

}  // namespace quire::jinja
