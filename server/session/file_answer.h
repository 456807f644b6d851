// FileAnswer: the answer to a call about stored files and batches: JSON, or a file's content, sent as it is read. Only
// the batch thread touches files; the rest runs on the connection's thread. Module: `batches`.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>

#include "server/router.h"
#include "server/session/exchange.h"
#include "server/session/request_body.h"

namespace quire {

struct StoredAnswer;
class BatchService;

class FileAnswer {
 public:
  FileAnswer(Exchange& exchange, RequestBody& body, StoredEndpoint endpoint)
      : exchange_(exchange), body_(body), endpoint_(endpoint) {}

  boost::asio::awaitable<bool> give();

 private:
  boost::asio::awaitable<bool> send_content(StoredAnswer answer);

  Exchange& exchange_;
  RequestBody& body_;
  const StoredEndpoint endpoint_;
};

// Errors: no directory is configured; another process has locked it.
Error batches_are_off();
Error batches_elsewhere();
// A function that runs jobs on the batch thread.
std::function<void(std::function<void()>)> batch_thread(BatchService& batches);

}  // namespace quire
