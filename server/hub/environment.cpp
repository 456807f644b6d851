#include "server/hub/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>

#include "core/base/files/regular_file.h"

namespace quire::hub {

namespace {

constexpr const char* kDefaultEndpoint = "https://huggingface.co";
constexpr std::size_t kLongestToken = 4096;
constexpr std::size_t kMostTokenFile = std::size_t{1} << 20;

// Empty if the variable is not set.
std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool is_true(std::string value) {
  std::transform(value.begin(), value.end(), value.begin(),
                 [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

std::filesystem::path with_home(const std::string& text) {
  if (text != "~" && !text.starts_with("~/")) return text;
  return variable("HOME") + text.substr(1);
}

std::filesystem::path hub_home() {
  if (const std::string home = variable("HF_HOME"); !home.empty()) return with_home(home);
  const std::string cache = variable("XDG_CACHE_HOME");
  if (!cache.empty()) return std::filesystem::path(cache) / "huggingface";
  const std::string home = variable("HOME");
  return home.empty() ? std::filesystem::path() : std::filesystem::path(home) / ".cache" / "huggingface";
}

std::filesystem::path hub_cache() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string cache = variable(name); !cache.empty()) return with_home(cache);
  }
  const auto home = hub_home();
  return home.empty() ? home : home / "hub";
}

std::string without_space(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

std::string saved_token() {
  const std::string path = variable("HF_TOKEN_PATH");
  return read_regular_file(path.empty() ? hub_home() / "token" : with_home(path), kMostTokenFile).value_or("");
}

std::string hub_token() {
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (std::string token = without_space(variable(name)); !token.empty()) return token;
  }
  if (is_true(variable("HF_HUB_DISABLE_IMPLICIT_TOKEN"))) return {};
  return without_space(saved_token());
}

tl::unexpected<Error> unusable(std::string what) {
  return failure(ErrorKind::kInternal, std::move(what), "hub_environment");
}

}  // namespace

Result<HubEnvironment> find_environment() {
  HubEnvironment environment;
  environment.endpoint_text = variable("HF_ENDPOINT");
  if (environment.endpoint_text.empty()) environment.endpoint_text = kDefaultEndpoint;
  while (environment.endpoint_text.ends_with('/'))
    environment.endpoint_text.pop_back();
  const auto endpoint = parse_http_url(environment.endpoint_text);
  if (!endpoint || endpoint->path.find('?') != std::string::npos) {
    return unusable(fmt::format("HF_ENDPOINT must be http[s]://HOST[:PORT][/PATH], such as {}", kDefaultEndpoint));
  }
  environment.endpoint = *endpoint;
  environment.cache = hub_cache();
  if (environment.cache.empty()) {
    return unusable("there is no folder for models: set HF_HUB_CACHE to one, or HOME");
  }
  environment.cache = std::filesystem::absolute(environment.cache);
  environment.token = hub_token();
  const bool is_usable =
      environment.token.size() <= kLongestToken &&
      std::all_of(environment.token.begin(), environment.token.end(), [](char c) { return c > 0x20 && c < 0x7f; });
  if (!is_usable) return unusable("the token of HF_TOKEN, or of its file, must be one word of printable characters");
  environment.offline = is_true(variable("HF_HUB_OFFLINE"));
  return environment;
}

HubEnvironment read_environment() {
  auto environment = find_environment();
  if (!environment) throw StartupError(environment.error().message);
  return *std::move(environment);
}

}  // namespace quire::hub
