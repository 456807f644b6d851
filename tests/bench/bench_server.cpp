// Overhead of the server over an engine that costs nothing: bench_server streams [IO_THREADS [chat|completions]] |
// overhead. Client and server are two processes that share this machine's cores.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>

#include "core/base/log.h"
#include "server/server.h"
#include "tests/bench/costless_engine.h"
#include "tests/bench/engine_bench.h"
#include "tests/bench/stream_client.h"
#include "tests/support/ready_table.h"

namespace {

using namespace quire;
using namespace quire::bench;

constexpr int kStreams = 1000;
constexpr int kSeconds = 6;

struct Run {
  std::size_t num_streams = 1;
  std::chrono::nanoseconds period{0};
  int io_threads = 1;
};

// Serves until `client`, in a process of its own, has ended; prints the server's use of CPU and memory.
void serve_for(const Run& run, const std::function<void(std::uint16_t)>& client) {
  std::fflush(stdout);
  std::array<int, 2> pipe{};
  if (::pipe(pipe.data()) != 0) std::exit(1);
  const pid_t child = ::fork();  // fork while there are no other threads
  if (child == 0) {
    std::uint16_t port = 0;
    if (::read(pipe[0], &port, sizeof port) == sizeof port) client(port);
    std::fflush(stdout);
    ::_exit(0);
  }
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  {
    ServerOptions options;
    options.port = 0;
    options.io_threads = run.io_threads;
    options.access_log = AccessLog::kOff;
    CostlessEngine engine(run.num_streams, run.period);
    Server server(options);
    server.start();
    server.serve(std::make_shared<const ModelTable>(test::ready_table(costless_model(engine.queue()))));
    const std::uint16_t port = server.port();
    if (::write(pipe[1], &port, sizeof port) != sizeof port) std::exit(1);
    ::waitpid(child, nullptr, 0);
    server.stop();
    server.wait();
    std::printf("  engine steps that began late: %lld\n", static_cast<long long>(engine.num_late()));
  }
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  const auto seconds = [](const timeval& end, const timeval& begin) {
    return static_cast<double>(end.tv_sec - begin.tv_sec) + 1e-6 * static_cast<double>(end.tv_usec - begin.tv_usec);
  };
  std::printf("  server: %.2f s user, %.2f s system\n", seconds(after.ru_utime, before.ru_utime),
              seconds(after.ru_stime, before.ru_stime));
  ::close(pipe[0]);
  ::close(pipe[1]);
}

std::string request_of(bool chat, int max_tokens, bool stream) {
  const std::string prompt =
      chat ? R"("messages":[{"role":"user","content":"Say something."}])" : R"("prompt":"Say something.")";
  const std::string body = R"({"model":"costless",)" + prompt + R"(,"max_tokens":)" + std::to_string(max_tokens) +
                           (stream ? R"(,"stream":true})" : "}");
  return std::string("POST ") + (chat ? "/v1/chat/completions" : "/v1/completions") + " HTTP/1.1\r\nHost: bench\r\n" +
         "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

// Offers a fixed rate, not the highest: a delay is meaningful only while the engine does not wait.
void measure_streams(int io_threads, bool chat) {
  for (const int rate : {100'000, 150'000, 200'000, 250'000}) {
    const std::chrono::nanoseconds period(std::int64_t{1'000'000'000} * kStreams / rate);
    const int num_tokens = rate / kStreams * kSeconds;
    std::printf("streams: %d of %s, %d events/s offered, io_threads %d\n", kStreams, chat ? "chat" : "completions",
                rate, io_threads);
    serve_for({kStreams, period, io_threads}, [&](std::uint16_t port) {
      const StreamFigures figures =
          read_streams(port, kStreams, request_of(chat, num_tokens, true), chat ? R"("content":")" : R"("text":")");
      std::printf("  %.0f events/s, delay p50 %.1f, p99 %.1f, p99.9 %.1f ms; %lld of %d streams whole, %lld events\n",
                  static_cast<double>(figures.num_events) / figures.seconds, figures.delay_ms(50), figures.delay_ms(99),
                  figures.delay_ms(99.9), static_cast<long long>(figures.num_ended), kStreams,
                  static_cast<long long>(figures.num_events));
      std::printf("  %.0f bytes per event, %.2f events per read; client: %.2f s of processor in %.2f s\n",
                  static_cast<double>(figures.num_bytes) / static_cast<double>(figures.num_events),
                  static_cast<double>(figures.num_events) / static_cast<double>(figures.num_reads), figures.cpu_seconds,
                  figures.seconds);
    });
  }
}

// Sends one request after another on one connection: the time between sending and the whole answer is spent in the
// server, the client and the kernel only.
void measure_overhead() {
  constexpr int kRequests = 5000;
  for (const bool stream : {false, true}) {
    serve_for({}, [&](std::uint16_t port) {
      const int socket = connect_to(port);
      const std::string request = request_of(true, 1, stream);
      const std::string_view end = stream ? "\r\n0\r\n\r\n" : "}";
      std::vector<double> micros;
      std::array<char, 65536> buffer;
      for (int i = 0; i < kRequests; ++i) {
        const auto began = Clock::now();
        send_all(socket, request);
        std::string answer;
        while (!answer.ends_with(end)) {
          const ssize_t count = ::read(socket, buffer.data(), buffer.size());
          if (count <= 0) std::exit(1);
          answer.append(buffer.data(), static_cast<std::size_t>(count));
        }
        micros.push_back(1e6 * seconds_between(began, Clock::now()));
      }
      std::printf("overhead: a chat of one token, %s: p50 %.0f, p90 %.0f, p99 %.0f us from request to whole answer\n",
                  stream ? "streamed" : "whole", percentile(micros, 50), percentile(micros, 90),
                  percentile(micros, 99));
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  quire::log::configure({"warn", "text"});
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "streams") {
    measure_streams(argc > 2 ? std::atoi(argv[2]) : 1, argc <= 3 || std::string_view(argv[3]) == "chat");
  } else if (what == "overhead") {
    measure_overhead();
  } else {
    std::fprintf(stderr, "bench_server streams [IO_THREADS [chat|completions]] | overhead\n");
    return 2;
  }
}
