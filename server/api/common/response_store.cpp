#include "server/api/common/response_store.h"

#include <algorithm>

namespace quire {

namespace {

// What an entry costs beside its texts: list and map nodes, string headers.
constexpr std::int64_t kEntryBytes = 512;
constexpr std::int64_t kItemBytes = 128;

std::int64_t size_of(const StoredResponse& response) {
  std::size_t texts = response.id.size() + response.owner.size() + response.previous.size() + response.body.size() +
                      num_bytes(response.input) + num_bytes(response.output);
  for (const std::string& id : response.item_ids)
    texts += id.size();
  const std::size_t num_items = response.item_ids.size() + response.input.size() + response.output.size();
  return static_cast<std::int64_t>(texts) + kEntryBytes + kItemBytes * static_cast<std::int64_t>(num_items);
}

}  // namespace

std::string StoredResponse::whole_body() const {
  std::string whole = body.substr(0, output_at);
  append_items(output, whole);
  return whole.append(body, output_at);
}

void ResponseStore::put(StoredResponse response) {
  const std::int64_t size = size_of(response);
  if (size > options_.max_bytes || !enabled()) return;
  const std::lock_guard lock(mutex_);
  insert(std::move(response), size);
}

bool ResponseStore::replace(const Entry& old, StoredResponse other) {
  const std::int64_t size = size_of(other);
  const std::lock_guard lock(mutex_);
  const auto found = ids_.find(old->id);
  if (found == ids_.end() || *found->second != old) return false;
  remove(found->second);
  if (size <= options_.max_bytes) insert(std::move(other), size);
  return true;
}

void ResponseStore::insert(StoredResponse response, std::int64_t size) {
  // A chat's id can be of the client's choosing: its latest is the one that is meant.
  if (const auto same = ids_.find(response.id); same != ids_.end() && (*same->second)->owner == response.owner)
    remove(same->second);
  while (!entries_.empty() &&
         (num_bytes_ + size > options_.max_bytes || static_cast<std::int64_t>(entries_.size()) >= options_.max_count)) {
    remove(std::prev(entries_.end()));
  }
  entries_.push_front(std::make_shared<const StoredResponse>(std::move(response)));
  const auto entry = entries_.begin();
  ids_.emplace((*entry)->id, entry);
  for (const std::string& id : (*entry)->item_ids)
    items_.emplace(id, entry);
  num_bytes_ += size;
}

void ResponseStore::remove(List::iterator entry) {
  for (const std::string& id : (*entry)->item_ids)
    items_.erase(id);
  if (const auto found = ids_.find((*entry)->id); found != ids_.end() && found->second == entry) ids_.erase(found);
  num_bytes_ -= size_of(**entry);
  entries_.erase(entry);
}

ResponseStore::Entry ResponseStore::use(std::string_view id, std::string_view owner) {
  const auto found = ids_.find(id);
  if (found == ids_.end() || (*found->second)->owner != owner) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return entries_.front();
}

ResponseStore::Entry ResponseStore::find(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  return use(id, owner);
}

ResponseStore::Entry ResponseStore::find_item(std::string_view item_id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  const auto found = items_.find(item_id);
  return found == items_.end() ? nullptr : use((*found->second)->id, owner);
}

std::vector<ResponseStore::Entry> ResponseStore::conversation(std::string_view id, std::string_view owner) {
  std::vector<Entry> chain;
  const std::lock_guard lock(mutex_);
  while (!id.empty()) {
    chain.push_back(use(id, owner));
    if (chain.back() == nullptr) return {};
    id = chain.back()->previous;
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

bool ResponseStore::erase(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  const auto found = ids_.find(id);
  if (found == ids_.end() || (*found->second)->owner != owner) return false;
  remove(found->second);
  return true;
}

std::size_t ResponseStore::count() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace quire
