// SavedAnswer: sends a saved stream from the event after the client's last one, while it grows, to its end. One thread
// (the connection's). Invariant: a stream that it keeps alive runs on as long as its client reads.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <memory>

#include "server/ops/stream_store.h"
#include "server/session/exchange.h"

namespace quire {

class SavedAnswer {
 public:
  // `keeps_alive`: a run without readers ends early.
  SavedAnswer(Exchange& exchange, std::shared_ptr<SavedStream> stream, bool keeps_alive);
  ~SavedAnswer();
  SavedAnswer(const SavedAnswer&) = delete;
  SavedAnswer& operator=(const SavedAnswer&) = delete;

  // `number`: number of the last event that the client has; 0: none.
  boost::asio::awaitable<bool> give_after(std::size_t number);

 private:
  Exchange& exchange_;
  const std::shared_ptr<SavedStream> stream_;
  const bool keeps_alive_;
};

// Refuses to send the rest of a stream that is not kept.
Response no_such_stream();

}  // namespace quire
