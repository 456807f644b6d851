#include "core/text/jinja/parse/expression_parser.h"

#include <algorithm>
#include <cstdlib>

#include "core/text/jinja/failure.h"
#include "core/text/jinja/values/number_format.h"

namespace quire::jinja {
namespace {

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kBlockEnd: return "end of statement block";
    case TokenKind::kVariableEnd: return "end of print statement";
    case TokenKind::kEnd: return "end of template";
    case TokenKind::kData: return "template data / text";
    default: return token.text.empty() ? "begin of a tag" : token.text;
  }
}

template <class... Children>
std::vector<ExprPtr> children_of(Children... children) {
  std::vector<ExprPtr> list;
  (list.push_back(std::move(children)), ...);
  return list;
}

}  // namespace

ExpressionParser::Nested::Nested(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kMaxNestedSource) {
    --parser_.nesting_;
    parser_.fail_here("the template is nested more than " + std::to_string(kMaxNestedSource) + " deep");
  }
}

void ExpressionParser::fail_here(const std::string& message) const {
  fail(message, current().line);
}

void ExpressionParser::fail_unexpected(const std::string& expected) const {
  fail_here("unexpected '" + describe(current()) + "'" + (expected.empty() ? "" : ", expected " + expected));
}

bool ExpressionParser::skip_operator(std::string_view text) {
  if (!is_operator(text)) return false;
  next();
  return true;
}

bool ExpressionParser::skip_name(std::string_view text) {
  if (!is_name(text)) return false;
  next();
  return true;
}

void ExpressionParser::expect_operator(std::string_view text) {
  if (!skip_operator(text)) fail_unexpected("'" + std::string(text) + "'");
}

std::string ExpressionParser::expect_name() {
  if (!is(TokenKind::kName)) fail_unexpected("a name");
  return next().text;
}

ExprPtr ExpressionParser::make(ExprKind kind, std::vector<ExprPtr> children, std::string name) const {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = current().line;
  node->name = std::move(name);
  for (const auto& child : children) {
    if (child) node->height = std::max(node->height, child->height + 1);
  }
  if (node->height > kMaxTreeHeight)
    fail_here("an expression has more than " + std::to_string(kMaxTreeHeight) + " levels");
  node->children = std::move(children);
  return node;
}

ExprPtr ExpressionParser::parse_expression(bool with_condition) {
  const Nested nested(*this);
  return with_condition ? parse_condition() : parse_or();
}

ExprPtr ExpressionParser::parse_condition() {
  auto node = parse_or();
  while (skip_name("if")) {
    auto condition = parse_or();
    ExprPtr otherwise;
    if (skip_name("else")) {
      const Nested nested(*this);
      otherwise = parse_condition();
    }
    node = make(ExprKind::kConditional, children_of(std::move(node), std::move(condition), std::move(otherwise)));
  }
  return node;
}

ExprPtr ExpressionParser::parse_or() {
  auto node = parse_and();
  while (skip_name("or")) {
    auto right = parse_and();
    node = make(ExprKind::kOr, children_of(std::move(node), std::move(right)));
  }
  return node;
}

ExprPtr ExpressionParser::parse_and() {
  auto node = parse_not();
  while (skip_name("and")) {
    auto right = parse_not();
    node = make(ExprKind::kAnd, children_of(std::move(node), std::move(right)));
  }
  return node;
}

ExprPtr ExpressionParser::parse_not() {
  if (!is_name("not")) return parse_compare();
  const Nested nested(*this);
  next();
  return make(ExprKind::kNot, children_of(parse_not()));
}

ExprPtr ExpressionParser::parse_compare() {
  static constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
  auto first = parse_sum();
  std::vector<ExprPtr> operands;
  std::vector<std::string> operators;
  for (;;) {
    const bool symbol = is(TokenKind::kOperator) &&
                        std::find(std::begin(kOperators), std::end(kOperators), current().text) != std::end(kOperators);
    if (symbol) {
      operators.push_back(next().text);
    } else if (skip_name("in")) {
      operators.emplace_back("in");
    } else if (is_name("not") && look_ahead().kind == TokenKind::kName && look_ahead().text == "in") {
      next();
      next();
      operators.emplace_back("not in");
    } else {
      break;
    }
    operands.push_back(parse_sum());
  }
  if (operators.empty()) return first;
  operands.insert(operands.begin(), std::move(first));
  auto node = make(ExprKind::kCompare, std::move(operands));
  node->operators = std::move(operators);
  return node;
}

