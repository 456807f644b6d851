#include "core/grammar/regex/regex.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace quire::grammar {

namespace {

using Kind = Expression::Kind;

class Parser {
 public:
  Parser(std::string_view source, Budget& budget) : budget_(budget) {
    if (!decode_utf8(source, text_)) throw Refusal("the regex is not valid UTF-8");
  }

  Expr parse() {
    if (take_text("(?i)")) ignore_case_ = true;
    Expr result = alternation(0);
    if (at_ < text_.size()) throw Refusal("the regex has an unmatched ')'");
    return result;
  }

 private:
  bool more() const { return at_ < text_.size(); }
  char32_t peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : 0; }
  bool take(char32_t c) {
    if (!more() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take_text(std::string_view literal) {
    for (std::size_t i = 0; i < literal.size(); ++i) {
      if (peek(i) != static_cast<unsigned char>(literal[i])) return false;
    }
    at_ += literal.size();
    return true;
  }

  Expr alternation(std::size_t depth) {
    if (depth > budget_.limits().max_depth) throw Refusal("the regex nests too deeply");
    std::vector<Expr> branches{sequence(depth)};
    while (take('|'))
      branches.push_back(sequence(depth));
    return make_alternate(std::move(branches));
  }

  Expr sequence(std::size_t depth) {
    std::vector<Expr> items;
    while (more() && peek() != '|' && peek() != ')') {
      budget_.spend(1);
      budget_.take_nodes(1);
      items.push_back(quantified(atom(depth)));
    }
    return make_concat(std::move(items));
  }

  Expr atom(std::size_t depth) {
    const char32_t c = text_[at_++];
    switch (c) {
      case '^': return make_anchor(Kind::kBegin);
      case '$': return make_anchor(Kind::kEnd);
      case '.': return make_set(dot_set());
      case '(': return group(depth);
      case '[': return make_set(bracket());
      case '\\': return escape();
      case '*':
      case '+':
      case '?': throw Refusal("the regex repeats nothing");
      case '{':
        at_--;
        if (counted()) throw Refusal("the regex repeats nothing");
        ++at_;
        return single(c);
      default: return single(c);
    }
  }

  Expr single(char32_t c) const {
    CharSet set(c, c);
    if (ignore_case_) set.fold_ascii_case();
    return make_set(std::move(set));
  }

  Expr group(std::size_t depth) {
    Kind kind = Kind::kConcat;
    bool negated = false;
    if (take('?')) {
      if (take(':')) {
      } else if (peek() == '=' || peek() == '!') {
        kind = Kind::kAhead;
        negated = text_[at_++] == '!';
      } else if (peek() == '<' && (peek(1) == '=' || peek(1) == '!')) {
        throw Refusal("look-behind in a regex is not supported");
      } else if (take('<') || take_text("P<")) {
        while (more() && peek() != '>')
          ++at_;
        if (!take('>')) throw Refusal("the regex has an unfinished group name");
      } else {
        throw Refusal("the regex has an unsupported group (?...)");
      }
    }
    Expr inner = alternation(depth + 1);
    if (!take(')')) throw Refusal("the regex has an unmatched '('");
    if (kind != Kind::kAhead) return inner;
    auto ahead = std::make_shared<Expression>();
    ahead->kind = kind;
    ahead->negated = negated;
    ahead->children = {std::move(inner)};
    return ahead;
  }

  // {n}, {n,} or {n,m} at the cursor; nothing (cursor kept) if the brace is a plain character.
  std::optional<std::pair<std::uint32_t, std::uint32_t>> counted() {
    std::size_t i = at_ + 1;
    const auto number = [&]() -> std::optional<std::uint32_t> {
      const std::size_t start = i;
      std::uint64_t value = 0;
      for (; i < text_.size() && text_[i] >= '0' && text_[i] <= '9'; ++i) {
        value = std::min<std::uint64_t>(value * 10 + (text_[i] - '0'), kUnbounded - 1);
      }
      if (i == start) return std::nullopt;
      return static_cast<std::uint32_t>(value);
    };
    const auto min = number();
    if (!min) {
      if (i < text_.size() && text_[i] == ',' && (++i, number()) && i < text_.size() && text_[i] == '}') {
        throw Refusal("the regex counts with {,n}, which engines read differently");
      }
      return std::nullopt;
    }
    std::uint32_t max = *min;
    if (i < text_.size() && text_[i] == ',') {
      ++i;
      max = number().value_or(kUnbounded);
    }
    if (i >= text_.size() || text_[i] != '}') return std::nullopt;
    at_ = i + 1;
    if (*min > max) throw Refusal("the regex counts from more to less");
    return std::pair{*min, max};
  }

  Expr quantified(Expr item) {
    while (more()) {
      std::uint32_t min = 0;
      std::uint32_t max = kUnbounded;
      if (take('*')) {
      } else if (take('+')) {
        min = 1;
      } else if (take('?')) {
        max = 1;
      } else if (peek() == '{') {
        const auto range = counted();
        if (!range) return item;
        std::tie(min, max) = *range;
      } else {
        return item;
      }
      // A lazy quantifier changes which match is found, but not whether there is one.
      if (!take('?') && peek() == '+') throw Refusal("possessive repetition in a regex is not supported");
      item = make_repeat(std::move(item), min, max);
    }
    return item;
  }

  std::uint32_t hex(std::size_t digits) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const char32_t c = peek();
      const std::uint32_t digit = c >= '0' && c <= '9'                     ? c - '0'
                                  : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                                           : 16;
      if (digit == 16) throw Refusal("the regex has an unfinished hexadecimal escape");
      value = value << 4 | digit;
      ++at_;
    }
    return value;
  }

