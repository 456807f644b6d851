#include "server/reload.h"

#include <fmt/format.h>
#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "server/api/common/errors.h"
#include "server/api/common/json.h"
#include "server/state/settings.h"

namespace quire {

namespace {

using Steady = std::chrono::steady_clock;

constexpr std::chrono::seconds kLongestRead{10};
// Time for the thread to end; then it is detached.
constexpr std::chrono::seconds kLongestEnd{2};
constexpr std::size_t kMostWaiting = 16;

Error bad_configuration(const std::string& message) {
  return Error{ErrorKind::kInvalidRequest, message, "invalid_configuration", "", std::nullopt};
}

Error unanswered() {
  return Error{ErrorKind::kTimeout,
               fmt::format("the files of the configuration were not read within {} s: look for a mount that does not "
                           "answer, then reload again",
                           kLongestRead.count()),
               "configuration_timeout", "", std::nullopt};
}

std::string names_of_fixed(const std::vector<ConfigChange>& changes) {
  std::string names;
  for (const ConfigChange& change : changes) {
    if (change.needs_restart) names += (names.empty() ? "" : ", ") + change.key;
  }
  return names;
}

bool asks_certificate(const TlsOptions& tls) {
  return !tls.client_ca.empty() && tls.client_certificate == ClientCertificate::kRequired;
}

// Everything that a reload reads, checked, while nothing is changed yet.
struct Reading {
  ConfigProposal next;
  std::shared_ptr<const Settings> settings;
  std::vector<HostedModelSpec> models;
};

Result<Reading> read(const ConfigSource& source) {
  try {
    Reading reading{source(), nullptr, {}};
    const std::string fixed = names_of_fixed(reading.next.changes);
    if (!fixed.empty()) return tl::make_unexpected(bad_configuration("a restart is needed to change " + fixed));
    reading.settings = std::make_shared<const Settings>(reading.next.options.server);
    reading.models = model_specs(reading.next.options);
    for (HostedModelSpec& model : reading.models)
      read_template(model);
    return reading;
  } catch (const std::exception& error) {
    return tl::make_unexpected(bad_configuration(error.what()));
  }
}

}  // namespace

void check_not_weaker(const ServerOptions& before, const ServerOptions& after) {
  if (!before.tls.certificate.empty() && after.tls.certificate.empty())
    throw StartupError("server.tls.certificate is not set any more: a restart is needed to serve without TLS");
  if (after.security.keyless == Exposure::kAllow) return;
  constexpr const char* kAdvice = "; if that is meant, set security.keyless to allow";
  if (!before.security.keys.empty() && after.security.keys.empty() && !asks_certificate(after.tls))
    throw StartupError(fmt::format("security.keys would be empty, and every client could use this server{}", kAdvice));
  if (asks_certificate(before.tls) && !asks_certificate(after.tls) && after.security.keys.empty())
    throw StartupError(
        fmt::format("clients would need neither a certificate (server.tls.client_ca) nor a key{}", kAdvice));
}

struct Reloader::State {
  State(ServiceNotifier& to, ConfigSource from) : notifier(to), source(std::move(from)) {}

  void run();
  // Ends the reload under way and returns its callback, to be called without the lock. Requires the lock.
  Done end(const Result<std::string>& outcome);
  Result<std::string> apply(const Reading& reading);

