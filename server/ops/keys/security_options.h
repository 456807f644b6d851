// The security settings: API keys, their quotas, allowed hosts, access to metrics. Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire {

// Quotas of one key; 0: no limit.
struct KeyQuota {
  std::int64_t requests_per_minute = 0;
  std::int64_t tokens_per_minute = 0;  // prompt and generated tokens together
  std::int64_t max_concurrent = 0;     // requests that run or wait at once
  std::int64_t max_context = 0;        // prompt and generated tokens of one choice
};

// An API key. Exactly one of sha256, env and file says what the key is.
struct ApiKeyOptions {
  std::string name;           // in logs, metrics and scheduler.key_weights
  std::string sha256;         // 64 hexadecimal digits
  std::string env;            // the environment variable that holds it
  std::string file;           // the file that holds it
  bool admin = false;         // opens /admin too
  std::int32_t priority = 0;  // the highest priority (lowest number) its requests may use
  KeyQuota quota{};
};

enum class PageAccess { kOpen, kKey, kAdmin };

// Behavior of a server without keys that listens beyond its own machine.
enum class Exposure { kWarn, kRefuse, kAllow };

struct SecurityOptions {
  std::vector<ApiKeyOptions> keys;  // empty: every client is served
  PageAccess metrics = PageAccess::kOpen;
  std::vector<std::string> allowed_hosts;     // Host names beside its own that a server without keys answers to
  std::int64_t max_failures_per_minute = 60;  // requests without a valid key, from one address; 0: no bound
  Exposure keyless = Exposure::kWarn;
};

}  // namespace quire
