#include "server/session/resumed_answer.h"

#include <boost/asio/steady_timer.hpp>
#include <charconv>

#include "server/ops/stream_store.h"
#include "server/session/call_answer.h"
#include "server/session/saved_answer.h"
#include "server/session/shared_stream.h"
#include "server/state/callback_wait.h"
#include "server/state/settings.h"

namespace quire {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::milliseconds kLookAgain{250};
constexpr std::chrono::milliseconds kLongestAnswer{1'500};  // longest wait for the store's answer

}  // namespace

asio::awaitable<bool> ResumedAnswer::give() {
  auto body = co_await body_.read();
  if (!body) co_return false;
  std::size_t number = 0;
  const std::string_view digits = exchange_.head().field("last-event-id");
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  ServerState& state = exchange_.state();
  auto stream = state.streams.find(exchange_.account().record().key_name, exchange_.request_id(), Clock::now());
  if (!stream && is_number && state.shared_streams.load() != nullptr)
    co_return co_await take_over(std::move(*body), number);
  const bool usable = stream && is_number && !stream->after(number, nullptr).lost;
  if (!usable) co_return co_await refuse();
  SavedAnswer answer(exchange_, std::move(stream), true);
  co_return co_await answer.give_after(number);
}

asio::awaitable<bool> ResumedAnswer::refuse() {
  Response response = no_such_stream();
  co_return co_await exchange_.respond(std::move(response));
}

// A daemon that has just died counts as alive until its lease expires, so this waits for that.
asio::awaitable<SharedStreams::Taken> ResumedAnswer::take_stream(std::string name) {
  const SharedStreams& sharer = *exchange_.state().shared_streams.load();
  Transport& transport = *exchange_.transport();
  const auto until = Clock::now() + sharer.lease + kLookAgain;
  for (;;) {
    const auto answer = std::make_shared<SharedStreams::Taken>();
    const CallbackStart ask = [&](auto done) {
      sharer.take(name, exchange_.options().resume.window, [answer, done](SharedStreams::Taken taken) {
        *answer = std::move(taken);
        done(std::nullopt);
      });
    };
    const WaitResult waited = co_await wait_for_callback(exchange_.state(), transport, ask, kLongestAnswer);
    if (waited.client_gone || waited.error) co_return SharedStreams::Taken{};
    if (!answer->is_elsewhere || Clock::now() >= until) co_return *answer;
    asio::steady_timer timer(transport.executor(), kLookAgain);
    co_await timer.async_wait(kUseTuple);
  }
}

// Generates the answer of a dead daemon again and omits the events that the client has. Quotas and the queue count it
// like any other request.
asio::awaitable<bool> ResumedAnswer::take_over(std::string body, std::size_t number) {
  Call call = exchange_.new_call();
  call.body = std::move(body);
  const std::string name = shared_name(call);
  SharedStreams::Taken taken = co_await take_stream(name);
  if (taken.is_elsewhere) {
    const Error error{ErrorKind::kUnavailable, "Another daemon runs this stream", "stream_elsewhere", "",
                      std::chrono::seconds(1)};
    co_return co_await exchange_.respond(error);
  }
  if (!taken.origin) co_return co_await refuse();
  const SharedStream shared(exchange_.state(), name, *taken.origin, exchange_.options().resume.window);
  exchange_.pass_gate(false);
  auto& refusal = exchange_.account().admission().refusal;
  if (refusal) co_return co_await exchange_.respond(std::move(*refusal));
  ++exchange_.state().num_calls;
  call.created = taken.origin->created;
  call.origin = std::make_shared<const StreamOrigin>(*std::move(taken.origin));
  CallAnswer answer(exchange_, body_);
  const std::optional<std::size_t> num_received(number);
  co_return co_await answer.answer(std::move(call), num_received);
}

}  // namespace quire
