#include "server/api/fields/field.h"

#include <algorithm>

namespace quire::fields {

std::vector<std::string_view> parts_of(std::string_view text, std::string_view divider) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(divider), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + divider.size(), text.size()));
  }
  return parts;
}

}  // namespace quire::fields
