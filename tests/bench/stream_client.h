// StreamClient: many streams of one server, read by one thread as cheaply as possible: epoll, one buffer, and a search
// for each event's text, which is the time at which the engine handed it over. One thread at a time. It runs in a
// process of its own, so that it and the server share only the machine.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire::bench {

inline constexpr int kStampDigits = 5;
inline constexpr std::int32_t kNumStamps = 100'000;  // tenths of a millisecond: they repeat every ten seconds

// The current time as a text that the costless engine sends.
std::int32_t stamp_now();

struct StreamFigures {
  std::int64_t num_events = 0;
  std::int64_t num_reads = 0;
  std::int64_t num_bytes = 0;
  std::int64_t num_ended = 0;          // streams that came to [DONE]
  std::vector<std::int64_t> by_delay;  // events, by tenths of a millisecond
  double seconds = 0.0;                // from the first event to the last
  double cpu_seconds = 0.0;            // CPU time of this process
  double delay_ms(double percent) const;
};

// Opens `count` connections, sends `request` on each and reads until all have ended. `before_text`: the bytes before
// the text in an event.
StreamFigures read_streams(std::uint16_t port, int count, const std::string& request, std::string_view before_text);

// Returns a connected, blocking socket; ends the program if the connection fails.
int connect_to(std::uint16_t port);
void send_all(int socket, std::string_view bytes);

}  // namespace quire::bench
