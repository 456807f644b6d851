#include "server/run/batch_service.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <ctime>

#include "core/base/log.h"
#include "server/api/common/model_table.h"
#include "server/state/settings.h"

namespace quire {

namespace asio = boost::asio;

namespace {

constexpr int kBatchNice = 5;
constexpr int kMaxTries = 3;  // attempts for a request that fails by the server's fault
constexpr std::chrono::milliseconds kTickBusy{1000};
constexpr std::chrono::milliseconds kTickIdle{60'000};
constexpr std::chrono::milliseconds kTickLocked{200};
constexpr std::chrono::milliseconds kKeepRetry{500};  // interval of attempts to write to a full disk

std::int64_t unix_now() {
  return static_cast<std::int64_t>(std::time(nullptr));
}

}  // namespace

// Marks that a line's coroutine has ended.
struct BatchService::LineEnd {
  explicit LineEnd(std::shared_ptr<Running> of) : running(std::move(of)) {}
  LineEnd(LineEnd&&) noexcept = default;
  LineEnd& operator=(LineEnd&&) noexcept = default;
  ~LineEnd() {
    if (running) running->has_ended = true;
  }

  std::shared_ptr<Running> running;
};

BatchService::BatchService(ServerState& state, const BatchOptions& options)
    : state_(state), options_(options), store_(options), thread_("batch", 1, true), timer_(thread_.first()) {}

BatchService::~BatchService() {
  thread_.stop();
  thread_.join();
}

void BatchService::start() {
  thread_.on_failure([this] { advance(); });
  thread_.start();
  post([this] {
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kBatchNice);
    advance();
  });
}

void BatchService::stop() {
  post([this] {
    stopping_ = true;
    for (const auto& [number, running] : running_)
      running->control.interrupt();
    advance();
  });
}

// Runs the posted work to its end, so that no reference to a session stays here. The next process repeats requests that
// have no answer on the disk.
void BatchService::join() {
  thread_.stop();
  thread_.join();
  stopping_ = true;
  thread_.first().restart();
  thread_.first().poll();
  store_.close();
}

void BatchService::post(std::function<void()> job) {
  asio::post(thread_.first(), std::move(job));
}

BatchStore* BatchService::store() {
  return store_.is_open() && !stopping_ ? &store_ : nullptr;
}

void BatchService::wake() {
  advance();
}

// The deleter destroys an abandoned upload on the batch thread, which removes its file.
Result<std::shared_ptr<FileUpload>> BatchService::begin_upload(const std::string& owner) {
  auto begun = store_.files().begin(owner);
  if (!begun) return begun;
  FileUpload* const upload = begun->get();
  return std::shared_ptr<FileUpload>(upload, [this, held = *std::move(begun)](FileUpload*) mutable {
    try {
      asio::post(thread_.first(), [held] {});
    } catch (const std::bad_alloc&) {  // no memory: the upload ends on this thread
    }
    held.reset();
  });
}

BatchStore::Counts BatchService::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

bool BatchService::is_serving() const {
  const ServerPhase phase = state_.phase.load();
  return !stopping_ && (phase == ServerPhase::kServing || phase == ServerPhase::kDelaying) &&
         state_.models() != nullptr;
}

void BatchService::advance() {
  if (stopping_) {
    end_lines();
    if (running_.empty()) store_.close();  // unlocks the folder
    return;
  }
  const auto opened = store_.open();
  if (!opened || !*opened) {
    if (!opened) log::error("batches: {}", opened.error().message);
    if (opened && !std::exchange(said_locked_, true)) log::info("batches: another process still has the folder");
    timer_.expires_after(kTickLocked);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) advance();
    });
    return;
  }
  end_lines();
  const bool has_more = store_.work(unix_now());
  for (const auto& [number, running] : running_) {
    if (!store_.is_wanted(running->line)) running->control.interrupt();
  }
  start_lines();
  publish();
  plan_next(has_more);
}

