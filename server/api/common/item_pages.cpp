#include "server/api/common/item_pages.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace quire {

namespace {

struct PageQuery {
  std::size_t limit = 20;
  bool ascending = false;
  std::string after;
};

Result<PageQuery> read_page_query(const std::string& query, bool ascending_by_default, PageLimits limits) {
  PageQuery page;
  page.limit = limits.usual;
  page.ascending = ascending_by_default;
  for (const auto& [name, value] : read_query(query)) {
    if (name == "limit") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), page.limit);
      const bool whole = error == std::errc() && end == value.data() + value.size();
      if (!whole || page.limit < 1 || page.limit > limits.most)
        return invalid(fmt::format("'limit' must be a number between 1 and {}", limits.most), "limit");
    } else if (name == "order") {
      if (value != "asc" && value != "desc") return invalid("'order' must be 'asc' or 'desc'", "order");
      page.ascending = value == "asc";
    } else if (name == "after") {
      page.after = value;
    }
  }
  return page;
}

}  // namespace

StoredPath split_stored_path(std::string_view path, std::string_view prefix) {
  const std::string_view tail = path.substr(path.find(prefix) + prefix.size());
  const std::size_t slash = std::min(tail.find('/'), tail.size());
  return {std::string(tail.substr(0, slash)), std::string(tail.substr(slash))};
}

std::map<std::string, std::string> read_query(std::string_view query) {
  std::map<std::string, std::string> members;
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view member = query.substr(0, end);
    const std::size_t equals = std::min(member.find('='), member.size());
    members.emplace(member.substr(0, equals), member.substr(std::min(equals + 1, member.size())));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return members;
}

Result<Json> page_of_items(const std::string& query, Json items, bool ascending_by_default, PageLimits limits) {
  const auto page = read_page_query(query, ascending_by_default, limits);
  if (!page) return tl::make_unexpected(page.error());
  if (!page->ascending) std::reverse(items.begin(), items.end());
  auto first = items.begin();
  if (!page->after.empty()) {
    first = std::find_if(items.begin(), items.end(), [&](const Json& item) { return item["id"] == page->after; });
    if (first == items.end()) return invalid(fmt::format("Item with id '{}' not found.", page->after), "after");
    ++first;
  }
  const auto left = static_cast<std::size_t>(items.end() - first);
  Json data = Json::array();
  data.insert(data.end(), first, first + static_cast<std::ptrdiff_t>(std::min(left, page->limit)));
  Json list{{"object", "list"}};
  list["first_id"] = data.empty() ? Json("") : Json(data.front()["id"]);
  list["last_id"] = data.empty() ? Json("") : Json(data.back()["id"]);
  list["has_more"] = left > page->limit;
  list["data"] = std::move(data);
  return list;
}

}  // namespace quire
