#include "server/api/common/json.h"

namespace quire {

Result<Json> parse_json_object(std::string_view body, const WorkLimit& limit) {
  auto parsed = parse_json(body, kDefaultJsonDepth, limit);
  if (parsed && !parsed->is_object()) return invalid("The request's body must be a JSON object", "", "invalid_type");
  return parsed;
}

std::string dump_opened(const Json& object) {
  std::string text = dump_json(object);
  text.pop_back();
  return text;
}

std::string dump_members(const Json& object) {
  if (object.empty()) return {};
  std::string text = dump_opened(object);
  text.front() = ',';
  return text;
}

}  // namespace quire
