// StoredItem: an item of a stored conversation, response or chat: its JSON text beside the members used in lookups, so
// that no lookup parses the text. Immutable, so that the states of a conversation share items. Any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/common/json.h"

namespace quire {

// A conversation of more bytes is full: each response to it reads all of it.
inline constexpr std::size_t kMaxConversationBytes = std::size_t{32} << 20;

struct StoredItem {
  std::string text;
  std::string id;
  std::string call_id;  // a tool call's; empty for other items

  std::size_t num_bytes() const { return text.size() + id.size() + call_id.size(); }
};

using StoredItems = std::vector<std::shared_ptr<const StoredItem>>;

StoredItems store_items(const Json& items);
// Parses a stored item's text.
Json read_item(const StoredItem& item);
std::size_t num_bytes(const StoredItems& items);
// Null if there is none.
const StoredItem* find_item(const StoredItems& items, std::string_view id);
// The items' texts, separated by commas.
void append_items(const StoredItems& items, std::string& out);

}  // namespace quire
