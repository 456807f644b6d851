// What an operator decides about who may use the server, and how much of it. Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire {

// What one key may use; 0: no bound.
struct KeyQuota {
  std::int64_t requests_per_minute = 0;
  std::int64_t tokens_per_minute = 0;  // prompt and generated tokens together
  std::int64_t max_concurrent = 0;     // requests that run or wait at once
  std::int64_t max_context = 0;        // prompt and generated tokens of one choice
};

// One API key. Exactly one of sha256, env and file says what the key is.
struct ApiKeyOptions {
  std::string name;    // in logs, metrics and scheduler.key_weights
  std::string sha256;  // 64 hexadecimal digits
  std::string env;     // the environment variable that holds it
  std::string file;    // the file that holds it
  bool admin = false;  // opens /admin too
  KeyQuota quota{};
};

enum class PageAccess { kOpen, kKey, kAdmin };

struct SecurityOptions {
  std::vector<ApiKeyOptions> keys;  // none: everybody is served
  PageAccess metrics = PageAccess::kOpen;
};

}  // namespace quire
