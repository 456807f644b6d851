#include <algorithm>

#include "core/text/jinja/calls/call_tables.h"
#include "core/text/jinja/failure.h"
#include "core/text/jinja/operators.h"
#include "core/text/jinja/values/repr.h"
#include "core/text/jinja/values/unicode.h"

namespace quire::jinja {

constexpr auto kNone = std::string::npos;

Text strip(const Text& text, const std::string* characters, Side side) {
  const std::string& bytes = text.bytes();
  const auto strippable = [&bytes, characters](std::size_t begin, std::size_t& end) {
    end = begin;
    const char32_t c = next_code_point(bytes, end);
    return characters == nullptr ? is_space(c) : characters->find(bytes.substr(begin, end - begin)) != kNone;
  };
  std::size_t first = 0;
  std::size_t after = 0;
  while (side != Side::kRight && first < bytes.size() && strippable(first, after))
    first = after;
  std::size_t last = bytes.size();
  while (side != Side::kLeft && last > first) {
    std::size_t begin = last - 1;
    while (begin > first && (static_cast<unsigned char>(bytes[begin]) & 0xC0) == 0x80)
      --begin;
    if (!strippable(begin, after)) break;
    last = begin;
  }
  return text.part(first, last - first);
}

namespace {

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  const std::string& bytes = text.bytes();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t end = i;
    const char32_t c = next_code_point(bytes, i);
    if (!is_line_end(c)) continue;
    if (c == '\r' && i < bytes.size() && bytes[i] == '\n') ++i;
    lines.push_back(text.part(begin, (keep_ends ? i : end) - begin));
    begin = i;
  }
  if (begin < bytes.size()) lines.push_back(text.part(begin));
  return lines;
}

Text replace(Evaluator& evaluator, const Text& text, const std::string& from, const Text& to, Integer count) {
  Text out;
  std::size_t position = 0;
  const std::string& bytes = text.bytes();
  evaluator.charge(text.size() / 32);
  for (; count != 0; --count) {
    if (from.empty()) {
      out.append(to);
      if (position >= bytes.size()) return out;
      std::size_t end = position;
      next_code_point(bytes, end);
      out.append(text, position, end - position);
      position = end;
    } else {
      const std::size_t found = bytes.find(from, position);
      if (found == kNone) break;
      out.append(text, position, found - position);
      out.append(to);
      position = found + from.size();
    }
    evaluator.check_length(out.size());
  }
  out.append(text, position, kNone);
  evaluator.charge(out.size() / 32);
  return out;
}

namespace {

Value as_list(const Value& self, const std::vector<Text>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const auto& part : parts)
    items.push_back(Value::string(part, self.is_markup()));
  return Value::list(std::move(items));
}

// Words between runs of white space, at most `limit` splits from the left; the rest keeps its inner and trailing space.
std::vector<Text> split_words(const Text& text, Integer limit) {
  std::vector<Text> words;
  const std::string& bytes = text.bytes();
  std::size_t i = 0;
  for (;;) {
    std::size_t begin = i;
    while (i < bytes.size() && is_space(next_code_point(bytes, i)))
      begin = i;
    if (begin >= bytes.size()) return words;
    if (limit-- == 0) {
      words.push_back(text.part(begin));
      return words;
    }
    std::size_t end = begin;
    for (i = begin; i < bytes.size() && !is_space(next_code_point(bytes, i));)
      end = i;
    words.push_back(text.part(begin, end - begin));
    i = end;
  }
}

std::vector<Text> split_words_from_right(const Text& text, Integer limit) {
  std::vector<Text> words;
  Text rest = strip(text, nullptr, Side::kRight);
  while (!rest.empty()) {
    if (limit-- == 0) {
      words.push_back(rest);
      break;
    }
    std::size_t begin = 0;
    for (std::size_t i = 0; i < rest.size();) {
      if (is_space(next_code_point(rest.bytes(), i))) begin = i;
    }
    words.push_back(rest.part(begin));
    rest = strip(rest.part(0, begin), nullptr, Side::kRight);
  }
  std::reverse(words.begin(), words.end());
  return words;
}

