// Helpers of the endpoints that read stored items: ids in paths, query strings, and lists in pages as OpenAI's API has
// them. Pure functions; any thread.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/base/work_limit.h"
#include "server/api/common/json.h"
#include "server/api/common/store/stored_items.h"

namespace quire {

// "/v1/responses/resp_1/input_items" behind "/responses/": the id, and the rest with its slash. For ids that the server
// makes.
struct StoredPath {
  std::string id;
  std::string rest;
};
StoredPath split_stored_path(std::string_view path, std::string_view prefix);

// Names and values, percent-decoded: clients choose some of the ids.
std::map<std::string, std::string> read_query(std::string_view query);

// Items of a page.
struct PageLimits {
  std::size_t usual = 20;
  std::size_t most = 100;
};
// The page of `items`, an array in the order they came, that `limit`, `order` and `after` of the query ask for.
Result<Json> page_of_items(const std::string& query, Json items, bool ascending_by_default, PageLimits limits = {});
// A page of stored items, as JSON text.
Result<std::string> page_of_stored_items(const std::string& query, StoredItems items, bool ascending_by_default,
                                         const WorkLimit& limit);

}  // namespace quire
