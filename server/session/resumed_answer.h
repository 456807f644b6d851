// ResumedAnswer: the rest of a stream for a client that repeats its request with the number of its last event. The
// stream is saved here, or belonged to another daemon that has died: this daemon then generates the same answer again.
// One thread (the connection's).
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <string>

#include "server/ops/shared_streams.h"
#include "server/session/exchange.h"
#include "server/session/request_body.h"

namespace quire {

class ResumedAnswer {
 public:
  ResumedAnswer(Exchange& exchange, RequestBody& body) : exchange_(exchange), body_(body) {}

  boost::asio::awaitable<bool> give();

 private:
  boost::asio::awaitable<bool> refuse();
  boost::asio::awaitable<bool> take_over(std::string body, std::size_t number);
  boost::asio::awaitable<SharedStreams::Taken> take_stream(std::string name);

  Exchange& exchange_;
  RequestBody& body_;
};

}  // namespace quire
