// BackgroundResponses: responses that are generated without their clients, by id: read, cancelled or deleted before
// they are done. Any thread. Invariants: each key sees only its own; a response is here from before its client knows
// its id until after it is stored; a response cancelled before its end is stored as cancelled.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace quire {

class BackgroundResponses {
 public:
  // `interrupt`: ends the run, from any thread. A run holds a place in its model's queue, which bounds how many there
  // are.
  void add(const std::string& id, std::string owner, std::string body, std::function<void()> interrupt);
  void update(const std::string& id, std::string body);

  // The response's body; an empty text if it was deleted; nullopt if none runs.
  std::optional<std::string> find(std::string_view id, std::string_view owner) const;
  // Ends the run unless it has ended already; returns as find().
  std::optional<std::string> cancel(std::string_view id, std::string_view owner);
  // False where none runs.
  bool erase(std::string_view id, std::string_view owner);

  // Marks the run's end: from now on it cannot be cancelled. Returns false if it was cancelled.
  bool settle(const std::string& id);
  bool is_cancelled(const std::string& id) const;
  bool is_erased(const std::string& id) const;
  void remove(const std::string& id);

  std::size_t count() const;

 private:
  struct Running {
    std::string owner;
    std::string body;
    std::function<void()> interrupt;
    bool is_settled = false;
    bool is_cancelled = false;
    bool is_erased = false;
  };
  // Requires the lock; null if this owner has none.
  Running* running(std::string_view id, std::string_view owner);

  mutable std::mutex mutex_;
  std::map<std::string, Running, std::less<>> running_;  // ids are the server's own
};

}  // namespace quire
