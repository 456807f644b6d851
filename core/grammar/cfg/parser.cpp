#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/grammar/cfg/rules.h"
#include "core/grammar/regex/regex.h"

namespace quire::grammar {

namespace {

bool name_character(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' || c == '.';
}

class RuleParser {
 public:
  RuleParser(std::string_view source, bool gbnf, const RuleContext& context, Budget& budget)
      : gbnf_(gbnf), budget_(budget), vocabulary_(context.vocabulary) {
    if (!decode_utf8(source, text_)) throw Refusal("the grammar is not valid UTF-8");
    // Accepts the line ends of all systems.
    std::size_t kept = 0;
    for (std::size_t i = 0; i < text_.size(); ++i) {
      const bool returns = text_[i] == U'\r';
      if (returns && i + 1 < text_.size() && text_[i + 1] == U'\n') continue;
      text_[kept++] = returns ? U'\n' : text_[i];
    }
    text_.resize(kept);
    for (const Rule& given : context.given) {
      names_[given.name] = static_cast<std::uint32_t>(rules_.size());
      rules_.push_back({given.name, given.body, true});
    }
  }

  std::vector<Rule> parse() {
    skip_space(true);
    while (more()) {
      const std::string name = this->name();
      if (name.empty()) fail("a rule's name is expected");
      skip_space(true);
      if (!take("::=")) fail("'::=' is expected after the rule's name");
      const std::uint32_t index = rule(name);
      if (rules_[index].body != nullptr) throw Refusal("the rule " + name + " is defined twice");
      Expr body = alternation(0, false);
      rules_[index].body = std::move(body);
      skip_space(true);
      if (more() && !at_rule()) fail("the rule does not end here");
    }
    for (const Rule& rule : rules_) {
      if (rule.body == nullptr) throw Refusal("the rule " + rule.name + " is used but not defined");
    }
    return std::move(rules_);
  }

 private:
  bool more() const { return at_ < text_.size(); }
  char32_t peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0; }

