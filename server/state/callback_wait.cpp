#include "server/state/callback_wait.h"

#include "server/state/live_operations.h"
#include "server/wire/mailbox.h"

namespace quire {

namespace asio = boost::asio;

namespace {

Error waited_too_long() {
  return Error{ErrorKind::kUnavailable, "The model did not become ready in time", "server_overloaded", "",
               std::chrono::seconds(5)};
}

}  // namespace

asio::awaitable<WaitResult> wait_for_callback(ServerState& state, Transport& transport, CallbackStart begin,
                                              std::optional<std::chrono::milliseconds> longest) {
  // The mailbox stays empty: the first callback interrupts it.
  const MailboxReader reader(transport.executor());
  const std::shared_ptr<Mailbox>& mailbox = reader.mailbox();
  WaitResult waited;
  asio::steady_timer timer(transport.executor());
  state.live.add(mailbox);
  const std::shared_ptr<void> left(nullptr, [&state, &transport, mailbox](void*) {
    transport.unwatch();
    state.live.remove(mailbox);
  });
  transport.watch([&waited, mailbox] {
    waited.client_gone = true;
    mailbox->interrupt(std::nullopt);
  });
  if (longest) {
    timer.expires_after(*longest);
    timer.async_wait([mailbox](const boost::system::error_code& error) {
      if (!error) mailbox->interrupt(waited_too_long());
    });
  }
  begin([mailbox](std::optional<Error> error) { mailbox->interrupt(std::move(error)); });
  Mailbox::Batch batch = co_await mailbox->take();
  waited.error = std::move(batch.error);
  co_return waited;
}

}  // namespace quire
