// SavedAnswer: sends a saved stream from the event after the client's last one, while it grows, to its end. One thread
// (the connection's). Invariant: with keeps_alive, the run continues as long as the client reads.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <memory>

#include "server/ops/stream_store.h"
#include "server/session/exchange.h"

namespace quire {

class SavedAnswer {
 public:
  // `keeps_alive`: counts as a reader of the run, which ends early without readers.
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

// The refusal where no stream is saved.
Response no_such_stream();

}  // namespace quire
