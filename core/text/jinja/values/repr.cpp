#include "core/text/jinja/values/repr.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/text/jinja/evaluator.h"
#include "core/text/jinja/failure.h"
#include "core/text/jinja/values/number_format.h"
#include "core/text/jinja/values/object.h"
#include "core/text/jinja/values/unicode.h"

namespace quire::jinja {
namespace {

std::string hex_escape(char32_t c) {
  char buffer[16];
  const char* format = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(buffer, sizeof buffer, format, static_cast<unsigned>(c));
  return buffer;
}

class ReprWriter {
 public:
  ReprWriter(Evaluator& evaluator, bool sort_keys) : evaluator_(evaluator), sort_keys_(sort_keys) {}

  void write(const Value& value) {
    switch (value.kind()) {
      case Kind::kUndefined: return put("Undefined");
      case Kind::kNone: return put("None");
      case Kind::kBool: return put(value.as_bool() ? "True" : "False");
      case Kind::kInt: return put(format_integer(value.as_integer()));
      case Kind::kFloat: return put(value.digits() != nullptr ? *value.digits() : float_repr(value.as_double()));
      case Kind::kString:
        if (!value.is_markup()) return write_string(value.text());
        put("Markup(");
        write_string(value.text());
        return put(")");
      case Kind::kSequence: return write_sequence(value.sequence());
      case Kind::kDict: return write_dict(value.dict());
      case Kind::kRange: return write_range(value.range());
      case Kind::kObject: return put(value.object()->repr(evaluator_));
    }
  }

  Text take() { return std::move(out_); }

 private:
  void put(std::string_view text) { out_.append(text, true); }

  void write_string(const Text& text) {
    const std::string& bytes = text.bytes();
    const bool double_quoted = bytes.find('\'') != std::string::npos && bytes.find('"') == std::string::npos;
    const char quote = double_quoted ? '"' : '\'';
    put({&quote, 1});
    for (std::size_t i = 0; i < bytes.size();) {
      const std::size_t begin = i;
      const char32_t c = next_code_point(bytes, i);
      const bool trusted = text.trusted_at(begin);
      if (c == static_cast<char32_t>(quote) || c == '\\') {
        out_.append("\\", trusted);
        out_.append(text, begin, 1);
      } else if (c == '\n' || c == '\r' || c == '\t') {
        out_.append(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", trusted);
      } else if (is_printable(c)) {
        out_.append(text, begin, i - begin);
      } else {
        out_.append(hex_escape(c), trusted);
      }
    }
    put({&quote, 1});
  }

  void write_items(const Sequence& sequence) {
    for (std::size_t i = 0; i < sequence.items.size(); ++i) {
      if (i != 0) put(", ");
      write(sequence.items[i]);
    }
  }

  void write_sequence(const Sequence& sequence) {
    switch (sequence.kind) {
      case SequenceKind::kTuple:
      case SequenceKind::kGroup:
        put("(");
        write_items(sequence);
        return put(sequence.items.size() == 1 ? ",)" : ")");
      case SequenceKind::kGenerator: return put("<generator object>");
      case SequenceKind::kList:
        put("[");
        write_items(sequence);
        return put("]");
      default:
        put(type_name_of(sequence.kind));
        put("([");
        write_items(sequence);
        put("])");
    }
  }

  static std::string_view type_name_of(SequenceKind kind) {
    if (kind == SequenceKind::kDictKeys) return "dict_keys";
    return kind == SequenceKind::kDictValues ? "dict_values" : "dict_items";
  }

  void write_dict(const Dict& dict) {
    put("{");
    bool first = true;
    auto entries = dict.entries();
    if (sort_keys_) std::stable_sort(entries.begin(), entries.end(), before);
    for (const auto& [key, value] : entries) {
      if (!first) put(", ");
      first = false;
      write(key);
      put(": ");
      write(value);
    }
    put("}");
  }

  // Keys of the same kind are in their own order, others in the order of their types' names.
  static bool before(const Dict::Entry& a, const Dict::Entry& b) {
    if (a.first.is_string() && b.first.is_string()) return a.first.bytes() < b.first.bytes();
    if (a.first.is_number() && b.first.is_number()) return a.first.as_double() < b.first.as_double();
    return type_name(a.first) < type_name(b.first);
  }

  void write_range(const Range& range) {
    put("range(" + std::to_string(range.start) + ", " + std::to_string(range.stop));
    if (range.step != 1) put(", " + std::to_string(range.step));
    put(")");
  }

  Evaluator& evaluator_;
  bool sort_keys_;
  Text out_;
};

class JsonWriter {
 public:
  JsonWriter(Evaluator& evaluator, const JsonStyle& style) : evaluator_(evaluator), style_(style) {}