  [[noreturn]] void fail(const std::string& message) const {
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size())), U'\n');
    throw Refusal("grammar, line " + std::to_string(line) + ": " + message);
  }

  bool take(std::string_view literal) {
    for (std::size_t i = 0; i < literal.size(); ++i) {
      if (peek(i) != static_cast<unsigned char>(literal[i])) return false;
    }
    at_ += literal.size();
    return true;
  }

  void skip_space(bool newlines) {
    while (more()) {
      if (peek() == '#') {
        while (more() && peek() != '\n')
          ++at_;
      } else if (peek() == ' ' || peek() == '\t' || (newlines && (peek() == '\n' || peek() == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string name() {
    std::string result;
    while (more() && name_character(peek()))
      append_utf8(result, text_[at_++]);
    return result;
  }

  // Whether a rule, "name ::=", begins here.
  bool at_rule() {
    const std::size_t before = at_;
    const bool named = !name().empty();
    skip_space(true);
    const bool found = named && take("::=");
    at_ = before;
    return found;
  }

  std::uint32_t rule(const std::string& name) {
    const auto [found, fresh] = names_.try_emplace(name, static_cast<std::uint32_t>(rules_.size()));
    if (fresh) rules_.push_back(Rule{name, nullptr, false});
    return found->second;
  }

  Expr alternation(std::size_t depth, bool nested) {
    if (depth > budget_.limits().max_depth) fail("groups nest too deeply");
    std::vector<Expr> branches;
    do {
      skip_space(true);
      branches.push_back(sequence(depth, nested));
      skip_space(nested || !gbnf_ || next_line_goes_on());
    } while (take("|"));
    return make_alternate(std::move(branches));
  }

  // In GBNF a line that begins with '|' continues the rule.
  bool next_line_goes_on() {
    const std::size_t before = at_;
    skip_space(true);
    const bool result = peek() == '|';
    at_ = before;
    return result;
  }

  Expr sequence(std::size_t depth, bool nested) {
    std::vector<Expr> items;
    while (true) {
      const std::size_t before = at_;
      skip_space(nested || !gbnf_);
      if (!more() || peek() == '|' || peek() == ')' || (gbnf_ && !nested && peek() == '\n') || at_rule()) {
        if (at_rule()) at_ = before;
        return make_concat(std::move(items));
      }
      budget_.spend(1);
      budget_.take_nodes(1);
      items.push_back(repeated(item(depth)));
    }
  }

  Expr item(std::size_t depth) {
    const char32_t c = peek();
    if (c == '"' || (c == '\'' && !gbnf_)) return quoted(c);
    if (c == '[') return make_set(bracket());
    if (c == '(') {
      if (peek(1) == '=') fail("look-ahead is not supported");
      ++at_;
      Expr inner = alternation(depth + 1, true);
      skip_space(true);
      if (!take(")")) fail("')' is expected");
      return inner;
    }
    if (c == '.') {  // names do not begin with a point
      ++at_;
      return make_set(CharSet::any());
    }
    if (c == '/' && !gbnf_) return slashed_regex();
    if (gbnf_ && (c == '<' || (c == '!' && peek(1) == '<'))) return token();
    const std::string called = name();
    if (called.empty()) fail("an unexpected character");
    if (peek() == '(' && !gbnf_) fail("the macro " + called + " is not supported");
    return make_call(rule(called));
  }

  // <[12]> is the text of token 12 and <text> that of the token with this text; after !, a character that does not
  // begin the token. Control tokens without a text of their own are known by name.
  Expr token() {
    const bool negated = take("!");
    ++at_;
    std::string text;
    if (take("[")) {
      std::uint64_t id = 0;
      const std::size_t begin = at_;
      while (peek() >= '0' && peek() <= '9' && at_ - begin < 10)
        id = id * 10 + (text_[at_++] - '0');
      if (at_ == begin || !take("]>")) fail("a malformed token, which is written <[12]> or <text>");
      if (vocabulary_ != nullptr && id < vocabulary_->size())
        text = vocabulary_->bytes(TokenId{static_cast<std::int32_t>(id)});
      if (text.empty()) fail("the model has no token " + std::to_string(id) + " with a text");
    } else {
      text = "<";
      while (more() && peek() != '>' && peek() != '\n')
        append_utf8(text, text_[at_++]);
      if (!take(">")) fail("a malformed token, which is written <[12]> or <text>");
      text += '>';
    }
    budget_.take_nodes(text.size());
    std::u32string points;
    if (!decode_utf8(text, points)) fail("a token whose text is no whole character");
    return negated ? make_set(CharSet(points.front(), points.front()).complement()) : make_literal(text);
  }

  Expr slashed_regex() {
    ++at_;
    std::string source;
    while (more() && peek() != '/') {
      if (peek() == '\\' && peek(1) == '/')
        ++at_;
      else if (peek() == '\\')
        append_utf8(source, text_[at_++]);
      if (more()) append_utf8(source, text_[at_++]);
    }
    if (!take("/")) fail("an unfinished regular expression");
    return parse_regex(source, budget_);
  }

  Expr repeated(Expr item) {
    while (true) {
      const std::size_t before = at_;
      skip_space(false);
      if (take("*")) {
        item = make_repeat(std::move(item), 0, kUnbounded);
      } else if (take("+")) {
        item = make_repeat(std::move(item), 1, kUnbounded);
      } else if (take("?")) {
        item = make_repeat(std::move(item), 0, 1);
      } else if (peek() == '{') {
        item = counted(std::move(item));
      } else {
        at_ = before;
        return item;
      }
    }
  }

  Expr counted(Expr item) {
    ++at_;
    const auto number = [&]() -> std::optional<std::uint32_t> {
      skip_space(false);
      std::uint64_t value = 0;
      const std::size_t start = at_;
      while (peek() >= '0' && peek() <= '9')
        value = std::min<std::uint64_t>(value * 10 + (text_[at_++] - '0'), kUnbounded - 1);
      const bool any = at_ > start;
      skip_space(false);
      return any ? std::optional(static_cast<std::uint32_t>(value)) : std::nullopt;
    };
    const auto min = number();
    std::optional<std::uint32_t> max = min;
    if (take(",")) max = number().value_or(kUnbounded);
    if (!take("}") || (!min && !max)) fail("a malformed repetition");
    if (min.value_or(0) > *max) fail("a repetition from more to less");
    return make_repeat(std::move(item), min.value_or(0), *max);
  }

  char32_t escape() {
    const char32_t c = more() ? text_[at_++] : 0;
    const auto hex = [&](int digits) {
      char32_t value = 0;
      for (int i = 0; i < digits; ++i) {
        const char32_t d = peek();
        const char32_t digit = d >= '0' && d <= '9'                     ? d - '0'
                               : (d | 0x20) >= 'a' && (d | 0x20) <= 'f' ? (d | 0x20) - 'a' + 10
                                                                        : 99;
        if (digit == 99) fail("an unfinished hexadecimal escape");
        value = value << 4 | digit;
        ++at_;
      }
      if (value > kMaxCodePoint || (value >= 0xD800 && value <= 0xDFFF)) fail("an escape that is no character");
      return value;
    };
    switch (c) {
      case 'n': return '\n';
      case 't': return '\t';
      case 'r': return '\r';
      case 'f': return '\f';
      case 'v': return '\v';
      case 'b': return '\b';
      case 'a': return '\a';
      case 'e': return 0x1B;
      case '0': return 0;
      case 'x': return hex(2);
      case 'u':
        if (peek() == '{') {
          ++at_;
          char32_t value = 0;
          while (more() && peek() != '}' && value <= kMaxCodePoint)
            value = value << 4 | hex(1);
          if (!take("}")) fail("an unfinished \\u{...}");
          return value;
        }
        return hex(4);
      case 'U': return hex(8);
      default:
        if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') fail("an unknown escape");
        return c;
    }
  }

  Expr quoted(char32_t quote) {
    ++at_;
    std::vector<Expr> characters;
    while (more() && peek() != quote && peek() != '\n') {
      const char32_t c = text_[at_++];
      const char32_t value = c == '\\' ? escape() : c;
      budget_.take_nodes(1);
      characters.push_back(make_set(CharSet(value, value)));
    }
    if (peek() != quote) fail("an unfinished string");
    ++at_;
    return make_concat(std::move(characters));
  }

  CharSet bracket() {
    ++at_;
    const bool negated = take("^");
    CharSet set;
    const auto one = [&](CharSet& whole) -> std::optional<char32_t> {
      const char32_t c = text_[at_++];
      if (c != '\\') return c;
      const char32_t letter = peek() | 0x20;
      if (letter == 'd' || letter == 'w' || letter == 's') {
        whole = class_escape(text_[at_++]);
        return std::nullopt;
      }
      return escape();
    };
    while (more() && peek() != ']') {
      CharSet whole;
      const auto low = one(whole);
      if (!low) {
        set.add(whole);
        continue;
      }
      char32_t high = *low;
      if (peek() == '-' && peek(1) != ']' && peek(1) != 0) {
        ++at_;
        const auto end = one(whole);
        if (!end || *end < *low) fail("a malformed range");
        high = *end;
      }
      set.add(*low, high);
    }
    if (!take("]")) fail("an unfinished character class");
    return negated ? set.complement() : set;
  }

  bool gbnf_;
  Budget& budget_;
  const TokenVocabulary* vocabulary_;
  std::u32string text_;
  std::size_t at_ = 0;
  std::vector<Rule> rules_;
  std::map<std::string, std::uint32_t> names_;
};

}  // namespace

std::vector<Rule> parse_rules(std::string_view source, bool gbnf, const RuleContext& context, Budget& budget) {
  return RuleParser(source, gbnf, context, budget).parse();
}

}  // namespace quire::grammar
