// Session: files and batches: a form's file is stored as it arrives, a file's content is sent as it is read. Only the
// batch thread touches files.
#include <ctime>

#include "server/run/batch_service.h"
#include "server/session/session.h"
#include "server/threads/run_by.h"
#include "server/wire/multipart.h"

// GCC 12 takes an inlined coroutine's frame, which Asio allocates and frees itself, for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace quire {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kContentPiece = 256 * 1024;
constexpr std::size_t kFormBytes = 64 * 1024;  // limit for an upload's other form fields
constexpr std::size_t kMaxFieldBytes = 4096;

Error batches_are_off() {
  return Error{ErrorKind::kNotFound, "This server stores no files and batches: batches.directory is not set",
               "batches_disabled", "", std::nullopt};
}

Error batches_elsewhere() {
  return Error{ErrorKind::kUnavailable, "Files and batches are not available yet. Please retry later.",
               "batches_unavailable", "", std::chrono::seconds(1)};
}

Error too_large(std::int64_t most) {
  return Error{ErrorKind::kTooLarge, "The file is larger than " + std::to_string(most) + " bytes", "file_too_large",
               "file", std::nullopt};
}

// A form being received. Batch thread only, except for feeding it.
class ReceivedForm {
 public:
  ReceivedForm(BatchService& batches, std::string owner) : batches_(batches), owner_(std::move(owner)) {}

  Result<void> take(std::vector<MultipartPiece>& pieces) {
    for (MultipartPiece& piece : pieces) {
      auto taken = piece.begins_part ? begin(piece) : add(piece.data);
      if (!taken) return taken;
    }
    return {};
  }

  Result<std::string> finish(std::int64_t now) {
    BatchStore* const store = batches_.store();
    if (store == nullptr) return tl::make_unexpected(batches_elsewhere());
    auto fields = read_upload_form(form_, batches_.options(), now);
    if (!fields) return tl::make_unexpected(fields.error());
    const auto file = store->files().finish(*upload_, *std::move(fields));
    if (!file) return tl::make_unexpected(file.error());
    return file_json(*file);
  }

 private:
  Result<void> begin(MultipartPiece& piece) {
    field_ = nullptr;
    if (!piece.filename) {
      field_ = &form_.fields[piece.name];
      return {};
    }
    if (piece.name != "file" || upload_) return invalid("The form must have one file, named 'file'", piece.name);
    if (batches_.store() == nullptr) return tl::make_unexpected(batches_elsewhere());
    auto begun = batches_.begin_upload(owner_);
    if (!begun) return tl::make_unexpected(begun.error());
    upload_ = *std::move(begun);
    form_.filename = std::move(piece.filename);
    return {};
  }

  Result<void> add(const std::string& data) {
    if (field_ == nullptr) {
      const std::int64_t most = batches_.options().max_file_bytes;
      if (upload_->num_bytes() + static_cast<std::int64_t>(data.size()) > most)
        return tl::make_unexpected(too_large(most));
      return upload_->write(data);
    }
    if (field_->size() + data.size() > kMaxFieldBytes) return invalid("A field of the form is too long");
    *field_ += data;
    return {};
  }

  BatchService& batches_;
  const std::string owner_;
  UploadForm form_;
  std::string* field_ = nullptr;  // null: further bytes are the file's
  std::shared_ptr<FileUpload> upload_;
};

}  // namespace

asio::awaitable<bool> Session::call_stored(StoredEndpoint endpoint) {
  ++state_.num_calls;
  BatchService* const batches = state_.batches;
  if (batches == nullptr) {
    Response response = error_response(batches_are_off());
    co_return co_await respond_to_head(std::move(response));
  }
  auto body = co_await read_body();
  if (!body) co_return false;
  Call call = call_of_head();
  call.body = std::move(*body);
  const auto ask = guarded<StoredAnswer>(request_id_, [&]() -> Result<StoredAnswer> {
    BatchStore* const store = batches->store();
    if (store == nullptr) return tl::make_unexpected(batches_elsewhere());
    auto answer = endpoint(*store, call);
    if (head_.method == "POST") batches->post([batches] { batches->wake(); });
    return answer;
  });
  const std::function<void(std::function<void()>)> post = [batches](std::function<void()> job) {
    batches->post(std::move(job));
  };
  Result<StoredAnswer> answer = co_await run_by<Result<StoredAnswer>>(post, ask);
  upload_.reset();
  if (answer && answer->content) co_return co_await send_content(std::move(*answer));
  Response response;
  if (answer) {
    response.body = std::move(answer->body);
  } else {
    response = error_response(answer.error());
  }
  co_return co_await respond(std::move(response));
}

