#include "server/api/common/store/response_store.h"

#include <algorithm>

namespace quire {

namespace {

// Estimated memory of an entry beside its texts: list and map nodes, string headers.
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
  const auto shelf = shelves_.find(old->owner);
  if (shelf == shelves_.end()) return false;
  const auto found = shelf->second.ids.find(old->id);
  if (found == shelf->second.ids.end() || *found->second != old) return false;
  remove(shelf, found->second);
  if (size <= options_.max_bytes) insert(std::move(other), size);
  return true;
}

// Weighs `owner` as if it had the new entry already.
void ResponseStore::make_room(const std::string& owner, std::int64_t size) {
  while (num_entries_ > 0) {
    const bool is_full = num_entries_ >= options_.max_count;
    if (!is_full && num_bytes_ + size <= options_.max_bytes) return;
    const auto weight = [&](const Shelves::value_type& each) {
      const bool is_own = each.first == owner;
      return is_full ? std::ssize(each.second.entries) + (is_own ? 1 : 0) : each.second.num_bytes + (is_own ? size : 0);
    };
    const auto heaviest = std::max_element(shelves_.begin(), shelves_.end(),
                                           [&](const auto& a, const auto& b) { return weight(a) < weight(b); });
    remove(heaviest, std::prev(heaviest->second.entries.end()));
  }
}

void ResponseStore::insert(StoredResponse response, std::int64_t size) {
  // A client may choose a chat's id: the latest chat of that id counts.
  if (const auto shelf = shelves_.find(response.owner); shelf != shelves_.end()) {
    if (const auto same = shelf->second.ids.find(response.id); same != shelf->second.ids.end())
      remove(shelf, same->second);
  }
  make_room(response.owner, size);
  List one(1, std::make_shared<const StoredResponse>(std::move(response)));
  const auto entry = one.begin();
  const auto shelf = shelves_.try_emplace((*entry)->owner).first;
  Shelf& own = shelf->second;
  own.entries.splice(own.entries.begin(), one);
  own.num_bytes += size;
  num_bytes_ += size;
  ++num_entries_;
  try {
    own.ids.emplace((*entry)->id, entry);
    for (const std::string& id : (*entry)->item_ids)
      own.items.emplace(id, entry);
  } catch (...) {
    remove(shelf, entry);
    throw;
  }
}

void ResponseStore::remove(Shelves::iterator shelf, List::iterator entry) {
  Shelf& own = shelf->second;
  for (const std::string& id : (*entry)->item_ids) {
    if (const auto found = own.items.find(id); found != own.items.end() && found->second == entry)
      own.items.erase(found);
  }
  own.ids.erase((*entry)->id);
  const std::int64_t size = size_of(**entry);
  own.num_bytes -= size;
  num_bytes_ -= size;
  --num_entries_;
  own.entries.erase(entry);
  if (own.entries.empty()) shelves_.erase(shelf);
}

ResponseStore::Entry ResponseStore::use(Shelf& shelf, Ids& ids, std::string_view id) {
  const auto found = ids.find(id);
  if (found == ids.end()) return nullptr;
  shelf.entries.splice(shelf.entries.begin(), shelf.entries, found->second);
  return shelf.entries.front();
}

ResponseStore::Entry ResponseStore::find(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  const auto shelf = shelves_.find(owner);
  return shelf == shelves_.end() ? nullptr : use(shelf->second, shelf->second.ids, id);
}

ResponseStore::Entry ResponseStore::find_item(std::string_view item_id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  const auto shelf = shelves_.find(owner);
  return shelf == shelves_.end() ? nullptr : use(shelf->second, shelf->second.items, item_id);
}

std::vector<ResponseStore::Entry> ResponseStore::conversation(std::string_view id, std::string_view owner) {
  std::vector<Entry> chain;
  const std::lock_guard lock(mutex_);
  const auto shelf = shelves_.find(owner);
  while (!id.empty()) {
    chain.push_back(shelf == shelves_.end() ? nullptr : use(shelf->second, shelf->second.ids, id));
    if (chain.back() == nullptr) return {};
    id = chain.back()->previous;
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

bool ResponseStore::erase(std::string_view id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  const auto shelf = shelves_.find(owner);
  if (shelf == shelves_.end()) return false;
  const auto found = shelf->second.ids.find(id);
  if (found == shelf->second.ids.end()) return false;
  remove(shelf, found->second);
  return true;
}

std::size_t ResponseStore::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(num_entries_);
}

}  // namespace quire
