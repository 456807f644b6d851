// DownloadAnswer: the answer to an admin's download: a stream of its progress, or one response at its end. One thread
// (the connection's). Module: `hub`.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>

#include "server/hub/pull_runner.h"
#include "server/run/admin_task.h"
#include "server/session/exchange.h"
#include "server/state/callback_wait.h"

namespace quire {

class DownloadAnswer {
 public:
  DownloadAnswer(Exchange& exchange, const PullTask& task)
      : exchange_(exchange), task_(task), job_(task.lease->job()) {}

  boost::asio::awaitable<bool> give();

 private:
  boost::asio::awaitable<bool> stream();
  boost::asio::awaitable<WaitResult> wait(std::uint64_t version);
  boost::asio::awaitable<WaitResult> serve(const hub::CachedModel& model);

  Exchange& exchange_;
  const PullTask& task_;
  hub::PullJob& job_;
};

}  // namespace quire