void BatchService::plan_next(bool has_more) {
  if (has_more) return post([this] { advance(); });
  timer_.expires_after(is_busy_.load() ? kTickBusy : kTickIdle);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) advance();
  });
}

void BatchService::publish() {
  BatchStore::Counts counts = store_.counts();
  is_busy_ = counts.num_active > 0;
  const std::lock_guard lock(mutex_);
  counts_ = std::move(counts);
}

void BatchService::start_lines() {
  if (!is_serving()) return;
  const auto now = Clock::now();
  const auto settings = state_.settings();
  std::erase_if(paused_until_, [&](const auto& each) { return each.second <= now; });
  const auto may_run = [&](const std::string& owner) {
    return paused_until_.count(owner) == 0 && may_run_lines(*settings, owner);
  };
  while (static_cast<std::int64_t>(running_.size()) < options_.max_running) {
    const auto running = std::make_shared<Running>();
    LineEnd end(running);
    const auto place = running_.emplace(num_begun_++, running).first;  // before the line is taken, so that none is lost
    auto line = store_.next_line(may_run);
    if (!line) running_.erase(place);
    if (!line) return;
    running->line = *std::move(line);
    running->is_settled = false;
    asio::co_spawn(thread_.first(), run_line(running, std::move(end)),
                   [this](const std::exception_ptr&) { advance(); });
  }
}

// A line whose coroutine ended without an answer is called again.
void BatchService::end_lines() {
  for (auto at = running_.begin(); at != running_.end();) {
    Running& running = *at->second;
    if (running.has_ended && !running.is_settled) {
      log::error("batches: a request of {} could not be called", running.line.batch_id);
      paused_until_[running.line.owner] = Clock::now() + kTickBusy;
      store_.give_back(std::move(running.line));
    }
    at = running.has_ended ? running_.erase(at) : std::next(at);
  }
}

bool BatchService::tries_again(const Running& running, const LineAnswer& answer) {
  if (!answer.retry_after) return false;
  if (answer.is_failure && ++num_tries_[{running.line.batch_id, running.line.number}] >= kMaxTries) return false;
  return true;
}

asio::awaitable<void> BatchService::run_line(std::shared_ptr<Running> running, [[maybe_unused]] LineEnd end) {
  LineAnswer answer = co_await call_batch_line(state_, thread_.first().get_executor(), running->line, running->control);
  if (running->control.interrupted() && !store_.is_wanted(running->line)) {
    store_.drop(running->line);
    running->is_settled = true;
    co_return;
  }
  if (running->control.interrupted() || tries_again(*running, answer)) {
    if (answer.retry_after) paused_until_[running->line.owner] = Clock::now() + *answer.retry_after;
    store_.give_back(std::move(running->line));
    running->is_settled = true;
    co_return;
  }
  co_await keep(running, std::move(answer));
}

// Writes the answer to the disk. While that is full, it retries and the line counts as running.
asio::awaitable<void> BatchService::keep(std::shared_ptr<Running> running, LineAnswer answer) {
  const BatchLine& line = running->line;
  AnswerRecord record;
  record.failed = answer.status != 200;
  if (!record.failed) record.usage = usage_of_body(answer.body);
  record.text = answer_line(line.request.custom_id, answer.request_id, answer.status, answer.body);
  asio::steady_timer timer(thread_.first());
  bool said = false;
  while (store_.is_wanted(line)) {
    if (running->control.interrupted()) {
      store_.give_back(std::move(running->line));
      running->is_settled = true;
      co_return;
    }
    const auto kept = store_.answer(line, record);
    if (kept) {
      running->is_settled = true;
      num_tries_.erase({line.batch_id, line.number});
      co_return;
    }
    if (!std::exchange(said, true)) log::error("batches: {} waits: {}", line.batch_id, kept.error().message);
    timer.expires_after(kKeepRetry);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  store_.drop(line);
  running->is_settled = true;
}

}  // namespace quire
