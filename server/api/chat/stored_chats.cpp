#include "server/api/chat/stored_chats.h"

#include <fmt/core.h>

#include "server/api/chat/chat_operation.h"
#include "server/api/common/store/item_pages.h"

namespace quire {

namespace {

constexpr std::string_view kChats = "/chat/completions/";

tl::unexpected<Error> no_such_chat(const std::string& id) {
  return failure(ErrorKind::kNotFound, fmt::format("Chat completion with id '{}' not found.", id), "not_found");
}

ResponseStore::Entry find_chat(const Call& call, const std::string& id) {
  const bool is_chat = call.responses != nullptr && id.rfind(kChatIdPrefix, 0) == 0;
  return is_chat ? call.responses->find(id, call.key_name) : nullptr;
}

}  // namespace

Result<std::unique_ptr<Operation>> get_stored_chat(const ModelTable&, const Call& call) {
  const auto [id, rest] = split_stored_path(call.path, kChats);
  const auto stored = find_chat(call, id);
  if (stored == nullptr || (!rest.empty() && rest != "/messages")) return no_such_chat(id);
  if (rest.empty()) return std::make_unique<ReadyOperation>(stored->body);
  auto page = page_of_stored_items(call.query, stored->input, true, call.limit);
  if (!page) return tl::make_unexpected(std::move(page.error()));
  return std::make_unique<ReadyOperation>(*std::move(page));
}

Result<std::unique_ptr<Operation>> delete_stored_chat(const ModelTable&, const Call& call) {
  const auto [id, rest] = split_stored_path(call.path, kChats);
  if (!rest.empty() || find_chat(call, id) == nullptr || !call.responses->erase(id, call.key_name))
    return no_such_chat(id);
  return std::make_unique<ReadyOperation>(
      dump_json({{"object", "chat.completion.deleted"}, {"id", id}, {"deleted", true}}));
}

}  // namespace quire
