#include "server/serve.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/files/writing.h"
#include "core/base/log.h"
#include "core/base/log_buffer.h"
#include "core/base/memory/named_mapping.h"
#include "core/base/memory/sure_memory.h"
#include "server/api/common/model_table.h"
#include "server/connect_models.h"
#include "server/hub/pull_runner.h"
#include "server/join_fleet.h"
#include "server/model_host.h"
#include "server/models/live_models.h"
#include "server/modules/modules.h"
#include "server/ops/end_watch.h"
#include "server/ops/keys/admin.h"
#include "server/ops/process.h"
#include "server/ops/systemd.h"
#include "server/reload.h"
#include "server/run/batch_service.h"
#include "server/server.h"
#include "server/state/live_operations.h"
#include "server/state/settings.h"

namespace quire {

namespace {

// Time for the shutdown after the drain.
constexpr std::chrono::seconds kTimeToEnd{10};
constexpr std::chrono::milliseconds kLastWords{500};
constexpr std::chrono::milliseconds kLookAfter{1000};  // late reloads, memory that was refused
constexpr std::chrono::milliseconds kRest{5000};       // without a request, before memory is returned
// While a start reads weights, each period of kExtendEvery extends its time limit by kExtendBy: time for a tensor of a
// slow disk.
constexpr std::chrono::seconds kExtendEvery{10};
constexpr std::chrono::minutes kExtendBy{5};

// The address at which a person finds the server; nothing where it needs a key, an authority or a socket's path.
std::optional<std::string> open_address(const ServerOptions& options, std::uint16_t port) {
  const std::string& host = options.host;
  if (port == 0 || !options.tls.certificate.empty() || !options.security.keys.empty()) return std::nullopt;
  return fmt::format("http://{}:{}", host == "0.0.0.0" || host == "::" ? "127.0.0.1" : host, port);
}

// Each connection takes a descriptor, and the usual soft limit of 1,024 is too low.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// A request's large buffers are mapped one by one and go back to the system when they are freed. Left to itself glibc
// keeps them in its heap once the first large one was freed, where they are spread over holes: a thousand uploads then
// take half more memory than they have bytes.
void map_large_buffers() {
  constexpr int kLarge = 128 * 1024;
  ::mallopt(M_MMAP_THRESHOLD, kLarge);
}

// Twice in each period that the supervisor asked for, as sd_watchdog_enabled(3) advises. One engine that hangs is
// enough: a restart is the only cure. An engine is watched from the first look at it on: models come and go.
void feed_watchdog(Server& server, ServiceNotifier& notifier) {
  const auto period = watchdog_period();
  if (!period) return;
  server.repeat(*period / 2, [&server, &notifier, watchdogs = std::map<const RunningModel*, Watchdog>()]() mutable {
    const auto table = server.state().models();
    std::map<const RunningModel*, Watchdog> watched;
    bool alive = true;
    for (const TableEntry& model : table->entries()) {
      if (!model.running) continue;
      const RunningModel& running = *model.running;
      const auto before = watchdogs.find(&running);
      Watchdog watchdog = before == watchdogs.end() ? Watchdog(running.weight_bytes()) : before->second;
      alive = watchdog.is_alive(running.stats(), running.healthy()) && alive;
      watched.emplace(&running, watchdog);
    }
    watchdogs = std::move(watched);
    if (alive) notifier.alive();
  });
}

// Returns to the system what the heaps keep free, once the server rests after some load: glibc keeps most of a peak
// otherwise, spread over the heaps of all threads.
void trim_at_rest(Server& server) {
  server.repeat(kRest, [&server, before = std::int64_t{0}, trimmed = std::int64_t{0}]() mutable {
    const std::int64_t calls = server.state().num_calls.load();
    const bool rests = std::exchange(before, calls) == calls && server.state().num_busy.load() == 0;
    if (!rests || trimmed == calls) return;
    trimmed = calls;
    server.state().post_report([] { ::malloc_trim(0); });  // walks all heaps
  });
}

// Drains and exits after `idle` without an API request: if a supervisor holds the sockets, the next connection starts
// the server again.
void exit_when_idle(Server& server, std::chrono::milliseconds idle) {
  if (idle.count() == 0) return;
  const auto period = std::clamp(idle / 8, std::chrono::milliseconds(10), std::chrono::milliseconds(5000));
  server.repeat(period, [&server, idle, calls = std::int64_t{0}, since = Clock::now()]() mutable {
    const std::int64_t now_calls = server.state().num_calls.load();
    const BatchService* const batches = server.state().batches;
    const bool has_batches = batches != nullptr && batches->is_busy();
    if (now_calls != calls || server.state().live.count() > 0 || has_batches) since = Clock::now();
    calls = now_calls;
    if (Clock::now() - since < idle || server.stopping()) return;
    log::info("no API request for {} s: ending", std::chrono::duration_cast<std::chrono::seconds>(idle).count());
    server.stop();
  });
}

// Loads the models that are to be there from the start, then accepts connections.
void open_doors(Server& server, LiveModels& models, const ServeOptions& options, ServiceNotifier& notifier) {
  const auto started = Clock::now();
  const auto between_tensors = [&server, &notifier, extended = Clock::time_point()]() mutable {
    if (const auto now = Clock::now(); now - extended >= kExtendEvery) {
      notifier.extend(kExtendBy);
      extended = now;
    }
    return server.stopping();
  };
  models.start(model_specs(options), engine_options(options), between_tensors);
  models.publish_to([&server](const ModelTable& table) { server.serve(std::make_shared<const ModelTable>(table)); });
  const auto table = server.state().models();
  std::string names;
  for (const TableEntry& model : table->entries()) {
    if (model.served) names += (names.empty() ? "" : ", ") + model.name;
  }
  if (!options.models.empty()) names = "the server with " + (names.empty() ? "no model yet" : names);
  const auto address = open_address(options.server, server.port());
  // Only now: readers of this line are served.
  log::info("{} is ready after {} ms{}; Ctrl-C drains for at most {} s, a second one ends at once", names,
            std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started).count(),
            address ? fmt::format(": {1}the API below {0}/v1", *address,
                                  is_built(Module::kPage) ? fmt::format("a chat page at {}/, ", *address) : "")
                    : "",
            std::chrono::duration_cast<std::chrono::seconds>(options.server.drain.deadline).count());
  if (!address) return;
  log::info(
      "try: curl {}/v1/chat/completions "
      R"(-H 'Content-Type: application/json' -d '{{"messages":[{{"role":"user","content":"What is a KV block?"}}]}}')",
      *address);
}

// A thread that hangs cannot be joined: objects that it may use stay as they are.
[[noreturn]] void end_at_once(const std::string& what) {
  log::error("{}; the process ends at once, exit code {}", what, kExitFailed);
  log::flush(kLastWords);
  std::_Exit(kExitFailed);
}

void end_overdue() {
  end_at_once(fmt::format("the end took longer than {} s: one of these threads hangs: {}", kTimeToEnd.count(),
                          names_of_threads()));
}

// Runs before any thread starts.
void prepare_process() {
  ignore_deadly_signals();
  end_when_truncated(kExitFailed);
  raise_descriptor_limit();
  map_large_buffers();
}

void warn_of_limits(const ServeOptions& options) {
  const bool writes = !options.server.batches.directory.empty() || !options.server.slots.directory.empty() ||
                      !options.engine.kv_cache.disk_tier_path.empty();
  if (const std::string limit = describe_file_size_limit(); writes && !limit.empty())
    log::warn("{}: what is larger is refused or not kept", limit);
}

// Accessible to this user alone, since the files contain clients' texts.
void make_slot_folder(const SlotFileOptions& slots) {
  if (slots.directory.empty()) return;
  std::error_code failed;
  make_private_folder(slots.directory, failed);
  if (!failed && std::filesystem::is_directory(slots.directory)) return;
  throw StartupError("server.slots.directory: '" + slots.directory +
                     "' cannot be used: " + (failed ? failed.message() : "Not a directory"));
}

std::shared_ptr<void> join_others([[maybe_unused]] const ServeOptions& options, [[maybe_unused]] ServerState& state) {
  if constexpr (is_built(Module::kFleet)) return join_fleet(options, state);
  return nullptr;
}

// Null where the build has no downloads.
std::shared_ptr<hub::PullRunner> open_pulls() {
  if constexpr (is_built(Module::kHub)) return std::make_shared<hub::PullRunner>();
  return nullptr;
}

void look_after(MemoryReserve& reserve, Reloader& reloader) {
  reserve.refill();
  reloader.give_up_late(Clock::now());
}

}  // namespace

