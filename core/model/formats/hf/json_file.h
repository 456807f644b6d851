// JSON files of a model's directory: read with bounds, looked up with messages that name file and key. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// Parses an object. Throws StartupError, one line that begins with `where`, on bad JSON, an object key that occurs
// twice, or nesting deeper than `max_depth`.
nlohmann::json parse_json_object(std::string_view text, const std::string& where, int max_depth);

// The object in a file of at most 64 MiB; nothing if the file is absent. Infinite numbers, which Python writes by name,
// are null.
std::optional<nlohmann::json> read_json_file(const std::filesystem::path& path);

// The file's text; nothing if the file is absent. Throws StartupError above 64 MiB, and if the file holds a pointer or
// a web page instead.
std::optional<std::string> read_text_file(const std::filesystem::path& path);

// Typed members of an object. An absent or null member is nothing; a member of another kind throws StartupError naming
// it. One thread at a time: look-ups are recorded.
class JsonObject {
 public:
  // `object` must outlive this; `where` begins every message.
  JsonObject(const nlohmann::json& object, std::string where);

  const std::string& where() const { return where_; }
  bool has(const char* key) const;
  std::optional<std::int64_t> integer(const char* key) const;
  std::optional<double> number(const char* key) const;
  std::optional<bool> boolean(const char* key) const;
  std::optional<std::string> text(const char* key) const;
  std::optional<JsonObject> object(const char* key) const;
  const nlohmann::json* find(const char* key) const;  // null: absent or null

  std::int64_t required_integer(const char* key) const;
  [[noreturn]] void fail(const std::string& what) const;

  // Members that were never looked up, in this object or a copy of it; and those that were, present or not.
  std::vector<std::string> unread() const;
  const std::set<std::string, std::less<>>& read() const { return *read_; }

 private:
  const nlohmann::json* object_;
  std::string where_;
  std::shared_ptr<std::set<std::string, std::less<>>> read_;
};

}  // namespace quire
