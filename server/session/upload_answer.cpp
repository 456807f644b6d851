#include "server/session/upload_answer.h"

#include <ctime>

#include "server/api/batches/batches.h"
#include "server/run/batch_service.h"
#include "server/session/file_answer.h"
#include "server/threads/run_by.h"
#include "server/wire/multipart.h"

namespace quire {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kFormBytes = 64 * 1024;  // limit for an upload's other form fields
constexpr std::size_t kMaxFieldBytes = 4096;

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
    // Some clients name no file, or in a form (filename*) that is not read.
    if (!piece.filename && piece.name != "file") {
      field_ = &form_.fields[piece.name];
      field_->clear();  // the last one counts
      return {};
    }
    if (piece.name != "file" || upload_) return invalid("The form must have one file, named 'file'", piece.name);
    if (batches_.store() == nullptr) return tl::make_unexpected(batches_elsewhere());
    auto begun = batches_.begin_upload(owner_);
    if (!begun) return tl::make_unexpected(begun.error());
    upload_ = *std::move(begun);
    form_.filename = std::move(piece.filename).value_or("");
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

asio::awaitable<bool> UploadAnswer::give() {
  ++exchange_.state().num_calls;
  BatchService* const batches = exchange_.state().batches;
  if (batches == nullptr) {
    Response response = error_response(batches_are_off());
    co_return co_await body_.respond_unread(std::move(response));
  }
  const auto post = batch_thread(*batches);
  MultipartReader reader(*multipart_boundary(exchange_.head().field("content-type")));
  const auto form = std::make_shared<ReceivedForm>(*batches, exchange_.account().record().key_name);
  std::optional<Error> refusal;
  const RequestBody::Drain drain = [&](std::string& bytes) -> asio::awaitable<bool> {
    std::vector<MultipartPiece> pieces;
    Result<void> taken = reader.feed(bytes, pieces);
    bytes.clear();
    if (taken) {
      const auto take = guarded<void>(exchange_.request_id(), [&] { return form->take(pieces); });
      taken = co_await run_by<Result<void>>(post, take);
    }
    if (!taken) refusal = std::move(taken.error());
    co_return taken.has_value();
  };
  const std::size_t max_bytes = static_cast<std::size_t>(batches->options().max_file_bytes) + kFormBytes;
  const bool arrived = co_await body_.pass_on(max_bytes, drain);
  if (refusal) {
    if (!body_.has_arrived()) exchange_.close_after();
    co_return co_await exchange_.respond(*refusal);
  }
  if (!arrived) co_return false;
  const auto finish = guarded<std::string>(exchange_.request_id(), [&]() -> Result<std::string> {
    if (!reader.is_done()) {
      return invalid("The body is no valid multipart/form-data: its end is missing", "", "invalid_multipart");
    }
    return form->finish(static_cast<std::int64_t>(std::time(nullptr)));
  });
  Result<std::string> stored = co_await run_by<Result<std::string>>(post, finish);
  if (!stored) co_return co_await exchange_.respond(stored.error());
  Response response;
  response.body = std::move(*stored);
  co_return co_await exchange_.respond(std::move(response));
}

}  // namespace quire
