// Session: a stream kept for its client, sent again from the event after the last received one.
#include <boost/asio/steady_timer.hpp>
#include <charconv>
#include <ctime>
#include <random>

#include "core/base/log.h"
#include "core/base/printable.h"
#include "server/api/common/sha256.h"
#include "server/session/session.h"
#include "server/wire/listener.h"

// GCC 12 takes an inlined coroutine's frame, which Asio allocates and frees itself, for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace quire {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::milliseconds kLookAgain{250};
constexpr std::chrono::milliseconds kLongestAnswer{1'500};  // longest wait for the store's answer

}  // namespace

// A client that names its request may return for its stream.
bool Session::keeps_stream() const {
  return options().resume.window.count() > 0 && request_id_ == head_.field("x-request-id");
}

// Detects a repeated request from a client that has part of its answer.
bool Session::resumes() const {
  return keeps_stream() && head_.method == "POST" && !head_.field("last-event-id").empty();
}

asio::awaitable<bool> Session::resume_stream() {
  auto body = co_await read_body();
  if (!body) co_return false;
  std::size_t number = 0;
  const std::string_view digits = head_.field("last-event-id");
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  auto stream = state_.streams.find(record_.key_name, request_id_, Clock::now());
  if (!stream && is_number && state_.shared_streams.load() != nullptr)
    co_return co_await resume_elsewhere(std::move(*body), number);
  const bool usable = stream && is_number && !stream->after(number, nullptr).lost;
  if (!usable) co_return co_await refuse_to_resume();
  stream->add_reader();
  const std::shared_ptr<void> reader(nullptr, [stream](void*) { stream->remove_reader(); });
  co_return co_await read_saved(stream, number);
}

asio::awaitable<bool> Session::refuse_to_resume() {
  Response response = error_response(
      404, "stream_not_found",
      "No stream of this request id can be resumed after this event: send the request without Last-Event-ID");
  co_return co_await respond(std::move(response));
}

// A stream's name: equal on every daemon for the same request of the same key, and for no other.
std::string Session::stream_name(const Call& call) const {
  std::string text;
  for (const std::string* part : {&call.key_name, &call.path, &call.query, &request_id_, &call.body})
    text += std::to_string(part->size()) + ':' + *part;
  return hex_digits(sha256(text));
}

// If memory runs out, the store forgets the stream when its lease ends.
void Session::end_shared(const std::string& name) noexcept {
  try {
    if (const SharedStreams* const sharer = state_.shared_streams.load()) sharer->end(name);
  } catch (const std::exception& failure) {
    log::error("request {}: {}", request_id_, failure.what());
  }
}

// Null: other daemons cannot continue the stream.
std::shared_ptr<const StreamOrigin> Session::new_origin() const {
  if (state_.shared_streams.load() == nullptr || !keeps_stream()) return nullptr;
  std::random_device device;
  return std::make_shared<const StreamOrigin>(StreamOrigin{.seed = (std::uint64_t{device()} << 32) | device(),
                                                           .created = static_cast<std::int64_t>(std::time(nullptr)),
                                                           .id_tail = make_id(""),
                                                           .fingerprint = ""});
}

// A daemon that has just died counts as alive until its lease ends, so this waits for that.
asio::awaitable<SharedStreams::Taken> Session::take_stream(std::string name) {
  const SharedStreams& sharer = *state_.shared_streams.load();
  const auto until = Clock::now() + sharer.lease + kLookAgain;
  for (;;) {
    const auto answer = std::make_shared<SharedStreams::Taken>();
    const std::function<void(std::function<void(std::optional<Error>)>)> ask = [&](auto done) {
      sharer.take(name, options().resume.window, [answer, done](SharedStreams::Taken taken) {
        *answer = std::move(taken);
        done(std::nullopt);
      });
    };
    const WaitResult waited = co_await wait_for_callback(state_, *transport_, ask, kLongestAnswer);
    if (waited.client_gone || waited.error) co_return SharedStreams::Taken{};
    if (!answer->is_elsewhere || Clock::now() >= until) co_return *answer;
    asio::steady_timer timer(transport_->executor(), kLookAgain);
    co_await timer.async_wait(kUseTuple);
  }
}

// The stream's daemon has died: this one makes the same answer and omits the events that the client has. It counts like
// any other request, for quotas and the queue too.
asio::awaitable<bool> Session::resume_elsewhere(std::string body, std::size_t number) {
  Call call = call_of_head();
  call.body = std::move(body);
  const std::string name = stream_name(call);
  SharedStreams::Taken taken = co_await take_stream(name);
  if (taken.is_elsewhere) {
    Error error{ErrorKind::kUnavailable, "Another daemon runs this stream", "stream_elsewhere", "",
                std::chrono::seconds(1)};
    Response response = error_response(error);
    co_return co_await respond(std::move(response));
  }
  if (!taken.origin) co_return co_await refuse_to_resume();
  state_.shared_streams.load()->begin(name, *taken.origin, options().resume.window);
  const std::shared_ptr<void> ended(nullptr, [this, name](void*) { end_shared(name); });
  const Arrival arrival{is_admin_, transport_->peer() == kLocalPeer, transport_->peer(), false};
  admission_ = pass_gate(state_, *settings_, head_, arrival);
  if (admission_.refusal) co_return co_await respond(std::move(*admission_.refusal));
  ++state_.num_calls;
  call.created = taken.origin->created;
  call.origin = std::make_shared<const StreamOrigin>(*std::move(taken.origin));
  resume_after_ = number;
  co_return co_await answer_call(std::move(call));
}

asio::awaitable<bool> Session::read_saved(std::shared_ptr<SavedStream> stream, std::size_t number) {
  count(200);
  const auto wakeup = std::make_shared<Wakeup>(transport_->executor());
  const std::shared_ptr<void> closed(nullptr, [wakeup](void*) { wakeup->close(); });
  bool gone = false;
  transport_->watch([&gone, wakeup] {
    gone = true;
    wakeup->signal();
  });
  const std::shared_ptr<void> unwatched(nullptr, [this](void*) { transport_->unwatch(); });
  const auto wake = [wakeup] { wakeup->signal(); };
  std::string frame = stream_head(kEventStream, framing());
  while (!gone) {
    const SavedStream::Rest rest = stream->after(number, wake);
    if (rest.lost) break;
    if (!rest.events.empty()) append_stream_part(frame, rest.events, framing());
    number = rest.last;
    const bool over = rest.finished;
    if (over && head_.minor_version == 1) frame += "0\r\n\r\n";
    bool sent = true;
    if (!frame.empty()) sent = co_await transport_->write(frame, options().timeout.write);
    if (!sent) break;
    frame.clear();
    if (over) co_return keep_alive_&& head_.minor_version == 1;
    if (rest.events.empty()) co_await wakeup->wait();
  }
  co_return false;
}

}  // namespace quire
