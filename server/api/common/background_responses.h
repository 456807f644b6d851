// BackgroundResponses: the responses that are being made without their clients, by id: read, cancelled or deleted
// before they are done. Any thread. Invariants: each key sees its own only; a response is here from before its client
// knows its id until after it is stored; what was cancelled first is stored as cancelled.
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

  // Its body; an empty text where it was deleted; nullopt where none runs.
  std::optional<std::string> find(std::string_view id, std::string_view owner) const;
  // The same, after the run was ended unless its end had come.
  std::optional<std::string> cancel(std::string_view id, std::string_view owner);
  // False where none runs.
  bool erase(std::string_view id, std::string_view owner);

  // The run's end has come: from now on it cannot be cancelled. False where it was.
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
  // With the lock held; null where there is none of that owner.
  Running* running(std::string_view id, std::string_view owner);

  mutable std::mutex mutex_;
  std::map<std::string, Running, std::less<>> running_;  // ids are the server's own
};

}  // namespace quire
