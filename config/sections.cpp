#include "config/keys.h"

#include <algorithm>
#include <iterator>

namespace quire {

const std::vector<ConfigSection>& config_sections() {
  static const std::vector<ConfigSection> kSections = {
      {"model", "The model that is served."},
      {"server", "The HTTP server."},
      {"server.tls", "TLS 1.2 and later, on all TCP listeners except the admin listener."},
      {"server.timeout", "How long the server waits for a client."},
      {"server.responses", "Stored results of /v1/responses, and of chats with 'store'."},
      {"server.slots", "Saved conversations, like llama-server's slots."},
      {"server.resume", "Streams that a client can resume after a lost connection."},
      {"server.pull",
       "Model downloads requested by an admin; HF_* environment variables configure the hub and its cache."},
      {"media", "Images in requests."},
      {"media.pdf", "PDF files in requests."},
      {"batches", "Files and batches; batch requests use the capacity that other requests leave idle."},
      {"security", "API keys, quotas and browser access."},
      {"shared_quotas", "A store through which daemons share the rate limits of API keys."},
      {"scheduler", "How requests are scheduled and batched into engine steps."},
      {"speculation", "Speculative decoding: the model verifies several draft tokens in one step."},
      {"kv_cache", "The KV cache: memory for keys and values."},
      {"kv_cache.shared", "A store through which daemons share KV blocks."},
      {"kv_cache.events", "Changes to the prefix cache, published for routers."},
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

namespace {

struct KeyModule {
  std::string_view path;  // a name that ends in a dot stands for its whole section
  Module module;
};

// The other keys are in every build.
constexpr KeyModule kKeyModules[] = {
    {"model.hf", Module::kHub},
    {"server.pull.", Module::kHub},
    {"model.mmproj", Module::kImages},
    {"model.uses_mmproj", Module::kImages},
    {"model.image_preprocessing", Module::kImages},
    {"media.", Module::kImages},
    {"batches.", Module::kBatches},
    {"kv_cache.shared.", Module::kFleet},
    {"kv_cache.events.", Module::kFleet},
    {"shared_quotas.", Module::kFleet},
    {"tracing.", Module::kOtlp},
};

const ConfigKey* find_among(const std::vector<ConfigKey>& keys, std::string_view path) {
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& key) { return key.path == path; });
  return found == keys.end() ? nullptr : &*found;
}

}  // namespace

bool covers_key(std::string_view name, std::string_view path) {
  return name.back() == '.' ? path.starts_with(name) : path == name;
}

Module module_of_key(std::string_view path) {
  const auto found =
      std::ranges::find_if(kKeyModules, [&](const KeyModule& each) { return covers_key(each.path, path); });
  return found == std::end(kKeyModules) ? Module::kCore : found->module;
}

const ConfigKey* find_config_key(std::string_view path) {
  return find_among(config_keys(), path);
}

const ConfigKey* find_left_out_config_key(std::string_view path) {
  return find_among(left_out_config_keys(), path);
}

}  // namespace quire
