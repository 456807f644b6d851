#include "core/base/json/json.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace quire {

namespace {

// Memory that a document's values may take, in addition to twice its text: more is a body of empty lists and the like.
constexpr std::size_t kJsonMemory = std::size_t{32} << 20;

constexpr std::size_t kCheckEvery = 4096;  // values

Error not_json(const std::string& what, std::size_t position) {
  return Error{ErrorKind::kInvalidRequest, what + " (near byte " + std::to_string(position) + ")", "invalid_json", "",
               std::nullopt};
}

// Builds the document from parser events. nlohmann's own builder looks every key up among its siblings, which an
// ordered object makes quadratic: a body of a million short keys would hold a thread for hours. This one appends, and
// removes repeated keys once per object.
class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  TreeBuilder(std::size_t max_depth, std::size_t max_memory, const WorkLimit& limit)
      : max_depth_(max_depth), memory_left_(max_memory), limit_(limit) {}

  bool null() override { return add(Json(nullptr)); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(Json(value)); }
  bool number_float(number_float_t value, const string_t& text) override {
    const bool is_whole = text.find_first_of(".eE") == std::string::npos;
    if (!is_whole) return add(Json(value));
    return spend(text.size()) && add(Json::binary({text.begin(), text.end()}));
  }
  bool string(string_t& value) override { return spend(value.size()) && add(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    keys_.back() = std::move(name);
    return spend(sizeof(std::string) + keys_.back().size());
  }

  bool end_object() override {
    keep_last_of_each_key(open_.back().get_ref<Json::object_t&>());
    return close();
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    // Numbers that do not fit are reported as out of range; all other errors are syntax errors.
    error_ = not_json(error.id == 406 ? "A number is out of range" : "The body is not valid JSON", position);
    return false;
  }

  Json take() { return std::move(root_); }
  const Error& error() const { return error_; }

 private:
  // Accounts for a value's memory; false if the document takes too much.
  bool spend(std::size_t num_bytes) {
    if (num_bytes <= memory_left_) {
      memory_left_ -= num_bytes;
      return true;
    }
    error_ = Error{ErrorKind::kTooLarge, "The body holds too many values", "request_too_large", "", std::nullopt};
    return false;
  }

  bool open(Json container) {
    if (open_.size() >= max_depth_) {
      error_ = Error{ErrorKind::kInvalidRequest, "JSON is nested deeper than " + std::to_string(max_depth_) + " levels",
                     "json_too_deep", "", std::nullopt};
      return false;
    }
    open_.push_back(std::move(container));
    keys_.emplace_back();
    return spend(kContainerBytes);
  }

  bool close() {
    Json finished = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    return add(std::move(finished));
  }

  bool add(Json value) {
    if (!spend(sizeof(Json))) return false;
    if (++num_values_ % kCheckEvery == 0 && limit_.reached()) {
      error_ = interrupted().value();
      return false;
    }
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_array()) {
      open_.back().get_ref<Json::array_t&>().push_back(std::move(value));
    } else {
      auto& members = open_.back().get_ref<Json::object_t&>();
      static_cast<Json::object_t::Container&>(members).emplace_back(std::move(keys_.back()), std::move(value));
    }
    return true;
  }

  // Sorting has no worst case that a client can provoke by a choice of keys, unlike a hash table.
  static void keep_last_of_each_key(Json::object_t& members) {
    auto& list = static_cast<Json::object_t::Container&>(members);
    std::vector<std::size_t> order(list.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const int compared = list[a].first.compare(list[b].first);
      return compared != 0 ? compared < 0 : a < b;
    });
    std::vector<bool> is_repeated(list.size());
    bool any = false;
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (list[order[i - 1]].first != list[order[i]].first) continue;
      any = is_repeated[order[i - 1]] = true;
    }
    if (!any) return;
    Json::object_t kept;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (is_repeated[i]) continue;
      static_cast<Json::object_t::Container&>(kept).emplace_back(list[i].first, std::move(list[i].second));
    }
    members = std::move(kept);
  }

  static constexpr std::size_t kContainerBytes = 64;  // including the allocator's overhead

  std::size_t max_depth_;
  std::size_t memory_left_;
  const WorkLimit& limit_;
  std::size_t num_values_ = 0;
  std::vector<Json> open_;
  std::vector<std::string> keys_;  // parallel to open_: the key of the next value
  Json root_;
  Error error_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, std::size_t max_depth, const WorkLimit& limit) {
  // nlohmann's parser takes a NUL for the end of its input.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    return tl::make_unexpected(not_json("The body is not valid JSON", nul + 1));
  TreeBuilder builder(max_depth, kJsonMemory + 2 * text.size(), limit);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) return tl::make_unexpected(builder.error());
  return builder.take();
}

namespace {

// nlohmann's writer with separators, and with integers of any size.
class Writer {
 public:
  Writer(std::string_view comma, std::string_view colon) : comma_(comma), colon_(colon) {}

  void write(const Json& value) {
    if (value.is_object()) {
      write_object(value);
    } else if (value.is_array()) {
      out_ += '[';
      for (std::size_t i = 0; i < value.size(); ++i) {
        if (i > 0) out_ += comma_;
        write(value[i]);
      }
      out_ += ']';
    } else if (const auto digits = digits_beyond_64_bits(value)) {
      out_ += *digits;
    } else {
      out_ += value.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void write_object(const Json& object) {
    bool is_first = true;
    out_ += '{';
    for (const auto& [key, value] : object.items()) {
      if (!is_first) out_ += comma_;
      is_first = false;
      write(Json(key));
      out_ += colon_;
      write(value);
    }
    out_ += '}';
  }

  std::string_view comma_;
  std::string_view colon_;
  std::string out_;
};

bool holds_long_number(const Json& value) {
  return value.is_structured() ? std::any_of(value.begin(), value.end(), holds_long_number) : value.is_binary();
}

}  // namespace

std::string dump_json(const Json& value) {
  if (!holds_long_number(value)) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  Writer writer(",", ":");
  writer.write(value);
  return writer.take();
}

std::string dump_spaced_json(const Json& value) {
  Writer writer(", ", ": ");
  writer.write(value);
  return writer.take();
}

std::optional<std::string> digits_beyond_64_bits(const Json& value) {
  if (!value.is_binary()) return std::nullopt;
  const auto& bytes = value.get_binary();
  return std::string(bytes.begin(), bytes.end());
}

void append_json_escaped(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::size_t plain = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text.substr(plain, i - plain));
    plain = i + 1;
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        out += "\\u00";
        out += kHex[c >> 4];
        out += kHex[c & 15];
    }
  }
  out.append(text.substr(plain));
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  append_json_escaped(out, text);
  out += '"';
}

std::string quote_json(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

}  // namespace quire
