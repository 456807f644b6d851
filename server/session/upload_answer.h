// UploadAnswer: the answer to a form with a file, which is stored as it arrives. The batch thread stores it; the rest
// runs on the connection's thread. Module: `batches`.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "server/session/exchange.h"
#include "server/session/request_body.h"

namespace quire {

class UploadAnswer {
 public:
  UploadAnswer(Exchange& exchange, RequestBody& body) : exchange_(exchange), body_(body) {}

  boost::asio::awaitable<bool> give();

 private:
  Exchange& exchange_;
  RequestBody& body_;
};

}  // namespace quire
