#include "server/api/common/json.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace quire {

namespace {

// A document's values may take this, and twice its text: more is a body of empty lists and the like.
constexpr std::size_t kJsonMemory = std::size_t{32} << 20;

constexpr std::size_t kCheckEvery = 4096;  // values

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
  bool number_float(number_float_t value, const string_t&) override { return add(Json(value)); }
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
    // Numbers that do not fit are reported as out of range; everything else is a matter of grammar.
    error_ = Error{ErrorKind::kInvalidRequest,
                   std::string(error.id == 406 ? "A number is out of range" : "The body is not valid JSON") +
                       " (near byte " + std::to_string(position) + ")",
                   "invalid_json", "", std::nullopt};
    return false;
  }

  Json take() { return std::move(root_); }
  const Error& error() const { return error_; }

 private:
  // Accounts for what a value takes; false where the document takes too much.
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
      static_cast<std::vector<Json::object_t::value_type>&>(members).emplace_back(std::move(keys_.back()),
                                                                                  std::move(value));
    }
    return true;
  }

  // Sorting has no worst case that a choice of keys can bring about, unlike a table of hashes.
  static void keep_last_of_each_key(Json::object_t& members) {
    auto& list = static_cast<std::vector<Json::object_t::value_type>&>(members);
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
      static_cast<std::vector<Json::object_t::value_type>&>(kept).emplace_back(list[i].first,
                                                                               std::move(list[i].second));
    }
    members = std::move(kept);
  }

  static constexpr std::size_t kContainerBytes = 64;  // with what the allocator adds

  std::size_t max_depth_;
  std::size_t memory_left_;
  const WorkLimit& limit_;
  std::size_t num_values_ = 0;
  std::vector<Json> open_;
  std::vector<std::string> keys_;  // beside open_: the key whose value comes next
  Json root_;
  Error error_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, std::size_t max_depth, const WorkLimit& limit) {
  TreeBuilder builder(max_depth, kJsonMemory + 2 * text.size(), limit);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) return tl::make_unexpected(builder.error());
  return builder.take();
}

Result<Json> parse_json_object(std::string_view body, const WorkLimit& limit) {
  auto parsed = parse_json(body, kDefaultJsonDepth, limit);
  if (parsed && !parsed->is_object()) return invalid("The request's body must be a JSON object", "", "invalid_type");
  return parsed;
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace quire
