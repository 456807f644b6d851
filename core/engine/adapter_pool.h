// AdapterPool: the LoRA adapters of one model by name, in bounded memory. The least recently requested ones are dropped
// first. The pool's thread reads an adapter again when a request needs it. Any thread. Invariants: the adapters in
// memory and those being read take at most `max_bytes` (an adapter read for the first time counts by its file's size
// until then); an adapter in use is never dropped, and counts until its last user is gone; a name stands for the same
// weights until it is replaced.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/result.h"
#include "core/model/parts/adapter.h"
#include "core/request/request.h"

namespace quire {

class AdapterPool;

// Adapters in use leave too little memory for another one.
class AdapterShortage : public StartupError {
 public:
  using StartupError::StartupError;
};

// A request's wait for an adapter that is not in memory. After the callback it keeps the adapter in memory; the request
// holds it until it was parsed again. Its destruction cancels the callback.
class AdapterWait {
 public:
  using Done = std::function<void(std::optional<Error>)>;

  AdapterWait(std::shared_ptr<AdapterPool> pool, std::string name) : pool_(std::move(pool)), name_(std::move(name)) {}
  ~AdapterWait();
  AdapterWait(const AdapterWait&) = delete;
  AdapterWait& operator=(const AdapterWait&) = delete;

  // Calls back once the adapter can be taken, or with an error: on the pool's thread, or before this returns. Errors:
  // 503 "adapter_failed" if its file is gone, changed or unusable. Called once.
  void begin(Done done);

 private:
  friend class AdapterPool;
  const std::shared_ptr<AdapterPool> pool_;
  const std::string name_;
  Done done_;                            // guarded by the pool's mutex until it is called
  std::shared_ptr<const Adapter> held_;  // guarded by the pool's mutex too
};

class AdapterPool : public std::enable_shared_from_this<AdapterPool> {
 public:
  // Reads and packs a file. Throws StartupError. Any thread, and several at once.
  using Load = std::function<std::shared_ptr<const Adapter>(const std::filesystem::path& path)>;

  AdapterPool(std::uint64_t max_bytes, Load load);
  ~AdapterPool() { stop(); }
  AdapterPool(const AdapterPool&) = delete;
  AdapterPool& operator=(const AdapterPool&) = delete;

  // Reads the file now and adds the adapter, or replaces the one of that name; requests that use the old one keep it.
  // Returns the adapter's rank. Throws StartupError if the file is unusable, or AdapterShortage; no name changes then.
  std::int64_t add(const std::string& name, const std::filesystem::path& path);
  // Adds a file that is read when it is first requested.
  void add_unread(const std::string& name, const std::filesystem::path& path);
  // Removes the name. Requests that use the adapter keep it.
  void remove(const std::string& name);

  // The adapter, kept in memory while the pointer lives, or else the wait for it.
  struct Taken {
    std::shared_ptr<const Adapter> adapter;
    std::shared_ptr<AdapterWait> wait;
  };
  // nullopt: the name is unknown.
  std::optional<Taken> take(const std::string& name);
  // A name whose weights have this key; nullopt if none of the adapters read so far has.
  std::optional<std::string> name_of(const std::string& content_key) const;
  // Ends the thread. Present waits are called back, and their requests then find no model. Later waits get a 503.
  void stop();

  struct Stats {
    std::uint64_t max_bytes = 0;
    std::uint64_t used_bytes = 0;
    std::uint64_t num_loads = 0;    // files that were read
    std::uint64_t num_dropped = 0;  // adapters that left the memory to make room
    std::vector<std::string> in_memory{};
    std::vector<std::string> running{};  // adapters in use
    std::vector<std::string> waiting{};  // adapters that requests wait for
  };
  Stats stats() const;

 private:
  friend class AdapterWait;
  // An adapter in memory.
  struct Resident {
    std::shared_ptr<const Adapter> adapter;
    std::uint64_t bytes = 0;
    std::int64_t num_users = 0;
    std::int64_t num_holds = 0;  // ended waits whose requests were not parsed again yet
    bool is_leaving = false;     // a request waits for its memory; later requests for it queue
  };
  using ResidentPtr = std::shared_ptr<Resident>;
  struct Named {
    std::uint64_t id = 0;  // identifies this file under this name
    std::filesystem::path path{};
    ResidentPtr resident{};     // null: not in memory
    std::uint64_t bytes = 0;    // its size in memory
    std::string content_key{};  // key of its weights; empty: never read
    std::uint64_t asked_at = 0;
    std::optional<Clock::time_point> failed_at{};
    std::optional<Error> failure{};
  };
  class Lease;
  using Lock = std::unique_lock<std::mutex>;
  struct Step;

  // Each requires mutex_.
  std::shared_ptr<const Adapter> lease(const ResidentPtr& resident, bool is_hold);
  std::uint64_t used_bytes() const;
  std::uint64_t bytes_in_use() const;
  bool make_room(std::uint64_t bytes);
  void mark_leaving(std::uint64_t bytes);
  std::vector<Named*> oldest_first();
  void put(Named& named, std::shared_ptr<const Adapter> adapter);
  void forget(Named& named);
  Step next_step();
  AdapterWait::Done take_out(AdapterWait& wait);

  void read_again(const std::string& name, Lock& lock);
  void advance(Lock& lock);
  void release(const ResidentPtr& resident, bool is_hold);
  void run();

  const std::uint64_t max_bytes_;
  const Load load_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Named> named_;
  std::vector<ResidentPtr> unnamed_;  // removed or replaced, and still used
  std::uint64_t reserved_ = 0;        // bytes reserved for the file being read
  std::deque<AdapterWait*> waits_;    // oldest first
  std::uint64_t num_asked_ = 0;
  std::uint64_t num_ids_ = 0;
  std::uint64_t num_loads_ = 0;
  std::uint64_t num_dropped_ = 0;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace quire
