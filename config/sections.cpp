#include "config/keys.h"

#include <algorithm>

namespace quire {

const std::vector<ConfigSection>& config_sections() {
  static const std::vector<ConfigSection> kSections = {
      {"model", "The model that is served."},
      {"server", "The HTTP server."},
      {"server.tls", "TLS 1.2 and later, on the TCP listeners other than the admin's."},
      {"server.timeout", "Limits of the time that the server waits for a client."},
      {"server.responses", "Stored results of /v1/responses, and of chats with 'store'."},
      {"server.slots", "Saved conversations, as llama-server's slots."},
      {"server.resume", "Streams that a client can continue after its connection was lost."},
      {"server.pull",
       "Downloads of models that an admin asks for; the hub and its cache are the environment's (HF_*)."},
      {"batches", "Files and batches, whose requests use what all others leave of the machine."},
      {"security", "API keys, quotas and browser access."},
      {"shared_quotas", "A store that several daemons share the rates of keys through."},
      {"scheduler", "The composition of the engine's steps."},
      {"speculation", "Drafted tokens that the model verifies, several in a step."},
      {"kv_cache", "The KV cache: memory for keys and values."},
      {"kv_cache.shared", "A store that several daemons share KV blocks through."},
      {"kv_cache.events", "What changes in the prefix cache, published for routers."},
      {"engine", "The engine loop."},
      {"queue", "Limits of the waiting queue; a request that would exceed one is refused immediately."},
      {"backend", "The hardware."},
      {"backend.cuda", "Compute on a GPU."},
      {"backend.cpu", "Compute on the processor."},
      {"drain", "Shutdown after SIGTERM or SIGINT."},
      {"log", "The log on standard error."},
      {"tracing", "Export of spans to a distributed trace."},
  };
  return kSections;
}

const ConfigKey* find_config_key(std::string_view path) {
  const std::vector<ConfigKey>& keys = config_keys();
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& key) { return key.path == path; });
  return found == keys.end() ? nullptr : &*found;
}

}  // namespace quire
