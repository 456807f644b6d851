// Regex: one pattern of a tokenizer, compiled once by PCRE2 (Unicode properties, JIT). Immutable after construction;
// any thread, each with a Matcher of its own. Subjects must be valid UTF-8. Patterns are written for Oniguruma: ^ and $
// match at lines; the classes that PCRE2 reads differently (\s, \w) are rewritten.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

class Regex {
 public:
  // Throws StartupError naming the pattern and PCRE2's reason.
  static Regex compile(std::string_view pattern);
  static Regex compile_literal(std::string_view text);  // matches exactly this text

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  class Matcher;

 private:
  friend class Matcher;
  explicit Regex(std::shared_ptr<void> code) : code_(std::move(code)) {}
  std::shared_ptr<void> code_;  // a pcre2_code; PCRE2's header stays out of this one
};

// The memory of one thread's matching. One thread at a time.
class Regex::Matcher {
 public:
  Matcher();
  ~Matcher();
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;

  // The first match that begins at `from` or later; an empty match at `from` itself is skipped. Look-behind sees
  // `subject` from its start. Nothing if there is none, or if PCRE2 gives up (at limits far beyond published
  // patterns).
  std::optional<Match> find(const Regex& regex, std::string_view subject, std::size_t from);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The pattern with \s, \S, \w and \W as Unicode's White_Space and word characters. Exposed for its test.
std::string translate_pattern(std::string_view pattern);

}  // namespace quire