// Sends the content in pieces, so that a large file needs little memory.
asio::awaitable<bool> Session::send_content(StoredAnswer answer) {
  BatchService* const batches = state_.batches;
  const std::function<void(std::function<void()>)> post = [batches](std::function<void()> job) {
    batches->post(std::move(job));
  };
  const auto file = std::make_shared<DiskFile>(std::move(*answer.content));
  const std::shared_ptr<void> closed(nullptr, [&](void*) {
    try {
      batches->post([file] {});
    } catch (const std::bad_alloc&) {  // no memory: the file is closed here
    }
  });
  count(200);
  const std::string head = content_head("application/octet-stream", answer.num_bytes, framing());
  bool sent = co_await transport_->write(head, options().timeout.write);
  std::int64_t offset = 0;
  while (sent && offset < answer.num_bytes && head_.method != "HEAD") {
    const auto size = static_cast<std::size_t>(
        std::min<std::int64_t>(answer.num_bytes - offset, static_cast<std::int64_t>(kContentPiece)));
    const std::function<Result<std::string>()> read = [&] { return file->read(offset, size); };
    const Result<std::string> piece = co_await run_by<Result<std::string>>(post, read);
    if (!piece || piece->size() < size) co_return false;  // an unmet length shows that the end is missing
    sent = co_await transport_->write(*piece, options().timeout.write);
    offset += static_cast<std::int64_t>(size);
  }
  co_return sent&& keep_alive_;
}

asio::awaitable<bool> Session::take_upload() {
  ++state_.num_calls;
  BatchService* const batches = state_.batches;
  if (batches == nullptr) {
    Response response = error_response(batches_are_off());
    co_return co_await respond_to_head(std::move(response));
  }
  const std::function<void(std::function<void()>)> post = [batches](std::function<void()> job) {
    batches->post(std::move(job));
  };
  MultipartReader reader(*multipart_boundary(head_.field("content-type")));
  const auto form = std::make_shared<ReceivedForm>(*batches, record_.key_name);
  std::optional<Error> refusal;
  const BodyDrain drain = [&](std::string& bytes) -> asio::awaitable<bool> {
    std::vector<MultipartPiece> pieces;
    Result<void> taken = reader.feed(bytes, pieces);
    bytes.clear();
    if (taken) {
      const auto take = guarded<void>(request_id_, [&] { return form->take(pieces); });
      taken = co_await run_by<Result<void>>(post, take);
    }
    if (!taken) refusal = std::move(taken.error());
    co_return taken.has_value();
  };
  parser_.limit_body(static_cast<std::size_t>(batches->options().max_file_bytes) + kFormBytes);
  std::string bytes;
  const bool arrived = co_await take_body(&bytes, &drain);
  if (!arrived && !refusal) co_return false;
  if (!refusal && parser_.refused()) {
    const HttpRefusal refused = *parser_.refused();
    co_await refuse(refused.status, refused.code, refused.message);
    co_return false;
  }
  if (refusal) {
    keep_alive_ = keep_alive_ && parser_.done();
    Response response = error_response(*refusal);
    co_return co_await respond(std::move(response));
  }
  const bool refused = co_await refuse_further_bytes();
  if (refused) co_return false;
  const auto finish = guarded<std::string>(request_id_, [&]() -> Result<std::string> {
    if (!reader.is_done()) {
      return invalid("The body is no valid multipart/form-data: its end is missing", "", "invalid_multipart");
    }
    return form->finish(static_cast<std::int64_t>(std::time(nullptr)));
  });
  Result<std::string> stored = co_await run_by<Result<std::string>>(post, finish);
  Response response;
  if (stored) {
    response.body = std::move(*stored);
  } else {
    response = error_response(stored.error());
  }
  co_return co_await respond(std::move(response));
}

}  // namespace quire
