#include "server/session/call_reader.h"

#include "server/api/common/model_table.h"
#include "server/run/media_service.h"
#include "server/state/settings.h"
#include "server/threads/run_by.h"
#include "server/wire/client_budget.h"

namespace quire {

namespace asio = boost::asio;

bool CallReader::takes_place() const {
  const Route& route = *account_.admission().route;
  return route.is_queued && route.method == "POST" && std::holds_alternative<ModelEndpoint>(route.answer);
}

std::optional<Error> CallReader::full_queues() const {
  std::optional<Error> refusal;
  const auto table = state_.models();
  if (!takes_place() || !table) return std::nullopt;
  for (const TableEntry& model : table->entries()) {
    if (model.state == ModelState::kUnloaded) continue;
    if (!model.served) return std::nullopt;
    auto place = model.served->queue->reserve(account_.record().key_name, 0);
    if (place) return std::nullopt;
    if (!refusal) refusal = std::move(place.error());
  }
  return refusal;
}

// Reserves before the body is parsed. A request whose model is unknown reserves when it is submitted.
Result<void> CallReader::reserve_place(const ModelTable& models, const Call& call) {
  if (!takes_place() || account_.place().has()) return {};
  const TableEntry* const model = peek_model(models, call.body);
  if (model == nullptr || !model->served || model->state == ModelState::kUnloaded) return {};
  auto ticket = model->served->queue->reserve(call.key_name, static_cast<std::int64_t>(call.body.size()));
  if (!ticket) return tl::make_unexpected(ticket.error());
  account_.place() = ReservedPlace(model->served->queue, *std::move(ticket));
  return {};
}

// Waits while the model is not ready, then parses the body again.
asio::awaitable<std::optional<CallReader::Parsed>> CallReader::read(Call& call) {
  const auto began = Clock::now();
  SleepingModel asleep;  // keeps the adapter in memory until the body is parsed again
  while (true) {
    auto read = co_await read_once(call);
    if (!read) co_return std::nullopt;
    if (!*read) co_return tl::make_unexpected(read->error());
    if (auto* const operation = std::get_if<std::unique_ptr<Operation>>(&**read)) co_return std::move(*operation);
    WaitResult waited;
    if (std::holds_alternative<WantedMedia>(**read)) {
      waited = co_await read_media(call);
    } else {
      asleep = std::get<SleepingModel>(std::move(**read));
      waited = co_await wake(asleep, call, began);
    }
    if (waited.client_gone) co_return std::nullopt;
    if (waited.error) co_return tl::make_unexpected(*waited.error);
  }
}

// Parses again, as a long job, if a short body turned out to be costly. Costly work stops early if the client leaves or
// the server cuts it.
asio::awaitable<std::optional<Result<ParsedCall>>> CallReader::read_once(Call& call) {
  std::stop_source unwanted;
  bool gone = false;
  if (!outlives_client_) {
    transport_.watch([&] {
      gone = true;
      unwanted.request_stop();
    });
  }
  const std::shared_ptr<void> unwatched(nullptr, [this](void*) { transport_.unwatch(); });
  const std::stop_callback cut(state_.text->cut(), [&unwanted] { unwanted.request_stop(); });
  const auto is_cut_short = [](const Result<ParsedCall>& read) {
    return !read && read.error().code == WorkLimit::kCode;
  };
  const bool is_short = call.body.size() <= static_cast<std::size_t>(ClientBudget::kSmall);
  const std::stop_token stop = unwanted.get_token();
  Result<ParsedCall> read = co_await read_in(is_short ? TextLane::kQuick : TextLane::kLong, stop, call);
  if (is_short && is_cut_short(read) && !stop.stop_requested()) {
    read = co_await read_in(TextLane::kLong, stop, call);
  }
  if (is_cut_short(read)) {
    if (gone) co_return std::nullopt;
    read = tl::make_unexpected(shutting_down());
  }
  co_return std::move(read);
}

// Takes the table of models afresh each time: holding it while waiting would keep unloaded models alive.
asio::awaitable<Result<ParsedCall>> CallReader::read_in(TextLane lane, std::stop_token stop, Call& call) {
  const auto table = state_.models();
  const Admission& admission = account_.admission();
  const std::int64_t max_context = admission.key != nullptr ? admission.key->quota.max_context : 0;
  const std::string client = account_.client_name();
  const auto read = guarded<ParsedCall>(account_.request_id(), [&]() -> Result<ParsedCall> {
    if (const auto reserved = reserve_place(*table, call); !reserved) {
      return tl::make_unexpected(reserved.error());
    }
    call.limit = WorkLimit(lane == TextLane::kQuick ? std::optional(kQuickTime) : std::nullopt, stop, client);
    return parse_call(*admission.route, max_context > 0 ? table->limited_to(max_context) : *table, call);
  });
  const std::function<void(std::function<void()>)> post = [&](std::function<void()> job) {
    state_.text->post(lane, client, std::move(job));
  };
  co_return co_await run_by<Result<ParsedCall>>(post, read);
}

// A request that waits for an adapter keeps its place in the queue of the model.
asio::awaitable<WaitResult> CallReader::wake(const SleepingModel& asleep, const Call& call, Clock::time_point since) {
  const auto bytes = static_cast<std::int64_t>(call.body.size());
  const std::function<void(ModelWaker::Done)> begin = [&](ModelWaker::Done done) {
    if (asleep.wait_for_adapter) return asleep.wait_for_adapter(std::move(done));
    state_.waker.wake(asleep.name, call.key_name, bytes, std::move(done));
  };
  auto longest = state_.waker.longest_wait(asleep.name);
  if (longest) *longest -= std::min(*longest, std::chrono::floor<std::chrono::milliseconds>(Clock::now() - since));
  if (!asleep.wait_for_adapter)
    account_.place() = {};  // while it waits, the request counts against the sleeping model's own limits
  co_return co_await wait_for_callback(state_, transport_, begin, longest);
}

asio::awaitable<WaitResult> CallReader::read_media(const Call& call) {
  const std::function<void(MediaService::Done)> begin = [&](MediaService::Done done) {
    state_.media->work(call.media, std::move(done));
  };
  const WaitResult waited = co_await wait_for_callback(state_, transport_, begin, kUnlimitedWait);
  if (waited.client_gone || waited.error) call.media->abandon();
  co_return waited;
}

}  // namespace quire
