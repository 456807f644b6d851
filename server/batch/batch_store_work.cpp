// BatchStore: transitions of batches from one state to the next.
#include <fmt/format.h>

#include <algorithm>

#include "core/base/log.h"
#include "server/api/common/operation.h"
#include "server/batch/batch_store.h"

namespace quire {

namespace {

constexpr std::int64_t kRetrySeconds = 5;  // seconds after a refusal by the disk
constexpr std::int64_t kTidyEvery = 60;    // seconds
constexpr const char* kInputGone = "input_file_gone";

BatchError unanswered_because(const BatchRecord& record) {
  if (record.status == BatchStatus::kCancelling)
    return {"batch_cancelled", "This request was not executed before the batch was cancelled.", "", std::nullopt};
  return {"batch_expired", "This request could not be executed before the completion window expired.", "",
          std::nullopt};
}

// The record of a batch whose files are written next.
BatchRecord ending(BatchRecord record, BatchStatus status, std::int64_t now) {
  if (record.status == BatchStatus::kValidating) record.num_requests = 0;
  record.status = status;
  (status == BatchStatus::kCancelling ? record.cancelling_at : record.finalizing_at) = now;
  record.output_file_id = make_id("file-");
  record.error_file_id = make_id("file-");
  return record;
}

}  // namespace

// A full disk keeps no batch running that its client gave up: the state is written later.
void BatchStore::begin_cancel(Batch& batch, std::int64_t now) {
  BatchRecord record = ending(batch.active->record(), BatchStatus::kCancelling, now);
  const auto saved = save(record);
  if (!saved) log::warn("batches: {} is cancelled, which is written later: {}", record.id, saved.error().message);
  batch.active->is_saved = saved.has_value();
  batch.active->set_record(std::move(record));
}

bool BatchStore::work(std::int64_t now) {
  if (now >= tidied_at_ + kTidyEvery) tidy(now);
  std::vector<std::string> ids;
  for (const auto& [id, active] : active_) {
    if (active->retry_at <= now) ids.push_back(id);
  }
  bool has_more = false;
  for (const std::string& id : ids) {
    Batch& batch = batches_.find(id)->second;
    const auto advanced = advance(batch, now);
    if (advanced) {
      has_more = has_more || *advanced;
      continue;
    }
    log::error("batches: {}: {}; tried again in {} s", id, advanced.error().message, kRetrySeconds);
    if (batch.active->record().is_ending()) batch.active->restart_files();
    batch.active->retry_at = now + kRetrySeconds;
  }
  return has_more;
}

Result<bool> BatchStore::advance(Batch& batch, std::int64_t now) {
  ActiveBatch& active = *batch.active;
  if (!active.is_saved) {
    if (auto saved = save(active.record()); !saved) return tl::make_unexpected(saved.error());
    active.is_saved = true;
  }
  if (auto failed = std::exchange(active.failure, std::nullopt)) {
    if (failed->code != kInputGone) return tl::make_unexpected(*std::move(failed));
    if (auto done = fail(batch, *failed, now); !done) return tl::make_unexpected(done.error());
    return false;
  }
  const BatchRecord& record = active.record();
  if (record.status == BatchStatus::kValidating) return validate(batch, now);
  if (record.is_ending()) return active.num_out() > 0 ? Result<bool>(false) : write_files(batch, now);
  if (!active.is_started()) {
    if (auto started = active.start(); !started) return tl::make_unexpected(started.error());
  }
  if (!active.is_answered() && now < record.expires_at) return false;
  if (auto changed = change(batch, ending(record, BatchStatus::kFinalizing, now)); !changed)
    return tl::make_unexpected(changed.error());
  return true;
}

Result<bool> BatchStore::validate(Batch& batch, std::int64_t now) {
  ActiveBatch::Found found;
  const auto read = batch.active->validate(found);
  if (!read && read.error().code == kInputGone) {
    if (auto done = fail(batch, read.error(), now); !done) return tl::make_unexpected(done.error());
    return false;
  }
  if (!read) return read;
  if (!*read) return true;
  BatchRecord record = batch.active->record();
  if (!found.errors.empty()) {
    record.status = BatchStatus::kFailed;
    record.failed_at = now;
    record.errors = std::move(found.errors);
    if (auto ended = end(batch, std::move(record)); !ended) return tl::make_unexpected(ended.error());
    return false;
  }
  record.status = BatchStatus::kInProgress;
  record.in_progress_at = now;
  record.num_requests = found.num_requests;
  if (auto changed = change(batch, std::move(record)); !changed) return tl::make_unexpected(changed.error());
  return true;
}

Result<void> BatchStore::fail(Batch& batch, const Error& error, std::int64_t now) {
  BatchRecord record = batch.active->record();
  record.status = BatchStatus::kFailed;
  record.failed_at = now;
  record.errors = {{error.code, error.message, error.param, std::nullopt}};
  return end(batch, std::move(record));
}

Result<bool> BatchStore::write_files(Batch& batch, std::int64_t now) {
  ActiveBatch& active = *batch.active;
  const auto written = active.finalize(unanswered_because(active.record()), now, batch.ended);
  if (!written) return written;
  if (!*written) return true;
  BatchRecord record = batch.ended;
  if (record.status == BatchStatus::kCancelling) {
    record.status = BatchStatus::kCancelled;
    record.cancelled_at = now;
  } else if (active.is_answered()) {
    record.status = BatchStatus::kCompleted;
    record.completed_at = now;
  } else {
    record.status = BatchStatus::kExpired;
    record.expired_at = now;
  }
  if (auto ended = end(batch, std::move(record)); !ended) return tl::make_unexpected(ended.error());
  return false;
}

void BatchStore::tidy(std::int64_t now) {
  tidied_at_ = now;
  for (const std::string& id : files_.expired(now)) {
    if (!needs_file(id)) files_.remove(id);
  }
  const std::int64_t kept = std::chrono::duration_cast<std::chrono::seconds>(options_.keep).count();
  std::vector<std::string> old;
  for (const auto& [id, batch] : batches_) {
    if (!batch.active && batch.record.ended_at() + kept <= now) old.push_back(id);
  }
  for (const std::string& id : old)
    forget(id);
}

}  // namespace quire
