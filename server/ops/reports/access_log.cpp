#include "server/ops/reports/request_record.h"

#include <vector>

#include "core/base/log.h"

namespace quire {

namespace {

double milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

void log_access(const RequestRecord& record, AccessLog mode) {
  constexpr int kFirstError = 400;
  if (mode == AccessLog::kOff || !log::enabled(log::Level::kInfo)) return;
  if (mode == AccessLog::kApi && !record.is_call && record.status < kFirstError) return;
  std::vector<log::Field> fields = {
      {"request_id", record.request_id}, {"key", record.key_name}, {"peer", record.peer},
      {"method", record.method},         {"path", record.path},    {"status", std::int64_t{record.status}}};
  if (!record.error.empty()) fields.push_back({"error", record.error});
  const OperationSummary& summary = record.summary;
  if (!summary.model.empty()) {
    fields.push_back({"model", summary.model});
    fields.push_back({"prompt_tokens", summary.num_prompt_tokens});
    fields.push_back({"cached_tokens", summary.num_cached_tokens});
    fields.push_back({"generated_tokens", summary.num_generated_tokens});
    fields.push_back({"queue_ms", milliseconds(record.times.queue)});
    fields.push_back({"prefill_ms", milliseconds(record.times.prefill)});
    fields.push_back({"decode_ms", milliseconds(record.times.decode)});
    fields.push_back({"finish", summary.finish});
  }
  fields.push_back({"total_ms", milliseconds(record.times.end - record.times.arrival)});
  if (!record.trace.trace_id.empty()) fields.push_back({"trace_id", record.trace.trace_id});
  log::event(log::Level::kInfo, "request", fields);
}

}  // namespace quire
