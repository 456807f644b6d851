#include "server/api/common/store/item_pages.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "core/base/percent.h"

namespace quire {

namespace {

// A '%' that begins no escape stands for itself.
std::string plain(std::string_view text) {
  return percent_decoded(text).value_or(std::string(text));
}

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

// Reduces `items` to the page that the query asks for; returns whether more items follow it.
template <class Items, class IdOf>
Result<bool> cut_page(const std::string& query, Items& items, bool ascending_by_default, PageLimits limits,
                      const IdOf& id_of) {
  const auto page = read_page_query(query, ascending_by_default, limits);
  if (!page) return tl::make_unexpected(page.error());
  if (!page->ascending) std::reverse(items.begin(), items.end());
  if (!page->after.empty()) {
    const auto found =
        std::find_if(items.begin(), items.end(), [&](const auto& item) { return id_of(item) == page->after; });
    if (found == items.end()) return invalid(fmt::format("Item with id '{}' not found.", page->after), "after");
    items.erase(items.begin(), found + 1);
  }
  const bool has_more = items.size() > page->limit;
  if (has_more) items.resize(page->limit);
  return has_more;
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
    members.emplace(plain(member.substr(0, equals)), plain(member.substr(std::min(equals + 1, member.size()))));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return members;
}

Result<Json> page_of_items(const std::string& query, Json items, bool ascending_by_default, PageLimits limits) {
  auto& list = items.get_ref<Json::array_t&>();
  const auto id_of = [](const Json& item) { return std::string_view(item["id"].get_ref<const std::string&>()); };
  const auto has_more = cut_page(query, list, ascending_by_default, limits, id_of);
  if (!has_more) return tl::make_unexpected(has_more.error());
  return Json{{"object", "list"},
              {"first_id", list.empty() ? Json("") : list.front()["id"]},
              {"last_id", list.empty() ? Json("") : list.back()["id"]},
              {"has_more", *has_more},
              {"data", std::move(items)}};
}

Result<std::string> page_of_stored_items(const std::string& query, StoredItems items, bool ascending_by_default,
                                         const WorkLimit& limit) {
  const auto id_of = [](const auto& item) { return std::string_view(item->id); };
  const auto has_more = cut_page(query, items, ascending_by_default, {}, id_of);
  if (!has_more) return tl::make_unexpected(has_more.error());
  if (!limit.takes(num_bytes(items))) return interrupted();
  std::string page = dump_json({{"object", "list"},
                                {"first_id", items.empty() ? "" : items.front()->id},
                                {"last_id", items.empty() ? "" : items.back()->id},
                                {"has_more", *has_more},
                                {"data", Json::array()}});
  page.resize(page.size() - std::string_view("]}").size());
  append_items(items, page);
  return page + "]}";
}

}  // namespace quire
