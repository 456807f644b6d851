// check_start(): the checks of --check-config that need the machine on which the daemon will run.
#include <system_error>

#include "core/base/files/writing.h"
#include "core/base/log.h"
#include "server/join_fleet.h"
#include "server/model_host.h"
#include "server/models/live_models.h"
#include "server/modules/modules.h"
#include "server/serve.h"
#include "server/state/server_state.h"
#include "server/state/settings.h"
#include "server/wire/listener.h"

namespace quire {

namespace {

void check_addresses(const ServerOptions& options) {
  Listener::check_tcp(options.host, options.port);
  if (!options.unix_socket.empty()) Listener::check_unix_path("server.unix_socket", options.unix_socket);
  if (!options.admin_listen.empty()) Listener::check_at("server.admin_listen", options.admin_listen);
}

void check_folder(const char* setting, const std::filesystem::path& folder) {
  if (folder.empty()) return;
  if (const std::error_code error = try_folder(folder))
    throw StartupError(std::string(setting) + ": '" + folder.string() + "' cannot be used: " + error.message());
}

// Models that are yet to be downloaded cannot be checked; a line says so.
void check_models(const ServeOptions& options) {
  std::vector<HostedModelSpec> specs = model_specs(options);
  for (const HostedModelSpec& spec : specs) {
    if (spec.model.path.empty() && !spec.model.hf.empty())
      log::warn("not checked: {} is still to be downloaded; a start does that", spec.model.hf);
  }
  std::erase_if(specs, [](const HostedModelSpec& spec) { return spec.model.path.empty(); });
  const LiveModels models(open_hosts(options.backend, options.shared_store),
                          [backend = options.backend] { return device_memory(backend); });
  models.check(std::move(specs), engine_options(options));
}

}  // namespace

void check_start(const ServeOptions& options) {
  check_options(options);
  check_folder("server.slots.directory", options.server.slots.directory);
  check_folder("batches.directory", options.server.batches.directory);
  check_folder("kv_cache.disk_tier_path", options.engine.kv_cache.disk_tier_path);
  const Settings settings(options.server);
  if constexpr (is_built(Module::kOtlp)) {
    if (!options.server.tracing.endpoint.empty()) open_collector(options.server.tracing);
  }
  if constexpr (is_built(Module::kFleet)) check_event_endpoints(options.cache_events);
  check_addresses(options.server);
  check_models(options);
}

}  // namespace quire
