// Session: a stream that is kept for its client, and sent again from the event after the last one that arrived.
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <charconv>

#include "server/http/session.h"

// GCC 12 takes an inlined coroutine's frame, which Asio allocates and frees itself, for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace quire {

namespace asio = boost::asio;

// A client that names its request may come back for its stream.
bool Session::keeps_stream() const {
  return options().resume.window.count() > 0 && request_id_ == head_.field("x-request-id");
}

// The same request once more, by a client that has a part of its answer.
bool Session::resumes() const {
  return keeps_stream() && head_.method == "POST" && !head_.field("last-event-id").empty();
}

asio::awaitable<bool> Session::resume_stream() {
  auto body = co_await read_body();
  if (!body) co_return false;
  std::size_t number = 0;
  const std::string_view digits = head_.field("last-event-id");
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  auto stream = state_.streams.find(record_.key_name, request_id_, Clock::now());
  const bool usable =
      stream && error == std::errc() && end == digits.data() + digits.size() && !stream->after(number, nullptr).lost;
  if (!usable) {
    Response response = error_response(
        404, "stream_not_found",
        "No stream of this request id can be resumed after this event: send the request without Last-Event-ID");
    co_return co_await respond(std::move(response));
  }
  stream->add_reader();
  const std::shared_ptr<void> reader(nullptr, [stream](void*) { stream->remove_reader(); });
  co_return co_await read_saved(stream, number);
}

asio::awaitable<bool> Session::read_saved(std::shared_ptr<SavedStream> stream, std::size_t number) {
  count(200);
  auto timer = std::make_shared<asio::steady_timer>(transport_->executor());
  bool gone = false;
  transport_->watch([&gone, timer] {
    gone = true;
    timer->cancel();
  });
  const std::shared_ptr<void> unwatched(nullptr, [this](void*) { transport_->unwatch(); });
  const auto wake = [timer] { asio::post(timer->get_executor(), [timer] { timer->cancel(); }); };
  std::string frame = stream_head(kEventStream, framing());
  while (!gone) {
    timer->expires_at(asio::steady_timer::time_point::max());
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
    if (rest.events.empty()) co_await timer->async_wait(kUseTuple);
  }
  co_return false;
}

}  // namespace quire
