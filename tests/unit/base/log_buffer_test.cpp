#include "core/base/log_buffer.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <sstream>

namespace quire {

namespace {

constexpr std::chrono::minutes kPatience{5};

struct Pipe {
  Pipe() { REQUIRE(::pipe(ends) == 0); }
  ~Pipe() {
    ::close(ends[0]);
    if (ends[1] >= 0) ::close(ends[1]);
  }
  // Closes the writer's end and reads all that was written.
  std::string drain() {
    ::close(ends[1]);
    ends[1] = -1;
    std::string text;
    char piece[4096];
    for (ssize_t count = 0; (count = ::read(ends[0], piece, sizeof piece)) > 0;)
      text.append(piece, static_cast<std::size_t>(count));
    return text;
  }
  // Reads what lies in it now, without waiting.
  std::string available() {
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    std::string text;
    char piece[4096];
    for (ssize_t count = 0; (count = ::read(ends[0], piece, sizeof piece)) > 0;)
      text.append(piece, static_cast<std::size_t>(count));
    ::fcntl(ends[0], F_SETFL, 0);
    return text;
  }
  void fill() {
    ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
    const std::string piece(4096, 'x');
    while (::write(ends[1], piece.data(), piece.size()) > 0) {
    }
    ::fcntl(ends[1], F_SETFL, 0);
  }
  int ends[2] = {-1, -1};
};

LogBuffer::Options options_for(const Pipe& pipe) {
  LogBuffer::Options options;
  options.descriptor = pipe.ends[1];
  options.max_bytes = 4096;
  options.last_wait = kPatience;
  options.announce = [](std::uint64_t num_dropped) { return "dropped " + std::to_string(num_dropped) + "\n"; };
  return options;
}

}  // namespace

TEST_CASE("lines reach the descriptor in their order", "[base]") {
  Pipe pipe;
  std::string expected;
  {
    LogBuffer buffer(options_for(pipe));
    for (int i = 0; i < 100; ++i) {
      const std::string line = "line " + std::to_string(i) + "\n";
      expected += line;
      buffer.append(line);
      if (i % 10 == 9) CHECK(buffer.flush(kPatience));
    }
    CHECK(buffer.num_dropped() == 0);
  }
  CHECK(pipe.drain() == expected);
}

TEST_CASE("a reader that does not drain stops nothing: lines are dropped, counted and announced", "[base]") {
  Pipe pipe;
  auto options = options_for(pipe);
  std::uint64_t num_dropped = 0;
  constexpr int kNumLines = 20'000;  // more than pipe and buffer hold
  std::string text;
  {
    LogBuffer buffer(options);
    for (int i = 0; i < kNumLines; ++i)
      buffer.append("line " + std::to_string(i) + "\n");
    num_dropped = buffer.num_dropped();
    REQUIRE(num_dropped > 0);
    // The buffer drains from now on, by more than the pipe holds if lines were dropped several times; the last line is
    // written after the announcement.
    while (!buffer.flush(std::chrono::milliseconds(0)))
      text += pipe.available();
    text += pipe.available();
    CHECK(text.find("dropped ") != std::string::npos);
    buffer.append("last\n");
  }
  text += pipe.drain();
  std::istringstream lines(text);
  std::int64_t next = 0;
  std::uint64_t announced = 0;
  bool is_last = false;
  for (std::string line; std::getline(lines, line);) {
    is_last = line == "last";
    if (is_last) continue;
    if (line.starts_with("dropped ")) {
      const std::uint64_t count = std::stoull(line.substr(8));
      announced += count;
      next += static_cast<std::int64_t>(count);  // stands in place of the dropped lines
    } else {
      CHECK(line == "line " + std::to_string(next));
      ++next;
    }
  }
  INFO(text.substr(text.size() - 200));
  CHECK(is_last);
  CHECK(next == kNumLines);
  CHECK(announced == num_dropped);
}

TEST_CASE("the end waits a moment for a reader that does not drain, and no longer", "[base]") {
  Pipe pipe;
  auto options = options_for(pipe);
  options.last_wait = std::chrono::milliseconds(0);
  pipe.fill();
  LogBuffer buffer(options);
  buffer.append("line\n");
  CHECK_FALSE(buffer.flush(std::chrono::milliseconds(0)));
}

TEST_CASE("lines for a reader that is gone are lost and counted", "[base]") {
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  ::close(pipe.ends[0]);
  LogBuffer buffer(options_for(pipe));
  buffer.append("one\n");
  CHECK(buffer.flush(kPatience));
  CHECK(buffer.num_dropped() == 1);
  pipe.ends[0] = ::dup(pipe.ends[1]);
  ::signal(SIGPIPE, before);
}

}  // namespace quire
