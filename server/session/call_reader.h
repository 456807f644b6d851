// CallReader: turns an API call into an operation: reserves a place in the model's queue, parses the body on a text
// thread, and waits for a sleeping model, an adapter or pictures. One thread (the connection's). Invariant: a waiting
// call keeps nothing that was parsed from its body, which is parsed again afterwards.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>
#include <stop_token>

#include "server/run/call_parser.h"
#include "server/session/request_account.h"
#include "server/state/callback_wait.h"
#include "server/threads/text_pool.h"
#include "server/wire/transport.h"

namespace quire {

class CallReader {
 public:
  // `outlives_client`: reading continues if the client leaves.
  CallReader(ServerState& state, Transport& transport, RequestAccount& account, bool outlives_client)
      : state_(state), transport_(transport), account_(account), outlives_client_(outlives_client) {}
  CallReader(const CallReader&) = delete;
  CallReader& operator=(const CallReader&) = delete;

  // The error if the queues of all models are full; nullopt if one has room or must be woken first.
  std::optional<Error> full_queues() const;
  using Parsed = Result<std::unique_ptr<Operation>>;
  // nullopt: the client left. `call` must keep its body until this returns.
  boost::asio::awaitable<std::optional<Parsed>> read(Call& call);

 private:
  bool takes_place() const;
  Result<void> reserve_place(const ModelTable& models, const Call& call);
  boost::asio::awaitable<std::optional<Result<ParsedCall>>> read_once(Call& call);
  boost::asio::awaitable<Result<ParsedCall>> read_in(TextLane lane, std::stop_token stop, Call& call);
  boost::asio::awaitable<WaitResult> read_media(const Call& call);
  boost::asio::awaitable<WaitResult> wake(const SleepingModel& asleep, const Call& call, Clock::time_point since);

  ServerState& state_;
  Transport& transport_;
  RequestAccount& account_;
  const bool outlives_client_;
};

}  // namespace quire
