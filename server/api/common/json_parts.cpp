#include "server/api/common/json_parts.h"

namespace quire {

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
