// What an admin can make the server do. AdminTask: something that takes a while: a wait that costs no thread, then the
// rest. AdminActions: set before the first session; any thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "core/base/result.h"

namespace quire {

struct AdminTask {
  std::chrono::milliseconds wait{0};
  // Something that goes on elsewhere: called first, on the session's thread, with what is to be told of its end.
  std::function<void(std::function<void(std::optional<Error>)> told)> until = nullptr;
  std::function<Result<std::string>()> finish;  // the response's body, JSON
};

struct AdminActions {
  std::function<Result<std::string>()> reload;
  std::function<Result<AdminTask>(const std::string& model, std::chrono::seconds)> trace;
};

}  // namespace quire
