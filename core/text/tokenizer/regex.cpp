#include "core/text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <new>

#include "core/base/log.h"
#include "core/base/result.h"
#include "kernels/check.h"

namespace quire {
namespace {

// PCRE2 counts U+180E as a space and leaves marks out of \w; the tokenizers' own engines do neither.
constexpr std::string_view kSpace = "\\t-\\r\\x{85}\\p{Z}";
constexpr std::string_view kWord =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200C}\\x{200D}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}"
    "\\x{1F170}-\\x{1F189}";

// A class spans "[...]"; inside it only the members are written, and \S or \W keep PCRE2's meaning.
std::string translated_escape(char letter, bool in_class) {
  if (in_class) {
    if (letter == 's') return std::string(kSpace);
    if (letter == 'w') return std::string(kWord);
  } else {
    if (letter == 's') return fmt::format("[{}]", kSpace);
    if (letter == 'S') return fmt::format("[^{}]", kSpace);
    if (letter == 'w') return fmt::format("[{}]", kWord);
    if (letter == 'W') return fmt::format("[^{}]", kWord);
  }
  return {'\\', letter};
}

std::string shown(std::string_view pattern) {
  constexpr std::size_t kMost = 80;
  return pattern.size() <= kMost ? std::string(pattern) : std::string(pattern.substr(0, kMost)) + "...";
}

std::shared_ptr<void> compile_code(std::string_view pattern, std::string_view source, std::uint32_t options) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options | PCRE2_UTF,
                                   &error, &offset, nullptr);
  if (code == nullptr) {
    std::array<unsigned char, 256> reason{};
    pcre2_get_error_message(error, reason.data(), reason.size());
    throw StartupError(fmt::format("the tokenizer's pattern '{}' cannot be compiled: {}", shown(source),
                                   reinterpret_cast<const char*>(reason.data())));
  }
  // Without the JIT, matching falls back to the interpreter: the same result, slower.
  if (const int status = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); status != 0) {
    log::warn(
        "the pattern '{}' is interpreted, not compiled (PCRE2's JIT: error {}): tokenizing is slower. Where the "
        "service "
        "denies memory that is writable and executable, 'systemctl edit quire' with MemoryDenyWriteExecute=no allows "
        "it",
        shown(source), status);
  }
  return {code, [](void* owned) { pcre2_code_free(static_cast<pcre2_code*>(owned)); }};
}

}  // namespace

std::string translate_pattern(std::string_view pattern) {
  // Unanchored, this pattern takes time quadratic in a long run of spaces; a match can only begin at the run's start.
  if (pattern == "\\s+$") return translate_pattern("(?<!\\s)\\s+$");
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      out += translated_escape(pattern[++i], in_class);
      continue;
    }
    if (c == '[' && !in_class) {
      in_class = true;
      out += c;
      // A bracket right after the opening is a member of the class.
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') out += pattern[++i];
      continue;
    }
    if (in_class && c == '&' && i + 1 < pattern.size() && pattern[i + 1] == '&') {
      throw StartupError(
          fmt::format("the tokenizer's pattern '{}' intersects classes (&&), which is not supported", shown(pattern)));
    }
    if (in_class && c == ']') in_class = false;
    out += c;
  }
  return out;
}

Regex Regex::compile(std::string_view pattern) {
  return Regex(
      compile_code(translate_pattern(pattern), pattern, PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C));
}

Regex Regex::compile_literal(std::string_view text) {
  return Regex(compile_code(text, text, PCRE2_LITERAL));
}

struct Regex::Matcher::State {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = nullptr;

  State() {
    if (data != nullptr && context != nullptr) return;
    release();
    throw std::bad_alloc();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { release(); }

  void release() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }

  // The machine stack's 32 KiB serve ordinary text; nested groups over a long run need more, once.
  bool grow_stack() {
    if (stack != nullptr) return false;
    stack = pcre2_jit_stack_create(std::size_t{64} << 10, std::size_t{64} << 20, nullptr);
    if (stack == nullptr) return false;
    pcre2_jit_stack_assign(context, nullptr, stack);
    return true;
  }
};

Regex::Matcher::Matcher() : state_(std::make_unique<State>()) {}
Regex::Matcher::~Matcher() = default;
Regex::Matcher::Matcher(Matcher&&) noexcept = default;
Regex::Matcher& Regex::Matcher::operator=(Matcher&&) noexcept = default;

std::optional<Regex::Match> Regex::Matcher::find(const Regex& regex, std::string_view subject, std::size_t from) {
  const auto* code = static_cast<const pcre2_code*>(regex.code_.get());
  const auto* text = reinterpret_cast<PCRE2_SPTR>(subject.data());
  // The text was checked to be UTF-8 once; checking it again for every match would be quadratic.
  constexpr std::uint32_t kOptions = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY_ATSTART;
  int rc = pcre2_match(code, text, subject.size(), from, kOptions, state_->data, state_->context);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT && state_->grow_stack()) {
    rc = pcre2_match(code, text, subject.size(), from, kOptions, state_->data, state_->context);
  }
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
    rc = pcre2_match(code, text, subject.size(), from, kOptions | PCRE2_NO_JIT, state_->data, state_->context);
  }
  if (rc == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
  if (rc < 0) return std::nullopt;
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(state_->data);
  if (ends[1] < ends[0]) return std::nullopt;  // \K inside a look-around can cause that
  return Match{ends[0], ends[1]};
}

}  // namespace quire