ExprPtr ExpressionParser::parse_sum() {
  auto node = parse_concat();
  while (is_operator("+") || is_operator("-")) {
    const std::string name = next().text;
    auto right = parse_concat();
    node = make(ExprKind::kBinary, children_of(std::move(node), std::move(right)), name);
  }
  return node;
}

ExprPtr ExpressionParser::parse_concat() {
  auto first = parse_product();
  if (!is_operator("~")) return first;
  auto parts = children_of(std::move(first));
  while (skip_operator("~"))
    parts.push_back(parse_product());
  return make(ExprKind::kConcat, std::move(parts));
}

ExprPtr ExpressionParser::parse_product() {
  auto node = parse_power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    const std::string name = next().text;
    auto right = parse_power();
    node = make(ExprKind::kBinary, children_of(std::move(node), std::move(right)), name);
  }
  return node;
}

ExprPtr ExpressionParser::parse_power() {
  auto node = parse_unary();
  while (skip_operator("**")) {
    auto right = parse_unary();
    node = make(ExprKind::kBinary, children_of(std::move(node), std::move(right)), "**");
  }
  return node;
}

ExprPtr ExpressionParser::parse_unary(bool with_filter) {
  ExprPtr node;
  if (is_operator("-") || is_operator("+")) {
    const Nested nested(*this);
    const bool minus = next().text == "-";
    node = make(minus ? ExprKind::kNegate : ExprKind::kPlus, children_of(parse_unary(false)));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filter_chain(std::move(node)) : std::move(node);
}

void ExpressionParser::note_use(const std::string& name) {
  for (auto& uses : macro_uses_) {
    uses.caller |= name == "caller";
    uses.varargs |= name == "varargs";
    uses.kwargs |= name == "kwargs";
  }
}

ExprPtr ExpressionParser::parse_name_or_constant() {
  const std::string name = next().text;
  const bool is_true = name == "true" || name == "True";
  if (is_true || name == "false" || name == "False" || name == "none" || name == "None") {
    auto node = make(ExprKind::kConstant);
    node->value = name == "none" || name == "None" ? Value::none() : Value::boolean(is_true);
    return node;
  }
  note_use(name);
  return make(ExprKind::kName, {}, name);
}

ExprPtr ExpressionParser::parse_number() {
  const Token token = next();
  auto node = make(ExprKind::kConstant);
  if (token.kind == TokenKind::kFloat) {
    node->value = Value::real(std::strtod(token.text.c_str(), nullptr));
    return node;
  }
  const auto parsed = parse_integer(token.text, 0);
  if (!parsed) fail_here("the integer " + token.text + " is too large");
  node->value = Value::integer(*parsed);
  return node;
}

ExprPtr ExpressionParser::parse_primary() {
  if (is(TokenKind::kName)) return parse_name_or_constant();
  if (is(TokenKind::kInteger) || is(TokenKind::kFloat)) return parse_number();
  if (is(TokenKind::kString)) {
    std::string text;
    auto node = make(ExprKind::kConstant);
    while (is(TokenKind::kString))
      text += next().text;
    node->value = Value::string(text);
    return node;
  }
  if (skip_operator("(")) {
    auto node = parse_tuple(true, {}, true);
    expect_operator(")");
    return node;
  }
  if (is_operator("[")) return parse_list();
  if (is_operator("{")) return parse_dict();
  fail_unexpected("");
}

bool ExpressionParser::is_tuple_end(EndNames end_names) const {
  if (is(TokenKind::kVariableEnd) || is(TokenKind::kBlockEnd) || is_operator(")")) return true;
  return std::any_of(end_names.begin(), end_names.end(), [this](std::string_view name) { return is_name(name); });
}

ExprPtr ExpressionParser::parse_tuple(bool with_condition, EndNames end_names, bool parenthesized) {
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (!items.empty()) expect_operator(",");
    if (is_tuple_end(end_names)) break;
    items.push_back(parse_expression(with_condition));
    if (!is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!parenthesized) fail_unexpected("an expression");
  }
  return make(ExprKind::kTuple, std::move(items));
}

