// WorkLimit: when costly work on a request's text stops before its end: its time is over, or it is not wanted any more;
// and the client whose share of memory it uses. Value type; any thread.
#pragma once

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

namespace quire {

class WorkLimit {
 public:
  // The code of the error of work that stopped early.
  static constexpr const char* kCode = "work_interrupted";

  WorkLimit() = default;  // none
  WorkLimit(std::optional<std::chrono::milliseconds> longest, std::stop_token stop, std::string client = {})
      : stop_(std::move(stop)), client_(std::move(client)) {
    if (longest) until_ = std::chrono::steady_clock::now() + *longest;
  }

  bool reached() const { return stop_.stop_requested() || (until_ && std::chrono::steady_clock::now() >= *until_); }
  const std::string& client() const { return client_; }

 private:
  std::optional<std::chrono::steady_clock::time_point> until_;
  std::stop_token stop_;
  std::string client_;
};

}  // namespace quire
