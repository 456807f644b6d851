// CallAnswer: the answer to an API call: its body is read, its operation runs in the engine and writes a whole response
// or a stream. An operation may also run in the background, or replay a saved stream. One thread (the connection's).
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <memory>
#include <optional>

#include "server/api/common/operation.h"
#include "server/session/call_reader.h"
#include "server/session/exchange.h"
#include "server/session/request_body.h"

namespace quire {

class CallAnswer {
 public:
  CallAnswer(Exchange& exchange, RequestBody& body)
      : exchange_(exchange),
        body_(body),
        reader_(exchange.state(), *exchange.transport(), exchange.account(), exchange.keeps_stream()) {}

  boost::asio::awaitable<bool> give();
  // Gives the answer of a call whose body was read. `num_received`: number of events that another daemon has already
  // sent; nullopt: the call is new.
  boost::asio::awaitable<bool> answer(Call call, std::optional<std::size_t> num_received);

 private:
  boost::asio::awaitable<bool> drive(std::unique_ptr<Operation> operation, const Call& call,
                                     std::optional<std::size_t> num_received);
  boost::asio::awaitable<bool> leave_running(std::unique_ptr<Operation> operation, Clock::time_point arrival);
  boost::asio::awaitable<bool> replay(Operation::Replay replay);

  Exchange& exchange_;
  RequestBody& body_;
  CallReader reader_;
};

}  // namespace quire
