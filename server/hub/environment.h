// HubEnvironment: the settings of a model hub from the environment variables of Hugging Face's own programs:
// HF_ENDPOINT, HF_HUB_CACHE, HF_HOME, HF_TOKEN, HF_TOKEN_PATH, HF_HUB_OFFLINE. Value type; any thread.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/result.h"
#include "server/client/http_url.h"

namespace quire::hub {

struct HubEnvironment {
  HttpUrl endpoint;
  std::string endpoint_text;    // the given text without a trailing slash
  std::filesystem::path cache;  // the folder with models--OWNER--NAME
  std::string token;            // empty: none
  bool offline = false;         // the hub is never asked
};

// The error names the variable that has an unusable value.
Result<HubEnvironment> find_environment();
// Calls find_environment() and throws StartupError on an error.
HubEnvironment read_environment();

}  // namespace quire::hub
