// OpenAI's conversations: lists of items that responses add to, kept beside the responses in their store, within its
// bounds. Each endpoint runs on a text thread; any thread.
#pragma once

#include <memory>
#include <string>

#include "server/api/common/json.h"
#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire {

// Null where there is none of that owner; `store` may be null.
ResponseStore::Entry find_conversation(ResponseStore* store, const std::string& id, const std::string& owner);
// Appends the items, even if other requests append meanwhile. A conversation above the store's limit is removed.
void append_to_conversation(ResponseStore& store, const std::string& id, const std::string& owner, const Json& items);

// POST /v1/conversations
Result<std::unique_ptr<Operation>> create_conversation(const ModelTable& models, const Call& call);
// GET /v1/conversations/{id}, /items and /items/{item}
Result<std::unique_ptr<Operation>> get_conversation(const ModelTable& models, const Call& call);
// POST /v1/conversations/{id} and /items
Result<std::unique_ptr<Operation>> change_conversation(const ModelTable& models, const Call& call);
// DELETE /v1/conversations/{id} and /items/{item}
Result<std::unique_ptr<Operation>> delete_conversation(const ModelTable& models, const Call& call);

}  // namespace quire
