#include "core/text/jinja/parse/ast.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/text/jinja/parse/expression_parser.h"

namespace quire::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Body run() {
    Body body = parse_body({});
    return body;
  }

 private:
  using StmtPtr = std::unique_ptr<Stmt>;

  StmtPtr make_stmt(StmtKind kind) const {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = current().line;
    return stmt;
  }

  bool at_end_name(EndNames end_names) const {
    return std::any_of(end_names.begin(), end_names.end(), [this](std::string_view name) { return is_name(name); });
  }

  // Statements up to a tag named in `end_names`, which stays current, or to the template's end if there are no names.
  Body parse_body(EndNames end_names) {
    const Nested nested(*this);
    Body body;
    while (!is(TokenKind::kEnd)) {
      if (is(TokenKind::kData)) {
        auto stmt = make_stmt(StmtKind::kText);
        stmt->text = Value::string(next().text);
        body.push_back(std::move(stmt));
      } else if (is(TokenKind::kVariableBegin)) {
        next();
        auto stmt = make_stmt(StmtKind::kOutput);
        stmt->exprs.push_back(parse_tuple());
        if (!is(TokenKind::kVariableEnd)) fail_unexpected("end of print statement");
        next();
        body.push_back(std::move(stmt));
      } else {
        next();
        if (at_end_name(end_names)) return body;
        body.push_back(parse_statement());
        expect_block_end();
      }
    }
    if (end_names.size() != 0)
      fail_here("unexpected end of template, expected '" + std::string(*end_names.begin()) + "'");
    return body;
  }

  void expect_block_end() {
    if (!is(TokenKind::kBlockEnd)) fail_unexpected("end of statement block");
    next();
  }

  // The body of a tag that ends here; the closing tag's name is left current.
  Body parse_block(EndNames end_names) {
    skip_operator(":");
    expect_block_end();
    return parse_body(end_names);
  }

  Body parse_closed_block(std::string_view end_name) {
    Body body = parse_block({end_name});
    next();
    return body;
  }

  StmtPtr parse_statement() {
    struct Entry {
      std::string_view name;
      StmtPtr (Parser::*parse)();
    };
    static constexpr std::array<Entry, 18> kStatements{{
        {"if", &Parser::parse_if},
        {"for", &Parser::parse_for},
        {"set", &Parser::parse_set},
        {"macro", &Parser::parse_macro},
        {"call", &Parser::parse_call_block},
        {"filter", &Parser::parse_filter_block},
        {"with", &Parser::parse_with},
        {"autoescape", &Parser::parse_autoescape},
        {"block", &Parser::parse_named_block},
        {"generation", &Parser::parse_generation},
        {"print", &Parser::parse_print},
        {"break", &Parser::parse_break},
        {"continue", &Parser::parse_continue},
        {"include", &Parser::parse_refused},
        {"import", &Parser::parse_refused},
        {"from", &Parser::parse_refused},
        {"extends", &Parser::parse_refused},
        {"raw", &Parser::parse_refused},
    }};
    if (!is(TokenKind::kName)) fail_unexpected("a tag name");
    const auto found =
        std::find_if(kStatements.begin(), kStatements.end(), [this](const Entry& e) { return is_name(e.name); });
    if (found == kStatements.end()) fail_here("Encountered unknown tag '" + current().text + "'.");
    return (this->*(found->parse))();
  }

  StmtPtr parse_if() {
    auto stmt = make_stmt(StmtKind::kIf);
    next();
    for (;;) {
      Branch branch;
      branch.condition = parse_tuple(false);
      branch.body = parse_block({"elif", "else", "endif"});
      stmt->branches.push_back(std::move(branch));
      const std::string tag = next().text;
      if (tag == "elif") continue;
      if (tag == "else") stmt->else_body = parse_closed_block("endif");
      return stmt;
    }
  }

  StmtPtr parse_for() {
    auto stmt = make_stmt(StmtKind::kFor);
    next();
    stmt->target = parse_target(true, {"in"});
    if (!skip_name("in")) fail_unexpected("'in'");
    stmt->exprs.push_back(parse_tuple(false, {"recursive"}));
    stmt->exprs.push_back(skip_name("if") ? parse_expression() : nullptr);
    stmt->flag = skip_name("recursive");
    ++num_loops_;
    stmt->body = parse_block({"endfor", "else"});
    --num_loops_;
    if (next().text == "else") stmt->else_body = parse_closed_block("endfor");
    return stmt;
  }

  StmtPtr parse_set() {
    auto stmt = make_stmt(StmtKind::kSet);
    next();
    stmt->target = parse_target(true, {}, true);
    if (skip_operator("=")) {
      stmt->exprs.push_back(parse_tuple());
      return stmt;
    }
    stmt->kind = StmtKind::kSetBlock;
    stmt->exprs.push_back(parse_filters(make(ExprKind::kBlockText), false));
    stmt->body = parse_closed_block("endset");
    return stmt;
  }

  void parse_signature(MacroDefinition& macro) {
    expect_operator("(");
    while (!is_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      macro.parameters.push_back(parse_target(false)->name);
      if (skip_operator("=")) {
        macro.defaults.push_back(parse_expression());
      } else if (!macro.defaults.empty()) {
        fail_here("non-default argument follows default argument");
      }
    }
    expect_operator(")");
  }

  void parse_macro_body(MacroDefinition& macro, std::string_view end_name) {
    macro_uses_.emplace_back();
    const int loops = std::exchange(num_loops_, 0);
    macro.body = parse_closed_block(end_name);
    num_loops_ = loops;
    const auto declares = [&macro](std::string_view name) {
      return std::find(macro.parameters.begin(), macro.parameters.end(), name) != macro.parameters.end();
    };
    macro.uses_caller = macro_uses_.back().caller && !declares("caller");
    macro.uses_varargs = macro_uses_.back().varargs && !declares("varargs");
    macro.uses_kwargs = macro_uses_.back().kwargs && !declares("kwargs");
    macro_uses_.pop_back();
  }

  StmtPtr parse_macro() {
    auto stmt = make_stmt(StmtKind::kMacro);
    next();
    stmt->macro = std::make_unique<MacroDefinition>();
    stmt->macro->name = parse_target(false)->name;
    parse_signature(*stmt->macro);
    parse_macro_body(*stmt->macro, "endmacro");
    return stmt;
  }

  StmtPtr parse_call_block() {
    auto stmt = make_stmt(StmtKind::kCallBlock);
    next();
    stmt->macro = std::make_unique<MacroDefinition>();
    stmt->macro->name = "caller";
    if (is_operator("(")) parse_signature(*stmt->macro);
    stmt->exprs.push_back(parse_expression());
    if (stmt->exprs[0]->kind != ExprKind::kCall) fail_here("expected call");
    parse_macro_body(*stmt->macro, "endcall");
    return stmt;
  }

  StmtPtr parse_filter_block() {
    auto stmt = make_stmt(StmtKind::kFilterBlock);
    next();
    stmt->exprs.push_back(parse_filters(make(ExprKind::kBlockText), true));
    stmt->body = parse_closed_block("endfilter");
    return stmt;
  }

  StmtPtr parse_with() {
    auto stmt = make_stmt(StmtKind::kWith);
    next();
    while (!is(TokenKind::kBlockEnd)) {
      if (!stmt->exprs.empty()) expect_operator(",");
      stmt->exprs.push_back(parse_target(false));
      expect_operator("=");
      stmt->exprs.push_back(parse_expression());
    }
    stmt->body = parse_closed_block("endwith");
    return stmt;
  }

  StmtPtr parse_autoescape() {
    auto stmt = make_stmt(StmtKind::kAutoescape);
    next();
    stmt->exprs.push_back(parse_expression());
    stmt->body = parse_closed_block("endautoescape");
    return stmt;
  }

  // Without inheritance a block is its body. `scoped` and `required` change nothing then.
  StmtPtr parse_named_block() {
    auto stmt = make_stmt(StmtKind::kScope);
    next();
    stmt->name = expect_name();
    skip_name("scoped");
    skip_name("required");
    stmt->body = parse_closed_block("endblock");
    if (is_name(stmt->name)) next();
    return stmt;
  }

  StmtPtr parse_generation() {
    auto stmt = make_stmt(StmtKind::kScope);
    next();
    const int loops = std::exchange(num_loops_, 0);
    stmt->body = parse_closed_block("endgeneration");
    num_loops_ = loops;
    return stmt;
  }

  StmtPtr parse_print() {
    auto stmt = make_stmt(StmtKind::kOutput);
    next();
    while (!is(TokenKind::kBlockEnd)) {
      if (!stmt->exprs.empty()) expect_operator(",");
      stmt->exprs.push_back(parse_expression());
    }
    return stmt;
  }

  StmtPtr parse_jump(StmtKind kind) {
    auto stmt = make_stmt(kind);
    const std::string name = next().text;
    if (num_loops_ == 0) fail_here("'" + name + "' outside loop");
    return stmt;
  }
  StmtPtr parse_break() { return parse_jump(StmtKind::kBreak); }
  StmtPtr parse_continue() { return parse_jump(StmtKind::kContinue); }

  StmtPtr parse_refused() {
    auto stmt = make_stmt(StmtKind::kRefused);
    stmt->name = next().text;
    while (!is(TokenKind::kBlockEnd) && !is(TokenKind::kEnd))
      next();
    return stmt;
  }

  int num_loops_ = 0;
};

}  // namespace

Body parse_template(std::string_view source, const LexerOptions& options) {
  return Parser(tokenize(source, options)).run();
}

}  // namespace quire::jinja
