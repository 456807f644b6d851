#include "server/run/background_run.h"

#include <boost/asio/co_spawn.hpp>

#include "core/base/log.h"
#include "server/api/common/store/background_responses.h"
#include "server/api/common/store/response_store.h"
#include "server/metrics/metrics.h"
#include "server/ops/stream_store.h"
#include "server/state/live_operations.h"
#include "server/state/settings.h"

namespace quire {

namespace asio = boost::asio;

namespace {

// Events of an ended response are kept for this time, within resume.max_bytes.
constexpr std::chrono::minutes kKeepEvents{5};

}  // namespace

BackgroundRun::BackgroundRun(ServerState& state, asio::any_io_executor executor, std::unique_ptr<Operation> operation,
                             std::string key_name)
    : state_(state),
      executor_(std::move(executor)),
      operation_(std::move(operation)),
      id_(operation_->background_id()),
      key_name_(std::move(key_name)),
      run_(state, executor_, *operation_) {
  run_.use_text_threads("key " + key_name_);
  state_.live.add(run_.mailbox());
  ++state_.num_busy;
}

BackgroundRun::~BackgroundRun() {
  if (saved_) {
    saved_->finish();
    state_.streams.close(key_name_, id_, Clock::now() + kKeepEvents);
  }
  if (state_.background->is_erased(id_)) state_.responses->erase(id_, key_name_);
  state_.background->remove(id_);
  state_.live.remove(run_.mailbox());
  --state_.num_busy;
}

Result<void> BackgroundRun::begin(QuotaTable::Lease lease, ReservedPlace place, Clock::time_point arrival) {
  lease_ = std::move(lease);
  run_.admit(lease_, std::move(place), state_.settings()->options.list_window);
  auto begun = run_.begin(arrival);
  if (!begun) return begun;
  if (operation_->streams()) saved_ = state_.streams.open(key_name_, id_, Clock::now());
  state_.background->add(id_, key_name_, operation_->snapshot(),
                         [mailbox = run_.mailbox()] { mailbox->interrupt(std::nullopt); });
  operation_->store_begun();
  return {};
}

void BackgroundRun::start(std::shared_ptr<BackgroundRun> run) {
  BackgroundRun& self = *run;
  asio::co_spawn(self.executor_, self.run(), [run = std::move(run)](const std::exception_ptr& failure) {
    if (failure) run->give_up();
  });
}

void BackgroundRun::save(std::string& out) {
  if (saved_ && !out.empty()) saved_->append(out);
  out.clear();
}

asio::awaitable<void> BackgroundRun::run() {
  std::string out;
  if (operation_->streams()) co_await run_.begin_answer(out);
  save(out);
  bool is_queued = true;
  while (!run_.is_over()) {
    const OperationRun::Progress progress = co_await run_.advance(out);
    if (progress.interrupted || progress.error) {
      co_await end(&progress, out);
      co_return;
    }
    save(out);
    if (is_queued && run_.times().first_token) {
      is_queued = false;
      state_.background->update(id_, operation_->snapshot());
    }
  }
  co_await end(nullptr, out);
}

// Stores the response before it leaves the list of running ones.
asio::awaitable<void> BackgroundRun::end(const OperationRun::Progress* failure, std::string& out) {
  run_.abort();
  if (failure != nullptr || !state_.background->settle(id_)) {
    fail(failure != nullptr ? failure->error.value_or(out_of_memory()) : out_of_memory(), out);
  } else {
    const Result<bool> made = co_await run_.finish_part(out);
    if (!made) fail(made.error(), out);
  }
  is_ended_ = true;
  save(out);
  note_end();
}

void BackgroundRun::fail(const Error& error, std::string& out) {
  if (state_.background->settle(id_)) {
    operation_->fail(error, out);
  } else {
    operation_->cancel(out);
  }
}

// The coroutine had no memory, and has released what it had. The response is stored as failed already.
void BackgroundRun::give_up() {
  log::error("the background response {} could not be made", id_);
  if (is_ended_) return;
  try {
    run_.abort();
    std::string out;
    fail(out_of_memory(), out);
    save(out);
    note_end();
  } catch (const std::bad_alloc&) {  // its readers miss the last event
  }
}

void BackgroundRun::note_end() {
  RequestRecord record;
  record.request_id = id_;
  record.key_name = key_name_;
  record.summary = operation_->summary();
  record.times = run_.times();
  record.times.end = Clock::now();
  lease_.take_generated(record.summary.num_generated_tokens, record.times.end);
  lease_ = {};
  state_.metrics.key_tokens(record);
  if (!record.summary.finish.empty()) state_.metrics.finished(record.summary, record.times);
}

}  // namespace quire
