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
  std::function<Result<std::string>()> finish;  // the response's body, JSON
};

struct AdminActions {
  std::function<Result<std::string>()> reload;
  std::function<Result<AdminTask>(std::chrono::seconds)> trace;
};

}  // namespace quire