std::vector<Text> split_at(const Text& text, const std::string& separator, Integer limit) {
  if (separator.empty()) fail("empty separator");
  std::vector<Text> parts;
  std::size_t begin = 0;
  for (; limit != 0; --limit) {
    const std::size_t found = text.bytes().find(separator, begin);
    if (found == kNone) break;
    parts.push_back(text.part(begin, found - begin));
    begin = found + separator.size();
  }
  parts.push_back(text.part(begin));
  return parts;
}

std::vector<Text> split_at_from_right(const Text& text, const std::string& separator, Integer limit) {
  if (separator.empty()) fail("empty separator");
  std::vector<Text> parts;
  std::size_t end = text.size();
  for (; limit != 0 && end >= separator.size(); --limit) {
    const std::size_t found = text.bytes().rfind(separator, end - separator.size());
    if (found == kNone) break;
    parts.push_back(text.part(found + separator.size(), end - found - separator.size()));
    end = found;
  }
  parts.push_back(text.part(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool FromRight>
Value method_split(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Bound bound(FromRight ? "rsplit" : "split", arguments, "sep,maxsplit");
  const Integer limit = bound.integer(1, -1);
  evaluator.charge(self.text().size() / 4);
  if (!bound.has(0) || bound[0].is_none()) {
    return as_list(self, FromRight ? split_words_from_right(self.text(), limit) : split_words(self.text(), limit));
  }
  const std::string separator = bound.text(0, "").bytes();
  return as_list(
      self, FromRight ? split_at_from_right(self.text(), separator, limit) : split_at(self.text(), separator, limit));
}

Value method_splitlines(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Bound bound("splitlines", arguments, "keepends");
  evaluator.charge(self.text().size() / 4);
  return as_list(self, split_lines(self.text(), bound.flag(0)));
}

template <bool FromRight>
Value method_partition(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("partition", arguments, "sep,/", 1);
  const Text separator = bound.text(0, "");
  if (separator.empty()) fail("empty separator");
  const Text& text = self.text();
  const std::size_t found = FromRight ? text.bytes().rfind(separator.bytes()) : text.bytes().find(separator.bytes());
  const Value empty = Value::string(Text());
  if (found == kNone) return FromRight ? Value::tuple({empty, empty, self}) : Value::tuple({self, empty, empty});
  return Value::tuple({Value::string(text.part(0, found)), Value::string(text.part(found, separator.size())),
                       Value::string(text.part(found + separator.size()))});
}

Value method_replace(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Bound bound("replace", arguments, "old,new,count,/", 2);
  return Value::string(
      replace(evaluator, self.text(), bound.text(0, "").bytes(), bound.text(1, ""), bound.integer(2, -1)),
      self.is_markup());
}

// The text between code point positions `start` and `end`, as a view; nothing if start is past the end.
std::optional<std::pair<std::size_t, std::size_t>> window(const Value& self, const Bound& bound, std::size_t first) {
  const std::string& bytes = self.bytes();
  const auto place = [&bound](std::size_t index, Integer fallback, Integer size) {
    Integer value = bound.has(index) && bound[index].is_none() ? fallback : bound.integer(index, fallback);
    if (value < 0) value = std::max<Integer>(value + size, 0);
    return value;
  };
  if (!bound.has(first) && !bound.has(first + 1)) return std::pair<std::size_t, std::size_t>(0, bytes.size());
  const auto offsets = code_point_offsets(bytes);
  const auto size = static_cast<Integer>(offsets.size()) - 1;
  const Integer begin = place(first, 0, size);
  const Integer end = std::min(place(first + 1, size, size), size);
  if (begin > end) return std::nullopt;
  return std::pair(offsets[static_cast<std::size_t>(begin)], offsets[static_cast<std::size_t>(end)]);
}

template <bool AtEnd>
Value method_has_affix(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound(AtEnd ? "endswith" : "startswith", arguments, "affix,start,end,/", 1);
  const auto range = window(self, bound, 1);
  if (!range) return Value::boolean(false);
  const auto part = std::string_view(self.bytes()).substr(range->first, range->second - range->first);
  const auto matches = [part](const Value& affix) {
    if (!affix.is_string()) fail("startswith/endswith arg must be str or a tuple of str, not " + type_name(affix));
    return AtEnd ? part.ends_with(affix.bytes()) : part.starts_with(affix.bytes());
  };
  if (!bound[0].is_tuple()) return Value::boolean(matches(bound[0]));
  return Value::boolean(std::any_of(bound[0].items().begin(), bound[0].items().end(), matches));
}

template <bool FromRight, bool MustExist>
Value method_find(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Bound bound(MustExist ? "index" : "find", arguments, "sub,start,end,/", 1);
  evaluator.charge(self.text().size() / 32);
  const std::string needle = bound.text(0, "").bytes();
  if (const auto range = window(self, bound, 1)) {
    const auto part = std::string_view(self.bytes()).substr(range->first, range->second - range->first);
    const std::size_t found = FromRight ? part.rfind(needle) : part.find(needle);
    if (found != kNone)
      return Value::count(num_code_points(std::string_view(self.bytes()).substr(0, range->first + found)));
  }
  if (MustExist) fail("substring not found");
  return Value::integer(-1);
}

Value method_count(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, "sub,start,end,/", 1);
  evaluator.charge(self.text().size() / 32);
  const std::string needle = bound.text(0, "").bytes();
  const auto range = window(self, bound, 1);
  if (!range) return Value::integer(0);
  const auto part = std::string_view(self.bytes()).substr(range->first, range->second - range->first);
  if (needle.empty()) return Value::count(num_code_points(part) + 1);
  std::size_t count = 0;
  for (std::size_t at = part.find(needle); at != kNone; at = part.find(needle, at + needle.size()))
    ++count;
  return Value::count(count);
}

Value method_join(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
  const Bound bound("join", arguments, "iterable,/", 1);
  if (bound[0].is_undefined()) return Value::string(Text());
  Text out;
  std::size_t index = 0;
  for (const auto& item : evaluator.iterate(bound[0])) {
    if (!item.is_string()) {
      fail("sequence item " + std::to_string(index) + ": expected str instance, " + type_name(item) + " found");
    }
    if (index++ != 0) out.append(self.text());
    out.append(item.text());
    evaluator.check_length(out.size());
  }
  evaluator.charge(out.size() / 32);
  return Value::string(std::move(out), self.is_markup());
}

Value method_removeprefix(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("removeprefix", arguments, "prefix,/", 1);
  const std::string prefix = bound.text(0, "").bytes();
  return self.bytes().starts_with(prefix) ? Value::string(self.text().part(prefix.size())) : self;
}

Value method_removesuffix(Evaluator&, const Value& self, const Arguments& arguments) {
  const Bound bound("removesuffix", arguments, "suffix,/", 1);
  const std::string suffix = bound.text(0, "").bytes();
  return self.bytes().ends_with(suffix) ? Value::string(self.text().part(0, self.text().size() - suffix.size())) : self;
}

constexpr MethodEntry kSearchMethods[] = {
    {"split", method_split<false>},
    {"rsplit", method_split<true>},
    {"splitlines", method_splitlines},
    {"partition", method_partition<false>},
    {"rpartition", method_partition<true>},
    {"replace", method_replace},
    {"startswith", method_has_affix<false>},
    {"endswith", method_has_affix<true>},
    {"find", method_find<false, false>},
    {"rfind", method_find<true, false>},
    {"index", method_find<false, true>},
    {"rindex", method_find<true, true>},
    {"count", method_count},
    {"join", method_join},
    {"removeprefix", method_removeprefix},
    {"removesuffix", method_removesuffix},
    {"format", brace_format},
};

}  // namespace

std::span<const MethodEntry> string_search_methods() {
  return kSearchMethods;
}

}  // namespace quire::jinja
