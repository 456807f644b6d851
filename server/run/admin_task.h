// AdminTask: the rest of an admin's request after its handler: a wait that blocks no thread, then the function that
// makes the response. PullTask: a download whose progress is the response. Values; the connection's thread.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/result.h"

namespace quire {

namespace hub {
class PullLease;
}

struct PullTask {
  enum class Form { kWhole, kEvents, kLines };  // a final object, server-sent events, or Ollama's lines
  std::shared_ptr<hub::PullLease> lease;
  Form form = Form::kWhole;
  bool is_ollama = false;
  std::string served_name{};  // model name for the download; empty: it is not served
  // Adds the downloaded files to the served models; set with served_name.
  std::function<void(const std::filesystem::path& path, std::function<void(std::optional<Error>)> done)> serve{};
};

struct AdminTask {
  std::chrono::milliseconds wait{0};
  // Starts a slow operation, which calls back at its end. Called on the session's thread, before `finish`.
  std::function<void(std::function<void(std::optional<Error>)> done)> until = nullptr;
  std::function<Result<std::string>()> finish = nullptr;  // the response's body
  int status = 200;
  const char* content_type = "application/json";
  std::optional<PullTask> pull = std::nullopt;  // if set, it makes the response instead
};

}  // namespace quire
