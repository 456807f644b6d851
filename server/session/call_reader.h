// CallReader: makes an operation of an API call: its place in the model's queue, its body parsed on a text thread, the
// waits for a model that sleeps, for an adapter and for pictures. One thread (the connection's). Invariant: a call that
// waits has built nothing from its body; it is read again afterwards.
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
  // `outlives_client`: the call is read to its end although the client leaves.
  CallReader(ServerState& state, Transport& transport, RequestAccount& account, bool outlives_client)
      : state_(state), transport_(transport), account_(account), outlives_client_(outlives_client) {}
  CallReader(const CallReader&) = delete;
  CallReader& operator=(const CallReader&) = delete;

  // The refusal that every model would give; nothing if a model may take the request, or has to be woken.
  std::optional<Error> full_queues() const;
  using Parsed = Result<std::unique_ptr<Operation>>;
  // nullopt: the client left. The call's body is needed until the end.
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