  void write(const Value& value) {
    switch (value.kind()) {
      case Kind::kNone: return put("null");
      case Kind::kBool: return put(value.as_bool() ? "true" : "false");
      case Kind::kInt: return put(format_integer(value.as_integer()));
      case Kind::kFloat: return put(value.digits() != nullptr ? *value.digits() : number(value.as_double()));
      case Kind::kString: return write_string(value.text());
      case Kind::kSequence:
        if (value.is_list() || value.is_tuple()) return write_list(value.items());
        break;
      case Kind::kDict: return write_dict(value);
      default: break;
    }
    fail("Object of type " + type_name(value) + " is not JSON serializable");
  }

  Text take() { return std::move(out_); }

 private:
  void put(std::string_view text) { out_.append(text, true); }

  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return float_repr(value);
  }

  std::string escape(char32_t c) const {
    switch (c) {
      case '"': return "\\\"";
      case '\\': return "\\\\";
      case '\n': return "\\n";
      case '\r': return "\\r";
      case '\t': return "\\t";
      case '\f': return "\\f";
      case '\b': return "\\b";
      default: break;
    }
    if (c >= 0x20 && (c < 0x7F || !style_.ensure_ascii)) return {};
    char buffer[16];
    if (c < 0x10000) {
      std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(c));
    } else {
      const auto rest = static_cast<unsigned>(c - 0x10000);
      std::snprintf(buffer, sizeof buffer, "\\u%04x\\u%04x", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    }
    return buffer;
  }

  void write_string(const Text& text) {
    put("\"");
    const std::string& bytes = text.bytes();
    for (std::size_t i = 0; i < bytes.size();) {
      const std::size_t begin = i;
      const std::string escaped = escape(next_code_point(bytes, i));
      if (escaped.empty()) {
        out_.append(text, begin, i - begin);
      } else {
        out_.append(escaped, text.trusted_at(begin));
      }
    }
    put("\"");
  }

  void new_line() {
    if (!style_.indent) return;
    put("\n");
    for (std::size_t i = 0; i < depth_; ++i)
      out_.append(*style_.indent);
    evaluator_.check_length(out_.size());
  }

  void separate(bool& first) {
    if (!first) put(style_.item_separator);
    first = false;
    new_line();
  }

  void write_list(const std::vector<Value>& items) {
    if (items.empty()) return put("[]");
    put("[");
    ++depth_;
    bool first = true;
    for (const auto& item : items) {
      separate(first);
      write(item);
    }
    --depth_;
    new_line();
    put("]");
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write_string(key.text());
    if (!key.is_number() && !key.is_none()) fail("keys must be str, int, float, bool or None, not " + type_name(key));
    put("\"");
    write(key);
    put("\"");
  }

  void write_dict(const Value& value) {
    const auto& dict = value.dict();
    if (dict.size() == 0) return put("{}");
    put("{");
    ++depth_;
    bool first = true;
    auto entries = dict.entries();
    if (style_.sort_keys) evaluator_.sort_entries(entries);
    for (const auto& [key, member] : entries) {
      separate(first);
      write_key(key);
      put(style_.key_separator);
      write(member);
    }
    --depth_;
    new_line();
    put("}");
  }

  Evaluator& evaluator_;
  const JsonStyle& style_;
  Text out_;
  std::size_t depth_ = 0;
};

}  // namespace

Text repr(Evaluator& evaluator, const Value& value, bool sort_keys) {
  evaluator.charge(value.weight());
  ReprWriter writer(evaluator, sort_keys);
  writer.write(value);
  return writer.take();
}

Text to_text(Evaluator& evaluator, const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return {};
  return repr(evaluator, value);
}

Text dump_json(Evaluator& evaluator, const Value& value, const JsonStyle& style) {
  evaluator.charge(value.weight());
  JsonWriter writer(evaluator, style);
  writer.write(value);
  return writer.take();
}

}  // namespace quire::jinja
