#include "server/api/common/store/stored_items.h"

#include <algorithm>

namespace quire {

namespace {

// Stored texts are nested a few levels deeper than a client's.
constexpr std::size_t kStoredDepth = 2 * kDefaultJsonDepth;

bool is_call(std::string_view type) {
  return type == "function_call" || type == "custom_tool_call" || type == "local_shell_call";
}

std::string text_of(const Json& item, const char* member) {
  const auto found = item.find(member);
  return found != item.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

StoredItems store_items(const Json& items) {
  StoredItems stored;
  stored.reserve(items.size());
  for (const Json& item : items) {
    const std::string call_id = is_call(text_of(item, "type")) ? text_of(item, "call_id") : std::string();
    stored.push_back(std::make_shared<const StoredItem>(StoredItem{dump_json(item), text_of(item, "id"), call_id}));
  }
  return stored;
}

Json read_item(const StoredItem& item) {
  auto parsed = parse_json(item.text, kStoredDepth);
  return parsed ? *std::move(parsed) : Json::object();
}

std::size_t num_bytes(const StoredItems& items) {
  std::size_t sum = 0;
  for (const auto& item : items)
    sum += item->num_bytes();
  return sum;
}

const StoredItem* find_item(const StoredItems& items, std::string_view id) {
  const auto found = std::find_if(items.begin(), items.end(), [&](const auto& item) { return item->id == id; });
  return found == items.end() ? nullptr : found->get();
}

void append_items(const StoredItems& items, std::string& out) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ',';
    out += items[i]->text;
  }
}

}  // namespace quire
