// WorkLimit: stops costly work on a request's text early: its time is over, or its result is no longer wanted. It also
// names the client whose share of memory the work uses. Value type; any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "core/base/result.h"

namespace quire {

class WorkLimit {
 public:
  // Error code of work that stopped early.
  static constexpr const char* kCode = "work_interrupted";

  WorkLimit() = default;  // none
  WorkLimit(std::optional<std::chrono::milliseconds> longest, std::stop_token stop, std::string client = {})
      : stop_(std::move(stop)), client_(std::move(client)) {
    if (longest) until_ = std::chrono::steady_clock::now() + *longest;
  }

  // Size of text that can be processed in the time of quick work; larger texts are not begun under a time limit.
  static constexpr std::size_t kQuickBytes = std::size_t{256} << 10;

  bool takes(std::size_t num_bytes) const { return !reached() && (!until_ || num_bytes <= kQuickBytes); }
  bool reached() const { return stop_.stop_requested() || (until_ && std::chrono::steady_clock::now() >= *until_); }
  const std::string& client() const { return client_; }

 private:
  std::optional<std::chrono::steady_clock::time_point> until_;
  std::stop_token stop_;
  std::string client_;
};

inline tl::unexpected<Error> interrupted() {
  return failure(ErrorKind::kUnavailable, "The work on the request was interrupted.", WorkLimit::kCode);
}

}  // namespace quire
