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
  std::string endpoint_text;    // as it was given, without a slash at its end
  std::filesystem::path cache;  // the folder with models--OWNER--NAME
  std::string token;            // empty: none
  bool offline = false;         // the hub is never asked
};

// The error names a variable with an impossible value.
Result<HubEnvironment> find_environment();
// The same; throws StartupError.
HubEnvironment read_environment();

}  // namespace quire::hub
