#include "server/session/file_answer.h"

#include "server/api/batches/batches.h"
#include "server/run/batch_service.h"
#include "server/threads/run_by.h"

namespace quire {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kContentPiece = 256 * 1024;

}  // namespace

Error batches_are_off() {
  return Error{ErrorKind::kNotFound, "This server stores no files and batches: batches.directory is not set",
               "batches_disabled", "", std::nullopt};
}

Error batches_elsewhere() {
  return Error{ErrorKind::kUnavailable, "Files and batches are not available yet. Please retry later.",
               "batches_unavailable", "", std::chrono::seconds(1)};
}

std::function<void(std::function<void()>)> batch_thread(BatchService& batches) {
  return [&batches](std::function<void()> job) { batches.post(std::move(job)); };
}

asio::awaitable<bool> FileAnswer::give() {
  ++exchange_.state().num_calls;
  BatchService* const batches = exchange_.state().batches;
  if (batches == nullptr) {
    Response response = error_response(batches_are_off());
    co_return co_await body_.respond_unread(std::move(response));
  }
  auto body = co_await body_.read();
  if (!body) co_return false;
  Call call = exchange_.new_call();
  call.body = std::move(*body);
  const auto ask = guarded<StoredAnswer>(exchange_.request_id(), [&]() -> Result<StoredAnswer> {
    BatchStore* const store = batches->store();
    if (store == nullptr) return tl::make_unexpected(batches_elsewhere());
    auto answer = endpoint_(*store, call);
    if (exchange_.head().method == "POST") batches->post([batches] { batches->wake(); });
    return answer;
  });
  const auto post = batch_thread(*batches);
  Result<StoredAnswer> answer = co_await run_by<Result<StoredAnswer>>(post, ask);
  body_.release();
  if (!answer) co_return co_await exchange_.respond(answer.error());
  if (answer->content) co_return co_await send_content(std::move(*answer));
  Response response;
  response.body = std::move(answer->body);
  co_return co_await exchange_.respond(std::move(response));
}

// Sends the content in pieces, so that a large file needs little memory.
asio::awaitable<bool> FileAnswer::send_content(StoredAnswer answer) {
  BatchService* const batches = exchange_.state().batches;
  const auto post = batch_thread(*batches);
  const auto file = std::make_shared<DiskFile>(std::move(*answer.content));
  const std::shared_ptr<void> closed(nullptr, [&](void*) {
    try {
      batches->post([file] {});
    } catch (const std::bad_alloc&) {  // no memory: the file is closed here
    }
  });
  exchange_.count(200);
  const std::string head = content_head("application/octet-stream", answer.num_bytes, exchange_.framing());
  bool sent = co_await exchange_.write(head);
  std::int64_t offset = 0;
  while (sent && offset < answer.num_bytes && exchange_.head().method != "HEAD") {
    const auto size = static_cast<std::size_t>(
        std::min<std::int64_t>(answer.num_bytes - offset, static_cast<std::int64_t>(kContentPiece)));
    const std::function<Result<std::string>()> read = [&] { return file->read(offset, size); };
    const Result<std::string> piece = co_await run_by<Result<std::string>>(post, read);
    if (!piece || piece->size() < size) co_return false;  // the client gets fewer bytes than Content-Length says
    sent = co_await exchange_.write(*piece);
    offset += static_cast<std::int64_t>(size);
  }
  co_return sent;
}

}  // namespace quire
