#include "server/serve.h"

#include <sys/resource.h>

#include <chrono>

#include "core/base/log.h"
#include "server/http/server.h"
#include "server/model_host.h"
#include "server/ops/engine_trace.h"
#include "server/ops/systemd.h"
#include "server/reload.h"

namespace quire {

namespace {

// What the end takes beyond the drain.
constexpr std::chrono::seconds kTimeToEnd{5};

// What a person who just started it can paste into another terminal.
void print_hint(const ServerOptions& options, std::uint16_t port) {
  const std::string& host = options.host;
  if (port == 0 || !options.tls.certificate.empty() || !options.security.keys.empty()) return;
  const std::string reachable = host == "0.0.0.0" || host == "::" ? "127.0.0.1" : host;
  log::info(
      "a chat page is at http://{0}:{1}/ and the API below http://{0}:{1}/v1; try: curl "
      "http://{0}:{1}/v1/chat/completions "
      R"(-H 'Content-Type: application/json' -d '{{"messages":[{{"role":"user","content":"What is a KV block?"}}]}}')",
      reachable, port);
}

// Each connection is a descriptor, and the usual soft limit of 1,024 is less than what can be served.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Twice in each period that the supervisor asked for, as sd_watchdog_enabled(3) advises.
void feed_watchdog(Server& server, ServiceNotifier& notifier) {
  const auto period = watchdog_period();
  if (!period) return;
  server.repeat(*period / 2, [&server, &notifier, watchdog = Watchdog()]() mutable {
    const auto service = server.state().service();
    if (watchdog.is_alive(service->engine_stats(), service->healthy())) notifier.alive();
  });
}

// Records both sides of the queue: the engine's steps and the requests that end.
Result<AdminTask> trace_engine(Server& server, std::chrono::seconds length) {
  const auto service = server.state().service();
  if (!service || service->step_trace == nullptr) {
    return failure(ErrorKind::kUnavailable, "There is no engine to trace yet", "model_loading");
  }
  StepTrace& steps = *service->step_trace;
  if (!steps.start(kMostTracedSteps)) {
    return failure(ErrorKind::kRateLimited, "Somebody else is tracing the engine now", "trace_running");
  }
  server.state().request_trace.start();
  return AdminTask{length, [&server, &steps, began = Clock::now()]() -> Result<std::string> {
                     return perfetto_json(steps.stop(), server.state().request_trace.stop(), began);
                   }};
}

}  // namespace

int serve(const ServeOptions& options, ConfigSource source) {
  raise_descriptor_limit();
  ServiceNotifier notifier;  // outlives the server, whose threads use it
  Reloader reloader(notifier, std::move(source));
  std::unique_ptr<ModelHost> host;
  std::size_t num_cut = 0;
  {
    Server server(options.server, take_handed_sockets());
    server.state().admin.reload = [&reloader] { return reloader.reload(); };
    server.state().admin.trace = [&](std::chrono::seconds length) { return trace_engine(server, length); };
    server.handle_signals([&reloader] { reloader.reload(); });
    server.on_drain([&] {
      const auto settings = server.state().settings();
      notifier.stopping();
      notifier.extend(settings->options.drain.delay + settings->options.drain.deadline + kTimeToEnd);
    });
    server.start();
    try {
      const auto started = Clock::now();
      host = std::make_unique<ModelHost>(options, [&server] { return server.stopping(); });
      reloader.attach(server, *host);
      auto service = host->service(options.model);
      const std::string name = service->models.all().front()->name;
      server.serve(std::move(service));
      // Only now: whoever reads it is served.
      log::info("{} is ready after {} ms", name,
                std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started).count());
      print_hint(options.server, server.port());
      notifier.ready();
      feed_watchdog(server, notifier);
    } catch (const Interrupted&) {
      log::info("interrupted while loading");
    }
    num_cut = server.wait();
    // First the engine's thread ends, which posts to the server's loops; then the server, whose sessions hold
    // references into the engine; then the engine.
    if (host) host->stop();
  }
  if (num_cut > 0) log::warn("{} requests were cut", num_cut);
  return num_cut > 0 ? kExitCut : kExitDrained;
}

}  // namespace quire
