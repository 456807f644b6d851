#include "server/session/request_account.h"

#include <algorithm>
#include <ctime>

#include "server/api/common/store/background_responses.h"
#include "server/api/common/store/response_store.h"
#include "server/metrics/metrics.h"
#include "server/ops/reports/engine_trace.h"
#include "server/ops/reports/request_record.h"
#include "server/ops/reports/span_exporter.h"
#include "server/run/media_service.h"
#include "server/state/settings.h"

namespace quire {

RequestAccount::RequestAccount(ServerState& state, std::shared_ptr<const Settings> settings, RequestRecord record)
    : state_(state), settings_(std::move(settings)), record_(std::move(record)) {}

void RequestAccount::admit(Admission admission) {
  admission_ = std::move(admission);
  if (admission_.key != nullptr) record_.key_name = admission_.key->name;
  record_.is_call = admission_.route != nullptr && admission_.route->is_api();
}

std::string RequestAccount::client_name() const {
  return record_.key_name.empty() ? "address " + record_.peer : "key " + record_.key_name;
}

Call RequestAccount::new_call(const RequestHead& head, bool on_admin) const {
  Call call;
  call.arrival = Clock::now();
  call.created = static_cast<std::int64_t>(std::time(nullptr));
  call.path = head.path;
  call.query = head.query;
  call.request_id = record_.request_id;
  call.key_name = record_.key_name;
  call.is_admin = on_admin || (admission_.key != nullptr && admission_.key->admin);
  if (admission_.key != nullptr) call.usual_priority = std::max(call.usual_priority, admission_.key->priority);
  call.responses = state_.responses;
  call.background = state_.background;
  if (admission_.route != nullptr)
    call.media = state_.media->begin(call.key_name, client_name(), admission_.route->is_queued);
  return call;
}

Result<void> RequestAccount::take_prompt_quota(const Operation& operation) {
  std::int64_t num_tokens = 0;
  std::int64_t num_sequences = 0;
  for (const auto& request : operation.requests()) {
    num_sequences += request->num_choices;
    num_tokens += static_cast<std::int64_t>(request->prompt.size());
    if (admission_.key != nullptr && request->priority < admission_.key->priority) {
      return invalid("'priority' must be at least " + std::to_string(admission_.key->priority) + " with this API key",
                     "priority");
    }
  }
  return admission_.lease.take_prompt(num_tokens, num_sequences, Clock::now());
}

void RequestAccount::note_outcome(const Operation& operation, const OperationTimes& times, bool has_begun) {
  record_.times = times;
  record_.summary = operation.summary();
  admission_.lease.take_generated(record_.summary.num_generated_tokens, times.end);
  if (has_begun && !record_.summary.finish.empty()) state_.metrics.finished(record_.summary, times);
}

void RequestAccount::count(int status) {
  place_ = {};
  admission_.lease = {};
  record_.status = status;
  state_.metrics.count_response(status);
  state_.metrics.key_request(record_);
}

void RequestAccount::end() {
  if (std::exchange(has_ended_, true)) return;
  place_ = {};
  admission_.lease = {};
  if (record_.times.end == Clock::time_point{}) record_.times.end = Clock::now();
  state_.request_trace.add(record_);
  log();
  if constexpr (is_built(Module::kOtlp)) {
    if (state_.spans && record_.trace.sampled) state_.spans->offer(record_);
  }
}

void RequestAccount::log() const {
  log_access(record_, options().access_log);
}

}  // namespace quire
