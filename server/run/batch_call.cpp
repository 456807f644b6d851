#include "server/run/batch_call.h"

#include <ctime>

#include "server/api/common/errors.h"
#include "server/api/common/model_table.h"
#include "server/metrics/metrics.h"
#include "server/ops/keys/quota.h"
#include "server/router.h"
#include "server/run/call_parser.h"
#include "server/run/media_service.h"
#include "server/run/operation_run.h"
#include "server/state/settings.h"
#include "server/threads/run_by.h"
#include "server/threads/text_pool.h"

namespace quire {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::seconds kRetryLater{1};

// Whether the error passes with time, such as a full queue: the line is then called again.
bool may_pass(const Error& error) {
  if (error.kind == ErrorKind::kUnavailable) return true;
  return error.kind == ErrorKind::kRateLimited && error.retry_after.has_value();
}

LineAnswer answer_of(const Error& error) {
  LineAnswer answer;
  answer.status = http_status(error.kind);
  answer.body = error_body(error);
  const bool is_failure = error.kind == ErrorKind::kInternal || error.kind == ErrorKind::kNoMemory;
  if (may_pass(error) || is_failure) answer.retry_after = error.retry_after.value_or(kRetryLater);
  answer.is_failure = is_failure;
  return answer;
}

// State of one call beside its arguments.
class LineCall {
 public:
  LineCall(ServerState& state, asio::any_io_executor executor, const BatchLine& line, LineControl& control)
      : state_(state), executor_(std::move(executor)), control_(control), settings_(state.settings()) {
    call_.arrival = Clock::now();
    call_.created = static_cast<std::int64_t>(std::time(nullptr));
    call_.path = line.request.url;
    call_.body = line.request.body;
    call_.request_id = make_id("req-");
    call_.key_name = line.owner;
    call_.is_background = true;
    call_.media = state_.media->begin(line.owner, "batches of " + line.owner, true);
    key_ = settings_->keys.named(line.owner);
  }

  asio::awaitable<LineAnswer> run() {
    LineAnswer answer;
    if (key_ != nullptr) {
      auto lease = state_.batch_quotas.admit(*key_, call_.arrival);
      if (!lease) co_return answer_of(lease.error());
      lease_ = std::move(*lease);
    }
    auto read = co_await read_call_of_line();
    if (read) {
      answer = co_await generate(**read);
    } else {
      answer = answer_of(read.error());
    }
    answer.request_id = call_.request_id;
    co_return answer;
  }

 private:
  using Read = Result<std::unique_ptr<Operation>>;

  asio::awaitable<Read> read_call_of_line() {
    SleepingModel asleep;  // keeps the adapter in memory until the line is parsed again
    while (true) {
      Result<ParsedCall> read = co_await read_once();
      if (!read) co_return tl::make_unexpected(read.error());
      if (auto* const operation = std::get_if<std::unique_ptr<Operation>>(&*read)) co_return std::move(*operation);
      std::optional<Error> error;
      if (std::holds_alternative<WantedMedia>(*read)) {
        error = co_await read_media();
      } else {
        asleep = std::get<SleepingModel>(*std::move(read));
        error = co_await wake(asleep);
      }
      if (error) co_return tl::make_unexpected(*error);
    }
  }

  asio::awaitable<Result<ParsedCall>> read_once() {
    const auto table = state_.models();
    const Route* const route = find_route("POST", call_.path).route;
    const std::int64_t max_context = key_ != nullptr ? key_->quota.max_context : 0;
    const auto read = guarded<ParsedCall>(call_.request_id, [&]() -> Result<ParsedCall> {
      call_.limit = WorkLimit(std::nullopt, control_.token());
      return parse_call(*route, max_context > 0 ? table->limited_to(max_context) : *table, call_);
    });
    const std::function<void(std::function<void()>)> post = [&](std::function<void()> job) {
      state_.text->post(TextLane::kLong, "batches of " + call_.key_name, std::move(job));
    };
    co_return co_await run_by<Result<ParsedCall>>(post, read);
  }