EngineOptions engine_options(const ServeOptions& options) {
  EngineOptions engine = options.engine;
  // Also with one key or none: a reload may add others, to which nothing that was computed before belongs.
  engine.kv_cache.isolate_by_key = options.isolation == Isolation::kByKey;
  engine.keeps_slots = !options.server.slots.directory.empty();
  return engine;
}

void check_exposure(const ServerOptions& options) {
  const std::string& host = options.host;
  const bool is_local = host.starts_with("127.") || host == "::1" || host == "localhost";
  const bool asks_certificate =
      !options.tls.client_ca.empty() && options.tls.client_certificate == ClientCertificate::kRequired;
  const SecurityOptions& security = options.security;
  if (is_local || asks_certificate || !security.keys.empty() || security.keyless == Exposure::kAllow) return;
  const std::string what = "every client that reaches " + host + " may use this server: configure security.keys";
  if (security.keyless == Exposure::kRefuse) throw StartupError(what + " (security.keyless is refuse)");
  log::warn("{}, or set security.keyless to allow", what);
}

void check_options(const ServeOptions& options) {
  check_exposure(options.server);
  if constexpr (is_built(Module::kFleet)) check_fleet(options);
}

// Pictures are isolated by key exactly if the prefix cache is.
ServerOptions server_options(const ServeOptions& options) {
  ServerOptions server = options.server;
  server.media.isolates_keys = options.isolation == Isolation::kByKey;
  return server;
}

