// SavedStream: the events of one stream, numbered and kept, so that a client whose connection broke can resume it.
// StreamStore: the streams that can be resumed, by key and request id, with limits of time and memory. Any thread.
// Invariants: an event's number is its place in the stream, from 1; all kept events take at most `max_bytes`, and those
// of one key at most half of it: a stream that would exceed either is no longer saved and continues as any other.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/request/request.h"

namespace quire {

struct ResumeOptions {
  std::chrono::milliseconds window{0};              // a broken stream waits so long; 0: not at all
  std::int64_t max_bytes = std::int64_t{64} << 20;  // limit for all saved streams together
};

class StreamStore;

class SavedStream {
 public:
  SavedStream(StreamStore& store, std::string owner) : store_(store), owner_(std::move(owner)) {}
  ~SavedStream();
  SavedStream(const SavedStream&) = delete;
  SavedStream& operator=(const SavedStream&) = delete;

  // Takes whole events and returns them with their numbers ("id: 7").
  std::string append(std::string_view events);
  void finish();
  // Ends the stream's readers; it cannot be resumed any more.
  void revoke();
  // Makes append() return only events after `number`. To be called before the first append().
  void begin_after(std::size_t number) { begin_after_ = number; }

  struct Rest {
    std::string events;
    std::size_t last = 0;   // the number of the last of these events
    bool finished = false;  // no event follows
    bool lost = false;      // dropped at the memory limit: it cannot be resumed
  };
  // Events after that number, at most about kSlice bytes. If there are none yet, `wake` (may be empty) is called once
  // when that changes.
  Rest after(std::size_t number, std::function<void()> wake);

  static constexpr std::size_t kSlice = 128 * 1024;

  // Whether it cannot be resumed: dropped at the memory limit, or revoked.
  bool is_lost();

  void add_reader() { ++num_readers_; }
  void remove_reader() { --num_readers_; }
  bool has_reader() const { return num_readers_.load() > 0; }

 private:
  StreamStore& store_;
  const std::string owner_;
  std::mutex mutex_;
  std::vector<std::string> events_;
  std::size_t begin_after_ = 0;
  std::vector<std::function<void()>> wakers_;
  std::int64_t num_bytes_ = 0;
  bool finished_ = false;
  bool lost_ = false;
  std::atomic<int> num_readers_{0};
};

class StreamStore {
 public:
  // Opens a new stream, which must be closed when it ends; null if that id is taken.
  std::shared_ptr<SavedStream> open(const std::string& key_name, const std::string& request_id, Clock::time_point now);
  // Lets a client resume it until that time.
  void close(const std::string& key_name, const std::string& request_id, Clock::time_point until);
  std::shared_ptr<SavedStream> find(const std::string& key_name, const std::string& request_id, Clock::time_point now);

  // Forgets all streams of the key.
  void revoke(const std::string& key_name);

  void set_max_bytes(std::int64_t bytes) { max_bytes_ = bytes; }
  std::int64_t num_bytes() const { return num_bytes_.load(); }

 private:
  friend class SavedStream;
  struct Entry {
    std::shared_ptr<SavedStream> stream;
    std::optional<Clock::time_point> until;  // absent: still running
  };
  using Id = std::pair<std::string, std::string>;
  using IdView = std::pair<std::string_view, std::string_view>;
  // Lets a look-up avoid allocating a key.
  struct Before {
    using is_transparent = void;
    bool operator()(const IdView& a, const IdView& b) const { return a < b; }
  };
  void forget_old(Clock::time_point now);
  bool take(const std::string& owner, std::int64_t bytes);
  void give_back(const std::string& owner, std::int64_t bytes);

  std::atomic<std::int64_t> max_bytes_{0};
  std::atomic<std::int64_t> num_bytes_{0};
  std::mutex use_mutex_;
  std::map<std::string, std::int64_t> bytes_by_owner_;  // guarded by use_mutex_; none is 0
  std::mutex mutex_;
  std::map<Id, Entry, Before> streams_;  // destroyed first: its streams give memory back
};

}  // namespace quire
