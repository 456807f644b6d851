// SavedStream: the events of one stream, numbered and kept, so that a client whose connection broke can resume it.
// StreamStore: the streams that can be resumed, by key and request id, with limits of time and memory. Any thread.
// Invariants: an event's number is its place in the stream, from 1; all kept events take at most `max_bytes`: a stream
// that would exceed it is no longer saved and continues as any other.
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
  std::chrono::milliseconds window{0};              // how long a broken stream waits for its client; 0: not at all
  std::int64_t max_bytes = std::int64_t{64} << 20;  // of all saved streams together
};

class StreamStore;

class SavedStream {
 public:
  explicit SavedStream(StreamStore& store) : store_(store) {}
  ~SavedStream();
  SavedStream(const SavedStream&) = delete;
  SavedStream& operator=(const SavedStream&) = delete;

  // Takes whole events and returns them with their numbers ("id: 7").
  std::string append(std::string_view events);
  void finish();
  // From now on append() returns what comes after that event: the client has the others. Before the first one.
  void begin_after(std::size_t number) { begin_after_ = number; }

  struct Rest {
    std::string events;
    std::size_t last = 0;   // the number of the last event of the stream so far
    bool finished = false;  // nothing will follow
    bool lost = false;      // dropped at the memory limit: it cannot be resumed
  };
  // What comes after that event. Where it is nothing yet, `wake` (may be empty) is called once when that changes.
  Rest after(std::size_t number, std::function<void()> wake);

  void add_reader() { ++num_readers_; }
  void remove_reader() { --num_readers_; }
  bool has_reader() const { return num_readers_.load() > 0; }

 private:
  StreamStore& store_;
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
  // A new stream, to be closed when it ended; null where that id is taken.
  std::shared_ptr<SavedStream> open(const std::string& key_name, const std::string& request_id, Clock::time_point now);
  // It can be taken up until that time.
  void close(const std::string& key_name, const std::string& request_id, Clock::time_point until);
  std::shared_ptr<SavedStream> find(const std::string& key_name, const std::string& request_id, Clock::time_point now);

  void set_max_bytes(std::int64_t bytes) { max_bytes_ = bytes; }
  std::int64_t num_bytes() const { return num_bytes_.load(); }

 private:
  friend class SavedStream;
  struct Entry {
    std::shared_ptr<SavedStream> stream;
    std::optional<Clock::time_point> until;  // absent: still running
  };
  using Id = std::pair<std::string, std::string>;
  void forget_old(Clock::time_point now);

  std::atomic<std::int64_t> max_bytes_{0};
  std::atomic<std::int64_t> num_bytes_{0};
  std::mutex mutex_;
  std::map<Id, Entry> streams_;
};

}  // namespace quire
