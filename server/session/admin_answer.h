// AdminAnswer: the answer to an admin's request: its handler runs on the admin thread. It waits for slow operations and
// hands downloads to DownloadAnswer. Connection's thread.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "server/router.h"
#include "server/run/admin_task.h"
#include "server/session/exchange.h"
#include "server/session/request_body.h"

namespace quire {

class AdminAnswer {
 public:
  AdminAnswer(Exchange& exchange, RequestBody& body, AdminHandler handler)
      : exchange_(exchange), body_(body), handler_(handler) {}

  boost::asio::awaitable<bool> give();

 private:
  boost::asio::awaitable<Response> finish(const AdminTask& task);

  Exchange& exchange_;
  RequestBody& body_;
  const AdminHandler handler_;
};

}  // namespace quire
