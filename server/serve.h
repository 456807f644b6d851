// serve(): runs the daemon, from its options to its exit code. One thread at a time (main).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/engine/engine.h"
#include "kernels/registry.h"
#include "server/fleet/fleet_options.h"
#include "server/models/model_spec.h"
#include "server/state/server_options.h"

namespace quire {

// Whether cached blocks are shared between API keys.
enum class Isolation { kByKey, kNone };

struct ServeOptions {
  ModelOptions model;  // the one model, or none where `models` has some
  std::vector<ModelEntry> models;
  ServerOptions server;
  EngineOptions engine;
  BackendOptions backend;
  RedisStoreOptions shared_store;
  CacheEventOptions cache_events;
  SharedQuotaOptions shared_quotas;
  Isolation isolation = Isolation::kByKey;
};

// The engines' options as they result from all of it.
EngineOptions engine_options(const ServeOptions& options);
// Warns, or throws StartupError, where every client in the network may use the server.
void check_exposure(const ServerOptions& options);

// Throws StartupError for options that are wrong on any machine.
void check_options(const ServeOptions& options);

// All models to serve; entries without a value of their own have the general sections' values.
std::vector<HostedModelSpec> model_specs(const ServeOptions& options);

// Exit codes: all requests were finished; the drain's deadline or a second signal cut some; a thread did not end in
// time, or a model's file was truncated while in use (the last line of the log says which).
inline constexpr int kExitDrained = 0;
inline constexpr int kExitCut = 3;
inline constexpr int kExitFailed = 4;

// A setting that a new configuration would change, as YAML.
struct ConfigChange {
  std::string key;
  std::string before;
  std::string after;
  bool needs_restart = false;
};

// A configuration that was read again. accept() makes it the one that the next is compared with.
struct ConfigProposal {
  ServeOptions options;
  LogOptions log;
  std::vector<ConfigChange> changes;
  std::function<void()> accept;
};

// Reads the configuration again. Throws StartupError.
using ConfigSource = std::function<ConfigProposal()>;

// Throws StartupError for errors that serve() would find before it loads weights, on this machine in its present state.
// It listens nowhere and leaves nothing behind. An address in use is accepted: a daemon that will be reloaded may have
// it.
void check_start(const ServeOptions& options);

// Listens at once, loads the models, serves until a signal ends it, drains; SIGHUP and POST /admin/reload read the
// configuration again. Throws StartupError where it cannot start.
int serve(const ServeOptions& options, ConfigSource source);

}  // namespace quire
