#include "core/text/tokenizer/normalizer.h"

namespace quire {
namespace {

std::string replaced(std::string_view text, const Normalizer::Replace& step, Regex::Matcher& matcher) {
  std::string out;
  std::size_t done = 0;
  while (done < text.size()) {
    const auto match = matcher.find(step.pattern, text, done);
    if (!match) break;
    out += text.substr(done, match->begin - done);
    out += step.content;
    done = match->end;
  }
  out += text.substr(done);
  return out;
}

std::string replaced(std::string_view text, const Normalizer::ReplaceCharacter& step) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  for (const char c : text) {
    if (c == step.from) {
      out += step.to;
    } else {
      out += c;
    }
  }
  return out;
}

std::string stripped(std::string_view text, const Normalizer::Strip& step) {
  std::size_t begin = 0;
  std::size_t end = 0;  // one past the last character that is no space
  bool leading = true;
  for (std::size_t at = 0; at < text.size();) {
    const auto decoded = unicode::decode(text.substr(at));
    at += decoded.length;
    if (!unicode::is_space(decoded.code)) {
      leading = false;
      end = at;
    } else if (leading) {
      begin = at;
    }
  }
  if (!step.left) begin = 0;
  if (!step.right) end = text.size();
  return std::string(begin < end ? text.substr(begin, end - begin) : std::string_view{});
}

}  // namespace

std::string Normalizer::apply(std::string_view text, Regex::Matcher& matcher) const {
  struct Apply {
    std::string_view text;
    Regex::Matcher& matcher;
    std::string operator()(const Normalize& step) const { return unicode::normalize(text, step.form); }
    std::string operator()(const Lowercase&) const { return unicode::lowercase(text); }
    std::string operator()(const StripMarks&) const { return unicode::strip_marks(text); }
    std::string operator()(const Replace& step) const { return replaced(text, step, matcher); }
    std::string operator()(const ReplaceCharacter& step) const { return replaced(text, step); }
    std::string operator()(const Prepend& step) const {
      return text.empty() ? std::string() : step.prefix + std::string(text);
    }
    std::string operator()(const Strip& step) const { return stripped(text, step); }
  };
  std::string current(text);
  for (const Step& step : steps_)
    current = std::visit(Apply{current, matcher}, step);
  return current;
}

}  // namespace quire