std::vector<HostedModelSpec> model_specs(const ServeOptions& options) {
  const EngineOptions engine = engine_options(options);
  if (options.models.empty()) return {spec_of_only(options.model, engine)};
  std::vector<HostedModelSpec> specs;
  for (const ModelEntry& entry : options.models)
    specs.push_back(spec_of(entry, engine));
  return specs;
}

int serve(const ServeOptions& options, ConfigSource source) {
  check_options(options);
  prepare_process();
  MemoryReserve reserve;
  const log::Buffered buffered;
  EndWatch watch(&end_overdue);
  warn_of_limits(options);
  make_slot_folder(options.server.slots);
  ServiceNotifier notifier;  // outlives the server, whose threads use it
  Reloader reloader(notifier, std::move(source));
  const std::shared_ptr<hub::PullRunner> pulls = open_pulls();  // outlives the server, whose sessions hold its jobs
  LiveModels models(open_hosts(options.backend, options.shared_store, options.cache_events),
                    [backend = options.backend] { return device_memory(backend); });
  std::size_t num_cut = 0;
  bool reload_ended = true;
  {
    Server server(server_options(options), take_handed_sockets());
    const std::shared_ptr<void> fleet = join_others(options, server.state());
    server.state().admin.reload = [&reloader](Reloader::Done done) { reloader.reload(std::move(done)); };
    connect_models(server.state(), models);
    server.state().admin.pulls = pulls.get();
    server.handle_signals([&reloader] { reloader.reload([](const Result<std::string>&) {}); });
    server.repeat(kLookAfter, [&] { look_after(reserve, reloader); });
    const auto begin_drain = [&] {
      const auto settings = server.state().settings();
      const auto time = settings->options.drain.delay + settings->options.drain.deadline + kTimeToEnd;
      watch.expect_within(time);
      notifier.stopping();
      notifier.extend(time);
      models.abandon_loads();
      if constexpr (is_built(Module::kHub)) pulls->abandon();
      reloader.abandon();
    };
    server.on_drain(begin_drain, [&watch] { watch.expect_within(kTimeToEnd); });
    server.start();
    // Also after an exception: the engines' threads post to the server's loops, so they end first; then the server,
    // whose sessions hold the last references to the models; then the models.
    const std::shared_ptr<void> ended(nullptr, [&](void*) {
      watch.expect_within(kTimeToEnd);
      if constexpr (is_built(Module::kHub)) pulls->stop();
      reload_ended = reloader.stop();
      models.stop();
    });
    try {
      open_doors(server, models, options, notifier);
      reloader.attach(server, models);
      notifier.ready();
      feed_watchdog(server, notifier);
      trim_at_rest(server);
      exit_when_idle(server, options.server.exit_when_idle);
    } catch (const Interrupted&) {
      log::info("interrupted while loading");
    }
    num_cut = server.wait();
  }
  if (num_cut > 0) log::warn("{} requests were cut", num_cut);
  if (!reload_ended) end_at_once("the thread 'reload' hangs in reading a file of the configuration");
  return num_cut > 0 ? kExitCut : kExitDrained;
}

}  // namespace quire
