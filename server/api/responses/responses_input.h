// The Responses API's items: a request's `input` checked and completed to the items that the API itself returns, and a
// conversation of such items as the messages that chat templates expect. Pure functions but for the store they look
// references up in; any thread.
#pragma once

#include <string>
#include <vector>

#include "server/api/common/field_reader.h"
#include "server/api/common/store/response_store.h"
#include "server/api/conversation/media_list.h"

namespace quire {

// Reasoning that a client keeps for a server that does not: the text itself behind this mark. It is not secret: the
// same text is in the item's content.
inline constexpr std::string_view kReasoningMark = "quire-reasoning:";

// Mark of a compaction's summary, which is plain text, too.
inline constexpr std::string_view kCompactionMark = "quire-compaction:";

struct ResponseInput {
  Json items = Json::array();         // this request's own
  std::vector<std::string> item_ids;  // new ids for items without one
  std::vector<std::string> paths;     // paths of the items in the body
  bool asks_compaction = false;       // an item of type compaction_trigger is among them
};

// Reads `input`. `before`: the items of the conversation that it continues; a call's output may belong to a call
// there, and an item's id is none of theirs. `store` may be null. Errors stay in the reader, named by their path
// ("input[2].content[0].type").
ResponseInput read_response_input(FieldReader& reader, const StoredItems& before, ResponseStore* store,
                                  const std::string& owner);
// Reads the array `items`, of a conversation's new ones, in the same way.
ResponseInput read_conversation_items(FieldReader& reader, const StoredItems& before, ResponseStore* store,
                                      const std::string& owner);

// The instructions, where they are not empty, and the items as messages: reasoning, text and calls in a row are one
// turn. `paths`: of the last items in the body, for errors about their pictures, which go to `media` and stay in the
// reader.
Json messages_of_items(FieldReader& reader, const std::string& instructions, const Json& items,
                       const std::vector<std::string>& paths, MediaList& media);

// All items of the stored responses in their order, inputs and outputs.
StoredItems items_of(const std::vector<ResponseStore::Entry>& conversation);
// The items themselves. Notes an error where they are too much for the reader's limit.
Json read_items(FieldReader& reader, const StoredItems& items);

}  // namespace quire
