// LogBuffer: lines on their way to a descriptor, written by a thread of its own, `log`. Any thread. Bounded: while the
// reader does not drain, further lines are dropped and counted, and a line that says so follows once it drains again.
// No caller waits for the descriptor; the end waits for a moment only, and leaves behind a thread that hangs in a
// write. log::Buffered: gives the process log (core/base/log.h) such a buffer.
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
    std::size_t max_bytes = std::size_t{1} << 20;  // waiting; as much again may be in writing
    std::chrono::milliseconds last_wait{1000};     // for the rest to be written, at the end
    // Makes the line that says how many were dropped; on the log's thread.
    std::function<std::string(std::uint64_t num_dropped)> announce;
  };

  explicit LogBuffer(Options options);
  ~LogBuffer();
  LogBuffer(const LogBuffer&) = delete;
  LogBuffer& operator=(const LogBuffer&) = delete;

  // A line with its line break. Dropped where there is no room or no memory.
  void append(std::string_view line) noexcept;
  // Since the start; those count that the descriptor refused.
  std::uint64_t num_dropped() const;
  // False where not everything was written in time.
  bool flush(std::chrono::milliseconds longest);

 private:
  struct State;

  std::shared_ptr<State> state_;  // the thread's too, which may outlive this
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
// Waits until what was logged is written, `longest` at most.
void flush(std::chrono::milliseconds longest);

}  // namespace quire::log
