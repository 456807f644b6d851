#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "config/key_types.h"
#include "core/base/message_text.h"

namespace quire::config_types {
namespace {

using Kind = ConfigValue::Kind;

constexpr std::size_t kLongestName = 64;
constexpr std::int64_t kLargestPriority = 1'000'000'000;

// True if the name needs no quoting in a log line, a metric's label or a flag.
bool is_key_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || (c >= '0' && c <= '9');
         });
}

struct Count {
  std::string_view name;
  std::int64_t KeyQuota::*field;
};
constexpr Count kCounts[] = {{"requests_per_minute", &KeyQuota::requests_per_minute},
                             {"tokens_per_minute", &KeyQuota::tokens_per_minute},
                             {"max_concurrent", &KeyQuota::max_concurrent},
                             {"max_context", &KeyQuota::max_context}};

struct Text {
  std::string_view name;
  std::string ApiKeyOptions::*field;
};
constexpr Text kTexts[] = {{"name", &ApiKeyOptions::name},
                           {"sha256", &ApiKeyOptions::sha256},
                           {"env", &ApiKeyOptions::env},
                           {"file", &ApiKeyOptions::file}};

// Sets one member of a key; returns "", or why the value is refused.
std::string set_member(ApiKeyOptions& key, const std::string& name, const ConfigValue& value) {
  for (const Text& text : kTexts) {
    if (text.name != name) continue;
    if (value.kind != Kind::kScalar || value.text.empty()) return fmt::format("has an empty '{}'", name);
    key.*text.field = value.text;
    return {};
  }
  for (const Count& count : kCounts) {
    if (count.name != name) continue;
    const auto number = read_integer(value);
    if (!number || *number < 0) return fmt::format("needs an integer of at least 0 for '{}' (0: no bound)", name);
    key.quota.*count.field = *number;
    return {};
  }
  if (name == "priority") {
    const auto number = read_integer(value);
    if (!number || std::abs(*number) > kLargestPriority) return "needs an integer for 'priority'";
    key.priority = static_cast<std::int32_t>(*number);
    return {};
  }
  if (name != "admin") {
    std::vector<std::string_view> names = {"admin", "priority"};
    for (const Text& text : kTexts)
      names.push_back(text.name);
    for (const Count& count : kCounts)
      names.push_back(count.name);
    return fmt::format("does not know '{}'; did you mean '{}'?", one_line(name), nearest_name(name, names));
  }
  const auto admin = read_boolean(value);
  if (!admin) return "needs true or false for 'admin'";
  key.admin = *admin;
  return {};
}

std::string check(const ApiKeyOptions& key) {
  if (!is_key_name(key.name)) return "needs a 'name' of at most 64 letters, digits, '-', '_' and '.'";
  const int sources = (key.sha256.empty() ? 0 : 1) + (key.env.empty() ? 0 : 1) + (key.file.empty() ? 0 : 1);
  if (sources != 1) return fmt::format("needs one of 'sha256', 'env' and 'file' for '{}'", key.name);
  if (!key.sha256.empty() && !is_sha256(key.sha256)) {
    return fmt::format("needs 64 hexadecimal digits as the 'sha256' of '{}'", key.name);
  }
  return {};
}

std::string read_key(const ConfigValue& item, ApiKeyOptions& key) {
  std::string complaint = read_members(item, key, set_member);
  return complaint.empty() ? check(key) : complaint;
}

std::string show_key(const ApiKeyOptions& key) {
  std::string out;
  for (const Text& text : kTexts) {
    if (!(key.*text.field).empty()) {
      out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", text.name, show_text(key.*text.field));
    }
  }
  if (key.admin) out += ", admin: true";
  if (key.priority != 0) out += fmt::format(", priority: {}", key.priority);
  for (const Count& count : kCounts) {
    if (key.quota.*count.field != 0) out += fmt::format(", {}: {}", count.name, key.quota.*count.field);
  }
  return "{" + out + "}";
}

}  // namespace

ConfigKey api_keys(Description description, Field<std::vector<ApiKeyOptions>> field) {
  ConfigKey key = entries<ApiKeyOptions>(
      std::move(description), field,
      {"a list of mappings with 'name' and one of 'sha256', 'env' and 'file' (as a flag: name=N,env=VARIABLE)",
       read_key,
       [](const ApiKeyOptions& entry, const ApiKeyOptions& earlier) {
         return entry.name == earlier.name ? fmt::format("has the name '{}' twice", entry.name) : std::string();
       },
       show_key});
  key.is_secret = true;
  return key;
}

}  // namespace quire::config_types
