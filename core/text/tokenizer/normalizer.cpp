#include "core/text/tokenizer/normalizer.h"

namespace quire {
namespace {

// Most bytes of text per byte of its canonical form: U+1FBE, U+0308 and U+0341, seven bytes, become two (U+0390).
constexpr std::size_t kCanonicalShrinkage = 4;

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
  std::size_t end = 0;  // end of the last character that is no space
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

bool is_ideograph(char32_t code) {
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
         (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B81F) ||
         (code >= 0x2B820 && code <= 0x2CEAF) || (code >= 0xF900 && code <= 0xFAFF) ||
         (code >= 0x2F800 && code <= 0x2FA1F);
}

std::string cleaned(std::string_view text, const Normalizer::Bert& step) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto decoded = unicode::decode(text.substr(at));
    const std::string_view character = text.substr(at, decoded.length);
    at += decoded.length;
    if (step.clean && unicode::is_space(decoded.code)) {
      out += ' ';
    } else if (step.clean && (decoded.code == unicode::kReplacement || unicode::is_control(decoded.code))) {
      continue;
    } else if (step.separate_chinese && is_ideograph(decoded.code)) {
      out += ' ';
      out += character;
      out += ' ';
    } else {
      out += character;
    }
  }
  return out;
}

std::string normalized(std::string_view text, const Normalizer::Bert& step) {
  std::string out = cleaned(text, step);
  if (step.strip_accents && !unicode::is_ascii(out)) {
    out = unicode::strip_nonspacing_marks(unicode::normalize(out, unicode::Form::kNfd));
  }
  return step.lowercase ? unicode::lowercase(out) : out;
}

std::string normalized(std::string_view text, const Normalizer::Nmt&) {
  const auto vanishes = [](char32_t code) {
    return (code >= 0x1 && code <= 0x8) || code == 0xB || (code >= 0xE && code <= 0x1F) || code == 0x7F ||
           code == 0x8F || code == 0x9F;
  };
  const auto is_blank = [](char32_t code) {
    return code == 0x9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
           (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 || code == 0x2581 || code == 0xFEFF ||
           code == 0xFFFD;
  };
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const auto decoded = unicode::decode(text.substr(at));
    if (is_blank(decoded.code)) {
      out += ' ';
    } else if (!vanishes(decoded.code)) {
      out += text.substr(at, decoded.length);
    }
    at += decoded.length;
  }
  return out;
}

std::string marked(std::string_view text, const Normalizer::MarkSpaces& step) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  bool prefix_due = step.prefix;
  bool in_word = false;
  for (const char c : text) {
    if (c == ' ') {
      in_word = false;
      if (!step.collapse) out += step.mark;
      continue;
    }
    if (!in_word && (step.collapse || prefix_due)) out += step.mark;
    prefix_due = false;
    in_word = true;
    out += c;
  }
  return out;
}

}  // namespace

std::optional<std::size_t> Normalizer::largest_shrinkage() const {
  std::size_t shrinkage = 1;
  for (const Step& step : steps_) {
    const auto* const replace = std::get_if<ReplaceCharacter>(&step);
    const auto* const normalize = std::get_if<Normalize>(&step);
    if (normalize != nullptr && (normalize->form == unicode::Form::kNfc || normalize->form == unicode::Form::kNfd)) {
      shrinkage *= kCanonicalShrinkage;
    } else if (!std::holds_alternative<Prepend>(step) && (replace == nullptr || replace->to.empty())) {
      return std::nullopt;
    }
  }
  return shrinkage;
}

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
    std::string operator()(const Bert& step) const { return normalized(text, step); }
    std::string operator()(const Nmt& step) const { return normalized(text, step); }
    std::string operator()(const MapCharacters& step) const { return step.map.apply(text); }
    std::string operator()(const MarkSpaces& step) const { return marked(text, step); }
  };
  std::string current(text);
  for (const Step& step : steps_)
    current = std::visit(Apply{current, matcher}, step);
  return current;
}

}  // namespace quire
