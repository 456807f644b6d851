#include "server/api/responses/conversations.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "server/api/common/store/item_pages.h"
#include "server/api/fields/responses.h"
#include "server/api/generation/generation_fields.h"
#include "server/api/responses/responses_input.h"

namespace quire {

namespace {

constexpr std::string_view kConversationPrefix = "conv_";
constexpr std::string_view kConversations = "/conversations/";
constexpr std::string_view kItemsPath = "/items";

using Answer = Result<std::unique_ptr<Operation>>;

tl::unexpected<Error> no_such_conversation(const std::string& id) {
  return failure(ErrorKind::kNotFound, fmt::format("Conversation with id '{}' not found.", id),
                 "conversation_not_found");
}

tl::unexpected<Error> no_such_item(const std::string& id) {
  return failure(ErrorKind::kNotFound, fmt::format("Item with id '{}' not found.", id), "item_not_found");
}

Answer answer_with(const Json& body) {
  return std::make_unique<ReadyOperation>(dump_json(body));
}

// The conversation that a path names and the rest of the path.
struct Place {
  ResponseStore::Entry entry;
  std::string rest;  // path after "/items": empty or "/{item}"
  bool is_items = false;
};

Result<Place> find_place(const Call& call) {
  auto [id, rest] = split_stored_path(call.path, kConversations);
  Place place{find_conversation(call.responses.get(), id, call.key_name), std::move(rest), false};
  if (place.entry == nullptr) return no_such_conversation(id);
  if (place.rest.empty()) return place;
  const std::string tail = place.rest.substr(std::min(kItemsPath.size(), place.rest.size()));
  const bool is_item = tail.size() > 1 && tail[0] == '/';  // the client chooses the id, which may have slashes
  if (place.rest.rfind(kItemsPath, 0) != 0 || !(tail.empty() || is_item)) {
    return failure(ErrorKind::kNotFound, "There is nothing at this path", "not_found");
  }
  place.rest = tail;
  place.is_items = true;
  return place;
}

Json list_of(const Json& items) {
  return Json{{"object", "list"},
              {"data", items},
              {"first_id", items.empty() ? Json("") : items.front()["id"]},
              {"last_id", items.empty() ? Json("") : items.back()["id"]},
              {"has_more", false}};
}

// An absent body counts as an empty object.
Result<Json> body_of(const Call& call) {
  return call.body.empty() ? Result<Json>(Json::object()) : parse_json_object(call.body, call.limit);
}

Answer add_items(const Call& call, const Place& place) {
  const auto body = body_of(call);
  if (!body) return tl::make_unexpected(body.error());
  FieldReader reader(*body);
  reader.set_limit(call.limit);
  if (!reader.has(fields::responses::kItems)) reader.missing(fields::responses::kItems);
  const ResponseInput input = read_conversation_items(reader, place.entry->input, call.responses.get(), call.key_name);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  append_to_conversation(*call.responses, place.entry->id, call.key_name, input.items);
  return answer_with(list_of(input.items));
}

Answer set_metadata(const Call& call, const Place& place) {
  const auto body = body_of(call);
  if (!body) return tl::make_unexpected(body.error());
  FieldReader reader(*body);
  reader.set_limit(call.limit);
  const Json metadata = read_metadata(reader);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  const std::string id = place.entry->id;
  for (auto entry = place.entry; entry != nullptr; entry = find_conversation(call.responses.get(), id, call.key_name)) {
    StoredResponse changed = *entry;
    Json conversation = Json::parse(entry->body);
    conversation["metadata"] = metadata.is_null() ? Json::object() : metadata;
    changed.body = dump_json(conversation);
    if (call.responses->replace(entry, std::move(changed))) return answer_with(conversation);
  }
  return no_such_conversation(id);
}

Answer delete_item(const Call& call, const Place& place) {
  const std::string id = place.entry->id;
  const std::string item_id = place.rest.substr(1);
  for (auto entry = place.entry; entry != nullptr; entry = find_conversation(call.responses.get(), id, call.key_name)) {
    StoredResponse changed = *entry;
    const auto item =
        std::find_if(changed.input.begin(), changed.input.end(), [&](const auto& each) { return each->id == item_id; });
    if (item == changed.input.end()) return no_such_item(item_id);
    changed.input.erase(item);
    std::erase(changed.item_ids, item_id);
    if (call.responses->replace(entry, std::move(changed))) return answer_with(Json::parse(entry->body));
  }
  return no_such_conversation(id);
}

}  // namespace

ResponseStore::Entry find_conversation(ResponseStore* store, const std::string& id, const std::string& owner) {
  // The store has other things too.
  return store != nullptr && id.rfind(kConversationPrefix, 0) == 0 ? store->find(id, owner) : nullptr;
}

void append_to_conversation(ResponseStore& store, const std::string& id, const std::string& owner, const Json& items) {
  const StoredItems added = store_items(items);
  for (auto entry = find_conversation(&store, id, owner); entry != nullptr;
       entry = find_conversation(&store, id, owner)) {
    StoredResponse changed = *entry;
    std::set<std::string_view> ids;
    for (const auto& item : entry->input)
      ids.insert(item->id);
    // Another request may have added the same items meanwhile.
    for (const auto& item : added) {
      if (ids.count(item->id) == 0) changed.input.push_back(item);
    }
    if (store.replace(entry, std::move(changed))) return;
  }
}

Answer create_conversation(const ModelTable&, const Call& call) {
  if (call.responses == nullptr || !call.responses->enabled()) {
    return invalid("This server stores no conversations: see server.responses", "", "unsupported_operation");
  }
  const auto body = body_of(call);
  if (!body) return tl::make_unexpected(body.error());
  FieldReader reader(*body);
  reader.set_limit(call.limit);
  Json metadata = read_metadata(reader);
  ResponseInput input = read_conversation_items(reader, {}, call.responses.get(), call.key_name);
  if (reader.error()) return tl::make_unexpected(*reader.error());
  const Json conversation{{"id", make_id(kConversationPrefix)},
                          {"object", "conversation"},
                          {"created_at", call.created},
                          {"metadata", metadata.is_null() ? Json::object() : std::move(metadata)}};
  StoredResponse stored;
  stored.id = conversation["id"];
  stored.owner = call.key_name;
  stored.body = dump_json(conversation);
  stored.input = store_items(input.items);
  stored.item_ids = std::move(input.item_ids);
  call.responses->put(std::move(stored));
  return answer_with(conversation);
}

Answer get_conversation(const ModelTable&, const Call& call) {
  const auto place = find_place(call);
  if (!place) return tl::make_unexpected(place.error());
  if (!place->is_items) return std::make_unique<ReadyOperation>(place->entry->body);
  if (place->rest.empty()) {
    auto page = page_of_stored_items(call.query, place->entry->input, false, call.limit);
    if (!page) return tl::make_unexpected(std::move(page.error()));
    return std::make_unique<ReadyOperation>(*std::move(page));
  }
  const StoredItem* const item = find_item(place->entry->input, std::string_view(place->rest).substr(1));
  if (item == nullptr) return no_such_item(place->rest.substr(1));
  if (!call.limit.takes(item->text.size())) return interrupted();
  return std::make_unique<ReadyOperation>(item->text);
}

Answer change_conversation(const ModelTable&, const Call& call) {
  const auto place = find_place(call);
  if (!place) return tl::make_unexpected(place.error());
  if (!place->is_items) return set_metadata(call, *place);
  if (place->rest.empty()) return add_items(call, *place);
  return failure(ErrorKind::kNotFound, "There is nothing at this path", "not_found");
}

Answer delete_conversation(const ModelTable&, const Call& call) {
  const auto place = find_place(call);
  if (!place) return tl::make_unexpected(place.error());
  if (place->is_items && place->rest.empty()) {
    return failure(ErrorKind::kNotFound, "There is nothing at this path", "not_found");
  }
  if (place->is_items) return delete_item(call, *place);
  call.responses->erase(place->entry->id, call.key_name);
  return answer_with({{"id", place->entry->id}, {"object", "conversation.deleted"}, {"deleted", true}});
}

}  // namespace quire
