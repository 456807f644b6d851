#include "server/session/saved_answer.h"

#include "server/wire/wakeup.h"

namespace quire {

namespace asio = boost::asio;

SavedAnswer::SavedAnswer(Exchange& exchange, std::shared_ptr<SavedStream> stream, bool keeps_alive)
    : exchange_(exchange), stream_(std::move(stream)), keeps_alive_(keeps_alive) {
  if (keeps_alive_) stream_->add_reader();
}

SavedAnswer::~SavedAnswer() {
  if (keeps_alive_) stream_->remove_reader();
}

asio::awaitable<bool> SavedAnswer::give_after(std::size_t number) {
  exchange_.count(200);
  Transport& transport = *exchange_.transport();
  const ResponseFraming framing = exchange_.framing();
  const auto wakeup = std::make_shared<Wakeup>(transport.executor());
  const std::shared_ptr<void> closed(nullptr, [wakeup](void*) { wakeup->close(); });
  bool gone = false;
  transport.watch([&gone, wakeup] {
    gone = true;
    wakeup->signal();
  });
  const std::shared_ptr<void> unwatched(nullptr, [&transport](void*) { transport.unwatch(); });
  const auto wake = [wakeup] { wakeup->signal(); };
  std::string frame = stream_head(kEventStream, framing);
  while (!gone) {
    const SavedStream::Rest rest = stream_->after(number, wake);
    if (rest.lost) break;
    if (!rest.events.empty()) append_stream_part(frame, rest.events, framing);
    number = rest.last;
    if (rest.finished) append_stream_end(frame, framing);
    bool sent = true;
    if (!frame.empty()) sent = co_await exchange_.write(frame);
    if (!sent) break;
    frame.clear();
    if (rest.finished) co_return framing.is_chunked();
    if (rest.events.empty()) co_await wakeup->wait();
  }
  co_return false;
}

Response no_such_stream() {
  return error_response(
      404, "stream_not_found",
      "No stream of this request id can be resumed after this event: send the request without Last-Event-ID");
}

}  // namespace quire