  ServiceNotifier& notifier;
  const ConfigSource source;
  std::mutex mutex;
  std::condition_variable changed;
  Server* server = nullptr;  // null: still loading
  LiveModels* models = nullptr;
  std::deque<Done> waiting;
  Done running;             // callback of the current reload; null: none, or given up
  bool is_reading = false;  // the thread reads files, even for a reload given up
  bool is_applying = false;
  Steady::time_point began{};
  bool stopping = false;
  bool ended = false;
};

Reloader::Done Reloader::State::end(const Result<std::string>& outcome) {
  notifier.ready();
  ReloadCounts& counts = server->state().reloads;
  ++counts.num_all;
  if (!outcome) ++counts.num_failed;
  counts.last_failed = !outcome;
  if (!outcome) log::error("reload refused, nothing was changed: {}", outcome.error().message);
  return std::exchange(running, nullptr);
}

void Reloader::State::run() {
  pthread_setname_np(pthread_self(), "reload");
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return stopping || !waiting.empty(); });
    if (stopping) break;
    running = std::move(waiting.front());
    waiting.pop_front();
    is_reading = true;
    began = Steady::now();
    notifier.reloading();
    lock.unlock();
    Result<Reading> reading = read(source);
    lock.lock();
    is_reading = false;
    if (running == nullptr) continue;  // the reload was given up
    is_applying = true;
    lock.unlock();
    const Result<std::string> outcome =
        reading ? apply(*reading) : Result<std::string>(tl::make_unexpected(reading.error()));
    lock.lock();
    is_applying = false;
    const Done done = end(outcome);
    changed.notify_all();
    lock.unlock();
    done(outcome);
    lock.lock();
  }
  ended = true;
  changed.notify_all();
}

Result<std::string> Reloader::State::apply(const Reading& reading) {
  try {
    const ConfigProposal& next = reading.next;
    // Everything that can fail runs before anything is changed.
    check_not_weaker(server->state().settings()->options, next.options.server);
    check_exposure(next.options.server);
    models->reconfigure(reading.models, engine_options(next.options));
    server->state().set_settings(reading.settings);
    log::set_level(next.log.level);
    Json names = Json::array();
    for (const ConfigChange& change : next.changes) {
      log::info("reload: {} is {} now, was {}", change.key, change.after, change.before);
      names.push_back(change.key);
    }
    log::info("reloaded: {} settings changed; keys, certificates and templates were read again", next.changes.size());
    next.accept();
    return dump_json(Json{{"status", "reloaded"}, {"changed", std::move(names)}});
  } catch (const std::exception& error) {
    return tl::make_unexpected(bad_configuration(error.what()));
  }
}

Reloader::Reloader(ServiceNotifier& notifier, ConfigSource source)
    : state_(std::make_shared<State>(notifier, std::move(source))), thread_([state = state_] { state->run(); }) {}

void Reloader::attach(Server& server, LiveModels& models) {
  const std::lock_guard lock(state_->mutex);
  state_->server = &server;
  state_->models = &models;
}

void Reloader::reload(Done done) {
  bool is_attached = false;
  {
    const std::lock_guard lock(state_->mutex);
    const bool hangs = state_->is_reading && state_->running == nullptr;
    is_attached = state_->models != nullptr && state_->source && !state_->stopping;
    if (is_attached && !hangs && state_->waiting.size() < kMostWaiting) {
      state_->waiting.push_back(std::move(done));
      state_->changed.notify_all();
      return;
    }
  }
  if (!is_attached) return done(tl::make_unexpected(still_starting()));
  log::error("reload refused, nothing was changed: an earlier one still waits for its files");
  done(tl::make_unexpected(unanswered()));
}

void Reloader::give_up_late(Steady::time_point now) {
  std::deque<Done> refused;
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->is_reading || state_->running == nullptr || now - state_->began < kLongestRead) return;
    refused.swap(state_->waiting);
    refused.push_front(state_->end(tl::make_unexpected(unanswered())));
  }
  for (const Done& done : refused)
    done(tl::make_unexpected(unanswered()));
}

void Reloader::abandon() {
  std::deque<Done> refused;
  {
    const std::lock_guard lock(state_->mutex);
    refused.swap(state_->waiting);
    if (state_->running != nullptr && !state_->is_applying) refused.push_front(std::exchange(state_->running, nullptr));
  }
  for (const Done& done : refused)
    done(tl::make_unexpected(shutting_down()));
}

bool Reloader::stop() {
  if (!thread_.joinable()) return true;
  abandon();
  {
    std::unique_lock lock(state_->mutex);
    state_->stopping = true;
    state_->changed.notify_all();
    state_->changed.wait(lock, [this] { return !state_->is_applying; });
    const bool in_time = state_->changed.wait_for(lock, kLongestEnd, [this] { return state_->ended; });
    if (!in_time) {
      thread_.detach();
      return false;
    }
  }
  thread_.join();
  return true;
}

}  // namespace quire
