// serve(): the daemon's life from its options to its exit code. One thread at a time (main).
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/engine/engine.h"
#include "kernels/registry.h"
#include "server/http/server_options.h"

namespace quire {

struct ModelOptions {
  std::filesystem::path path;           // a GGUF file or a Hugging Face directory
  std::vector<std::string> alias;       // names it answers to; the first is its own. None: the file's name
  std::filesystem::path chat_template;  // a Jinja file instead of the model's own template; empty: the model's
  std::string tool_format;              // how tool calls are written ("hermes", ...); empty: as the chat template says
  std::filesystem::path packed_cache;   // folder of weights packed by an earlier start; empty: none is kept
};

struct ServeOptions {
  ModelOptions model;
  ServerOptions server;
  EngineOptions engine;
  BackendOptions backend;
};

// Everything served was finished; the drain's deadline or a second signal cut some of it.
inline constexpr int kExitDrained = 0;
inline constexpr int kExitCut = 3;

// One setting that a new configuration would change, as YAML.
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

// Listens at once, loads the model, serves until a signal ends it, drains; SIGHUP and POST /admin/reload read the
// configuration again. Throws StartupError where it cannot start.
int serve(const ServeOptions& options, ConfigSource source);

}  // namespace quire