ExprPtr ExpressionParser::parse_list() {
  expect_operator("[");
  std::vector<ExprPtr> items;
  while (!is_operator("]")) {
    if (!items.empty()) expect_operator(",");
    if (is_operator("]")) break;
    items.push_back(parse_expression());
  }
  expect_operator("]");
  return make(ExprKind::kList, std::move(items));
}

ExprPtr ExpressionParser::parse_dict() {
  expect_operator("{");
  std::vector<ExprPtr> items;
  while (!is_operator("}")) {
    if (!items.empty()) expect_operator(",");
    if (is_operator("}")) break;
    items.push_back(parse_expression());
    expect_operator(":");
    items.push_back(parse_expression());
  }
  expect_operator("}");
  return make(ExprKind::kDict, std::move(items));
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr node) {
  for (;;) {
    if (is_operator(".") || is_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::parse_filter_chain(ExprPtr node) {
  for (;;) {
    if (is_operator("|")) {
      node = parse_filters(std::move(node), false);
    } else if (is_name("is")) {
      node = parse_test(std::move(node));
    } else if (is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr node) {
  if (skip_operator(".")) {
    if (is(TokenKind::kName)) {
      const std::string name = next().text;
      return make(ExprKind::kAttribute, children_of(std::move(node)), name);
    }
    if (!is(TokenKind::kInteger)) fail_unexpected("name or number");
    auto index = parse_number();
    return make(ExprKind::kItem, children_of(std::move(node), std::move(index)));
  }
  expect_operator("[");
  return parse_subscribed(std::move(node));
}

// Parses the text between brackets: an index, a slice, or several of them separated by commas (a tuple).
ExprPtr ExpressionParser::parse_subscribed(ExprPtr node) {
  std::vector<ExprPtr> indices;
  while (!is_operator("]")) {
    if (!indices.empty()) expect_operator(",");
    std::vector<ExprPtr> bounds;
    bool slice = is_operator(":");
    bounds.push_back(slice ? nullptr : parse_expression());
    for (int i = 0; i < 2 && skip_operator(":"); ++i) {
      slice = true;
      const bool absent = is_operator(":") || is_operator("]") || is_operator(",");
      bounds.push_back(absent ? nullptr : parse_expression());
    }
    if (slice) {
      if (!indices.empty() || !is_operator("]")) fail_here("a slice cannot be part of a tuple of indices");
      bounds.resize(3);
      next();
      return make(ExprKind::kSlice,
                  children_of(std::move(node), std::move(bounds[0]), std::move(bounds[1]), std::move(bounds[2])));
    }
    indices.push_back(std::move(bounds[0]));
  }
  expect_operator("]");
  auto index = indices.size() == 1 ? std::move(indices[0]) : make(ExprKind::kTuple, std::move(indices));
  return make(ExprKind::kItem, children_of(std::move(node), std::move(index)));
}

ArgumentExpr ExpressionParser::parse_argument() {
  ArgumentExpr argument;
  if (skip_operator("*")) {
    argument.kind = ArgumentExpr::Kind::kSpread;
  } else if (skip_operator("**")) {
    argument.kind = ArgumentExpr::Kind::kSpreadKeywords;
  } else if (is(TokenKind::kName) && look_ahead().kind == TokenKind::kOperator && look_ahead().text == "=") {
    argument.kind = ArgumentExpr::Kind::kKeyword;
    argument.name = next().text;
    next();
  }
  argument.value = parse_expression();
  return argument;
}

std::vector<ArgumentExpr> ExpressionParser::parse_arguments() {
  expect_operator("(");
  std::vector<ArgumentExpr> arguments;
  bool keywords = false;
  while (!is_operator(")")) {
    if (!arguments.empty()) expect_operator(",");
    if (is_operator(")")) break;
    auto argument = parse_argument();
    const bool positional = argument.kind == ArgumentExpr::Kind::kPositional;
    if (positional && keywords) fail_here("invalid syntax for function call expression");
    keywords |= !positional;
    arguments.push_back(std::move(argument));
  }
  expect_operator(")");
  return arguments;
}

namespace {

void attach(Expr& node, std::vector<ArgumentExpr> arguments) {
  for (const auto& argument : arguments)
    node.height = std::max(node.height, argument.value->height + 1);
  if (node.height > kMaxTreeHeight) fail("an expression has too many levels", node.line);
  node.arguments = std::move(arguments);
}

}  // namespace

ExprPtr ExpressionParser::parse_call(ExprPtr node) {
  auto call = make(ExprKind::kCall, children_of(std::move(node)));
  attach(*call, parse_arguments());
  return call;
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = expect_name();
  while (skip_operator("."))
    name += "." + expect_name();
  return name;
}

ExprPtr ExpressionParser::parse_filters(ExprPtr node, bool inline_start) {
  while (is_operator("|") || inline_start) {
    if (!inline_start) next();
    inline_start = false;
    const std::string name = parse_dotted_name();
    node = make(ExprKind::kFilter, children_of(std::move(node)), name);
    if (is_operator("(")) attach(*node, parse_arguments());
  }
  return node;
}

ExprPtr ExpressionParser::parse_test(ExprPtr node) {
  next();
  const bool negated = skip_name("not");
  const std::string name = parse_dotted_name();
  std::vector<ArgumentExpr> arguments;
  if (is_operator("(")) {
    arguments = parse_arguments();
  } else if (is_name("is")) {
    fail_here("You cannot chain multiple tests with is");
  } else if ((is(TokenKind::kName) && !is_name("else") && !is_name("or") && !is_name("and")) ||
             is(TokenKind::kString) || is(TokenKind::kInteger) || is(TokenKind::kFloat) || is_operator("[") ||
             is_operator("{")) {
    ArgumentExpr argument;
    argument.value = parse_postfix(parse_primary());
    arguments.push_back(std::move(argument));
  }
  auto test = make(ExprKind::kTest, children_of(std::move(node)), name);
  attach(*test, std::move(arguments));
  return negated ? make(ExprKind::kNot, children_of(std::move(test))) : std::move(test);
}

ExprPtr ExpressionParser::parse_target(bool with_tuple, EndNames end_names, bool with_namespace) {
  static constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
  const auto check_name = [this](const Expr& node) {
    if (node.kind == ExprKind::kConstant ||
        std::find(std::begin(kConstants), std::end(kConstants), node.name) != std::end(kConstants)) {
      fail_here("can't assign to a constant");
    }
    if (node.kind != ExprKind::kName) fail_here("can't assign to this expression");
  };
  const auto parse_member = [this] {
    auto space = make(ExprKind::kName, {}, next().text);
    next();
    const std::string attribute = expect_name();
    return make(ExprKind::kAttribute, children_of(std::move(space)), attribute);
  };
  std::vector<ExprPtr> names;
  bool is_tuple = false;
  do {
    if (is_tuple && (is_tuple_end(end_names) || is_operator("="))) break;
    const bool is_member =
        with_namespace && is(TokenKind::kName) && look_ahead().kind == TokenKind::kOperator && look_ahead().text == ".";
    auto item = is_member ? parse_member() : parse_primary();
    if (item->kind == ExprKind::kTuple) {
      for (const auto& child : item->children)
        check_name(*child);
    } else if (!is_member) {
      check_name(*item);
    }
    names.push_back(std::move(item));
    if (with_tuple && is_operator(",")) is_tuple = true;
  } while (with_tuple && skip_operator(","));
  if (!is_tuple) return std::move(names[0]);
  return make(ExprKind::kTuple, std::move(names));
}

}  // namespace quire::jinja