  asio::awaitable<std::optional<Error>> read_media() {
    const std::function<void(ModelWaker::Done)> begin = [this](ModelWaker::Done done) {
      state_.media->work(call_.media, std::move(done));
    };
    co_return co_await wait_for(begin);
  }

  asio::awaitable<std::optional<Error>> wake(const SleepingModel& asleep) {
    const std::function<void(ModelWaker::Done)> begin = [this, &asleep](ModelWaker::Done done) {
      if (asleep.wait_for_adapter) return asleep.wait_for_adapter(std::move(done));
      state_.waker.wake(asleep.name, call_.key_name, static_cast<std::int64_t>(call_.body.size()), std::move(done));
    };
    co_return co_await wait_for(begin);
  }

  asio::awaitable<std::optional<Error>> wait_for(std::function<void(ModelWaker::Done)> begin) {
    const MailboxReader reader(executor_);
    const std::shared_ptr<Mailbox>& mailbox = reader.mailbox();
    control_.set_mailbox(mailbox);
    begin([mailbox](std::optional<Error> error) { mailbox->interrupt(std::move(error)); });
    Mailbox::Batch batch = co_await mailbox->take();
    control_.set_mailbox(nullptr);
    if (control_.interrupted()) co_return shutting_down();
    co_return std::move(batch.error);
  }

  Result<void> take_prompt_quota(const Operation& operation) {
    std::int64_t num_tokens = 0;
    std::int64_t num_sequences = 0;
    for (const auto& request : operation.requests()) {
      num_sequences += request->num_choices;
      num_tokens += static_cast<std::int64_t>(request->prompt.size());
    }
    return lease_.take_prompt(num_tokens, num_sequences, Clock::now());
  }

  asio::awaitable<LineAnswer> generate(Operation& operation) {
    if (operation.streams()) {
      co_return answer_of(Error{ErrorKind::kInvalidRequest, "A request of a batch cannot be streamed", "invalid_value",
                                "stream", std::nullopt});
    }
    if (const auto taken = take_prompt_quota(operation); !taken) co_return answer_of(taken.error());
    OperationRun run(state_, executor_, operation);
    run.admit(lease_, {}, settings_->options.list_window);
    control_.set_mailbox(run.mailbox());
    const std::shared_ptr<void> left(nullptr, [this](void*) { control_.set_mailbox(nullptr); });
    if (const auto accepted = run.begin(call_.arrival); !accepted) co_return answer_of(accepted.error());
    std::string out;
    while (!run.is_over()) {
      const OperationRun::Progress progress = co_await run.advance(out);
      if (progress.interrupted) co_return answer_of(progress.error.value_or(shutting_down()));
      if (progress.error) co_return answer_of(*progress.error);
    }
    LineAnswer answer;
    operation.finish(answer.body);
    note_end(operation, run.times());
    co_return answer;
  }

  void note_end(const Operation& operation, const OperationTimes& times) {
    RequestRecord record;
    record.request_id = call_.request_id;
    record.key_name = call_.key_name;
    record.path = call_.path;
    record.method = "POST";
    record.status = 200;
    record.is_call = true;
    record.summary = operation.summary();
    record.times = times;
    record.times.end = Clock::now();
    lease_.take_generated(record.summary.num_generated_tokens, record.times.end);
    state_.metrics.key_request(record);
  }

  ServerState& state_;
  const asio::any_io_executor executor_;
  LineControl& control_;
  const std::shared_ptr<const Settings> settings_;
  const ApiKey* key_ = nullptr;  // owned by the settings; null without keys
  QuotaTable::Lease lease_;
  Call call_;
};

}  // namespace

bool may_run_lines(const Settings& settings, const std::string& key_name) {
  return settings.keys.empty() ? key_name.empty() : settings.keys.named(key_name) != nullptr;
}

asio::awaitable<LineAnswer> call_batch_line(ServerState& state, asio::any_io_executor executor, const BatchLine& line,
                                            LineControl& control) {
  LineCall call(state, std::move(executor), line, control);
  LineAnswer answer = co_await call.run();
  co_return answer;
}

}  // namespace quire
