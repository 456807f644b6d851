// ResponseStore: finished responses and conversations that clients may refer to later: to read, continue or delete
// them. Any thread. Invariants: it holds at most max_count responses and max_bytes of their text; evicted first are the
// least recently used entries of the owner with the most: an owner below a fair share loses nothing to others; one API
// key's entries are invisible to other keys, and cannot be hidden by their ids. A restart forgets all.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "server/api/common/store/stored_items.h"

namespace quire {

struct ResponseStoreOptions {
  std::int64_t max_count = 4096;  // 0: nothing is stored
  std::int64_t max_bytes = std::int64_t{256} << 20;
  std::int64_t socket_bytes = std::int64_t{128} << 20;  // last responses of WebSockets
};

// A response and its input, as JSON text: a tree would take several times the memory.
struct StoredResponse {
  std::string id;
  std::string owner;                  // the API key's name
  std::string previous;               // id of the response that it continues; empty: none
  std::string body;                   // the body without its output items, which `output` has
  StoredItems input;                  // its own items, not those of the responses before it
  std::vector<std::string> item_ids;  // unique ids of its items that the server made
  StoredItems output = {};
  std::size_t output_at = 0;  // place of `output` in `body`

  // The body with its output.
  std::string whole_body() const;
};

class ResponseStore {
 public:
  using Entry = std::shared_ptr<const StoredResponse>;

  explicit ResponseStore(const ResponseStoreOptions& options) : options_(options) {}

  bool enabled() const { return options_.max_count > 0; }

  // Stores a response, unless it exceeds the whole limit.
  void put(StoredResponse response);
  // Null if this owner has no such response.
  Entry find(std::string_view id, std::string_view owner);
  // The response that has an item of that id.
  Entry find_item(std::string_view item_id, std::string_view owner);
  // The response and its predecessors, oldest first; empty if one of them is gone.
  std::vector<Entry> conversation(std::string_view id, std::string_view owner);
  bool erase(std::string_view id, std::string_view owner);
  // Replaces `old` by `other`. Returns false if `old` is not stored any more; if there is no room for `other`, nothing
  // takes its place.
  bool replace(const Entry& old, StoredResponse other);

  std::size_t count() const;

 private:
  using List = std::list<Entry>;
  using Ids = std::unordered_map<std::string_view, List::iterator>;  // keys are views of the entries' own

  struct Shelf {
    List entries;  // the most recently used first
    Ids ids;
    Ids items;
    std::int64_t num_bytes = 0;
  };
  using Shelves = std::map<std::string, Shelf, std::less<>>;  // by owner; none is empty

  // Requires the lock.
  static Entry use(Shelf& shelf, Ids& ids, std::string_view id);
  void insert(StoredResponse response, std::int64_t size);
  void make_room(const std::string& owner, std::int64_t size);
  void remove(Shelves::iterator shelf, List::iterator entry);

  const ResponseStoreOptions options_;
  mutable std::mutex mutex_;
  Shelves shelves_;
  std::int64_t num_entries_ = 0;
  std::int64_t num_bytes_ = 0;
};

// The last response of one WebSocket, if it is not stored otherwise, for its next message to continue from: in a store
// that all WebSockets share. One thread at a time. Forgotten with the connection.
class SocketMemory {
 public:
  SocketMemory(std::shared_ptr<ResponseStore> store, std::string owner)
      : store_(std::move(store)), owner_(std::move(owner)) {}
  ~SocketMemory() { forget(); }
  SocketMemory(const SocketMemory&) = delete;
  SocketMemory& operator=(const SocketMemory&) = delete;

  void put(StoredResponse response) {
    forget();
    id_ = response.id;
    store_->put(std::move(response));
  }
  // Null if it is not the last one, or was evicted.
  ResponseStore::Entry find(std::string_view id) const { return id == id_ ? store_->find(id, owner_) : nullptr; }

 private:
  void forget() {
    if (!id_.empty()) store_->erase(id_, owner_);
  }

  const std::shared_ptr<ResponseStore> store_;
  const std::string owner_;
  std::string id_;
};

}  // namespace quire
