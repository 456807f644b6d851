#include "core/model/formats/hf/json_file.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/formats/files/mapped_file.h"
#include "core/model/formats/files/model_path.h"

namespace quire {

namespace {

using nlohmann::json;

constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;
constexpr int kMaxFileDepth = 64;

// Refuses while reading, so that a hostile text costs no memory first.
class StrictReading {
 public:
  StrictReading(const std::string& where, int max_depth) : where_(where), max_depth_(max_depth) {}

  bool operator()(int depth, json::parse_event_t event, json& value) {
    if (depth > max_depth_) throw StartupError(fmt::format("{}: is nested deeper than {} levels", where_, max_depth_));
    if (event == json::parse_event_t::object_start) {
      keys_.resize(static_cast<std::size_t>(depth) + 1);
      keys_.back().clear();
    }
    if (event == json::parse_event_t::key) {
      auto& seen = keys_.at(static_cast<std::size_t>(depth) - 1);
      const auto& key = value.get_ref<const std::string&>();
      if (!seen.insert(key).second)
        throw StartupError(fmt::format("{}: the key '{}' occurs twice", where_, printable(key)));
    }
    return true;
  }

 private:
  const std::string& where_;
  int max_depth_;
  std::vector<std::set<std::string>> keys_;  // keys of the open object at each depth
};

}  // namespace

json parse_json_object(std::string_view text, const std::string& where, int max_depth) {
  json parsed;
  try {
    parsed = json::parse(text, StrictReading(where, max_depth));
  } catch (const json::parse_error& error) {
    throw StartupError(fmt::format("{}: is not valid JSON at byte {}", where, error.byte));
  } catch (const json::exception& error) {
    throw StartupError(fmt::format("{}: is not valid JSON: {}", where, printable(error.what())));
  }
  if (!parsed.is_object()) throw StartupError(fmt::format("{}: is not a JSON object", where));
  return parsed;
}

std::optional<std::string> read_text_file(const std::filesystem::path& path) {
  if (!is_there(path)) return std::nullopt;
  const MappedFile file(path);
  if (file.bytes().size() > kMaxFileBytes) {
    throw StartupError(fmt::format("{}: is larger than {} MiB", path.string(), kMaxFileBytes >> 20));
  }
  const std::string other = other_format(file.bytes(), FileFormat::kJson);
  if (!other.empty()) throw StartupError(fmt::format("{}: {}", path.string(), other));
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

namespace {

// Python writes infinite numbers by names that JSON lacks; replaces them by null, in place.
void replace_infinities(std::string& text) {
  constexpr std::string_view kName = "Infinity";
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (!in_string && text.compare(i, kName.size(), kName) == 0) {
      text.replace(i, kName.size(), "null    ");
      if (i > 0 && text[i - 1] == '-') text[i - 1] = ' ';
    }
  }
}

}  // namespace

std::optional<json> read_json_file(const std::filesystem::path& path) {
  auto text = read_text_file(path);
  if (!text) return std::nullopt;
  replace_infinities(*text);
  return parse_json_object(*text, path.string(), kMaxFileDepth);
}

JsonObject::JsonObject(const json& object, std::string where)
    : object_(&object), where_(std::move(where)), read_(std::make_shared<std::set<std::string, std::less<>>>()) {}

void JsonObject::fail(const std::string& what) const {
  throw StartupError(fmt::format("{}: {}", where_, what));
}

std::vector<std::string> JsonObject::unread() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : object_->items()) {
    if (!read_->contains(key)) out.push_back(key);
  }
  return out;
}

const json* JsonObject::find(const char* key) const {
  read_->emplace(key);
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool JsonObject::has(const char* key) const {
  return find(key) != nullptr;
}

std::optional<std::int64_t> JsonObject::integer(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || std::in_range<std::int64_t>(value->get<std::uint64_t>()));
  if (fits) return value->get<std::int64_t>();
  // Some writers write every number as a real.
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const double real = value->is_number_float() ? value->get<double>() : 0.5;
  if (!(std::fabs(real) <= kExact) || std::trunc(real) != real) fail(fmt::format("'{}' is not a whole number", key));
  return static_cast<std::int64_t>(real);
}

std::int64_t JsonObject::required_integer(const char* key) const {
  const auto value = integer(key);
  if (!value) fail(fmt::format("'{}' is missing", key));
  return *value;
}

std::optional<double> JsonObject::number(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) fail(fmt::format("'{}' is not a number", key));
  return value->get<double>();
}

std::optional<bool> JsonObject::boolean(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail(fmt::format("'{}' is not true or false", key));
  return value->get<bool>();
}

std::optional<std::string> JsonObject::text(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(fmt::format("'{}' is not a string", key));
  return value->get<std::string>();
}

std::optional<JsonObject> JsonObject::object(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail(fmt::format("'{}' is not an object", key));
  return JsonObject(*value, fmt::format("{}: {}", where_, key));
}

}  // namespace quire
