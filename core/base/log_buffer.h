// LogBuffer: buffers lines for a descriptor, written by a thread of its own, `log`. Any thread. Bounded: while the
// reader does not drain, further lines are dropped and counted, and once it drains again a line reports them. Callers
// never wait for the descriptor; the end waits only briefly, and leaves behind a thread that is stuck in a write.
// log::Buffered: gives the process log (core/base/log.h) such a buffer.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

namespace quire {

class LogBuffer {
 public:
  struct Options {
    int descriptor = 2;
    std::size_t max_bytes = std::size_t{1} << 20;  // waiting bytes; as many again may be in writing
    std::chrono::milliseconds last_wait{1000};     // longest wait at the end for the rest to be written
    // Makes the line that reports the number of dropped lines; on the log's thread.
    std::function<std::string(std::uint64_t num_dropped)> announce;
  };

  explicit LogBuffer(Options options);
  ~LogBuffer();
  LogBuffer(const LogBuffer&) = delete;
  LogBuffer& operator=(const LogBuffer&) = delete;

  // Appends a line with its line break. Dropped if there is no room or no memory.
  void append(std::string_view line) noexcept;
  // Lines dropped since the start, including those that the descriptor refused.
  std::uint64_t num_dropped() const;
  // Waits until everything is written; false after `longest`.
  bool flush(std::chrono::milliseconds longest);

 private:
  struct State;

  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this
  std::thread thread_;
};

}  // namespace quire

namespace quire::log {

// While it exists, the log's lines go to stderr through a LogBuffer. One at a time, after configure().
class Buffered {
 public:
  Buffered();
  ~Buffered();
  Buffered(const Buffered&) = delete;
  Buffered& operator=(const Buffered&) = delete;
};
// Lines that the reader of stderr did not take in time.
std::uint64_t num_dropped();
// Waits until all lines so far are written, at most `longest`.
void flush(std::chrono::milliseconds longest);

}  // namespace quire::log