  char32_t unicode_escape() {
    if (take('{')) {
      std::uint32_t value = 0;
      while (more() && peek() != '}' && value <= kMaxCodePoint)
        value = value << 4 | hex(1);
      if (!take('}') || value > kMaxCodePoint) throw Refusal("the regex has a malformed \\u{...}");
      return value;
    }
    const char32_t high = hex(4);
    if (high < 0xD800 || high > 0xDBFF || peek() != '\\' || peek(1) != 'u') return high;
    const std::size_t before = at_;
    at_ += 2;
    const char32_t low = hex(4);
    if (low >= 0xDC00 && low <= 0xDFFF) return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    at_ = before;
    return high;
  }

  CharSet property(bool negated) {
    std::string name;
    if (take('{')) {
      while (more() && peek() != '}')
        append_utf8(name, text_[at_++]);
      if (!take('}')) throw Refusal("the regex has an unfinished \\p{...}");
    } else {
      append_utf8(name, more() ? text_[at_++] : U'?');
    }
    budget_.spend(200'000);  // every code point is looked up
    const CharSet set = unicode_property(name);
    return negated ? set.complement() : set;
  }

  // The characters of an escape, the backslash already read; shared by brackets and plain text.
  CharSet character_escape(char32_t c) {
    switch (c) {
      case 'd':
      case 'D':
      case 'w':
      case 'W':
      case 's':
      case 'S': return class_escape(c);
      case 'p':
      case 'P': return property(c == 'P');
      case 'n': return CharSet('\n', '\n');
      case 'r': return CharSet('\r', '\r');
      case 't': return CharSet('\t', '\t');
      case 'f': return CharSet('\f', '\f');
      case 'v': return CharSet('\v', '\v');
      case 'a': return CharSet(7, 7);
      case 'e': return CharSet(0x1B, 0x1B);
      case 'x': {
        const char32_t v = hex(2);
        return CharSet(v, v);
      }
      case 'u': {
        const char32_t v = unicode_escape();
        return CharSet(v, v);
      }
      case 'c': {
        const char32_t letter = more() ? text_[at_++] : 0;
        if ((letter | 0x20) < 'a' || (letter | 0x20) > 'z') throw Refusal("the regex has a malformed \\c escape");
        return CharSet(letter % 32, letter % 32);
      }
      default: break;
    }
    if (c == '0' && !(peek() >= '0' && peek() <= '9')) return CharSet(0, 0);
    if (c >= '0' && c <= '9') throw Refusal("back-references in a regex are not supported");
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') {
      std::string letter;
      append_utf8(letter, c);
      throw Refusal("the regex escape \\" + letter + " is not supported");
    }
    return CharSet(c, c);
  }

  Expr escape() {
    if (!more()) throw Refusal("the regex ends in a backslash");
    const char32_t c = text_[at_++];
    if (c == 'b' || c == 'B') {
      auto edge = std::make_shared<Expression>();
      edge->kind = Kind::kWordEdge;
      edge->negated = c == 'B';
      return edge;
    }
    if (c == 'A') return make_anchor(Kind::kBegin);
    if (c == 'z' || c == 'Z') return make_anchor(Kind::kEnd);
    CharSet set = character_escape(c);
    if (ignore_case_) set.fold_ascii_case();
    return make_set(std::move(set));
  }

  // A member of a bracket; is_single: it may begin a range.
  CharSet member(bool& is_single) {
    const char32_t c = text_[at_++];
    if (c == '[' && peek() == ':') throw Refusal("POSIX classes in a regex are not supported");
    is_single = true;
    if (c != '\\') return CharSet(c, c);
    if (!more()) throw Refusal("the regex ends in a backslash");
    const char32_t escaped = text_[at_++];
    if (escaped == 'b') return CharSet(8, 8);
    CharSet set = character_escape(escaped);
    is_single = set.ranges().size() == 1 && set.ranges()[0].lo == set.ranges()[0].hi;
    return set;
  }

  CharSet bracket() {
    const bool negated = take('^');
    CharSet set;
    while (true) {
      if (!more()) throw Refusal("the regex has an unmatched '['");
      if (take(']')) break;
      budget_.spend(1);
      bool single_low = false;
      const CharSet low = member(single_low);
      if (!single_low || peek() != '-' || peek(1) == ']' || peek(1) == 0) {
        set.add(low);
        continue;
      }
      ++at_;
      bool single_high = false;
      const CharSet high = member(single_high);
      if (!single_high) {
        set.add(low);
        set.add('-', '-');
        set.add(high);
        continue;
      }
      if (low.ranges()[0].lo > high.ranges()[0].lo) throw Refusal("the regex has a range out of order");
      set.add(low.ranges()[0].lo, high.ranges()[0].lo);
    }
    if (ignore_case_) set.fold_ascii_case();
    return negated ? set.complement() : set;
  }

  std::u32string text_;
  std::size_t at_ = 0;
  bool ignore_case_ = false;
  Budget& budget_;
};

}  // namespace

Expr parse_regex(std::string_view source, Budget& budget) {
  return Parser(source, budget).parse();
}

}  // namespace quire::grammar
