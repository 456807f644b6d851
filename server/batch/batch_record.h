// BatchRecord: one batch as it is stored on disk. Plain value; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/batch/batch_lines.h"

namespace quire {

enum class BatchStatus {
  kValidating,  // its input is being read
  kFailed,      // the input was refused: see errors
  kInProgress,
  kFinalizing,  // its files are being written, after completion or expiry
  kCompleted,
  kExpired,
  kCancelling,
  kCancelled,
};

inline constexpr std::array kBatchStatuses = {
    BatchStatus::kValidating, BatchStatus::kFailed,  BatchStatus::kInProgress, BatchStatus::kFinalizing,
    BatchStatus::kCompleted,  BatchStatus::kExpired, BatchStatus::kCancelling, BatchStatus::kCancelled};
const char* batch_status_name(BatchStatus status);

struct BatchRecord {
  std::string id;
  std::string owner;  // the API key's name
  std::string endpoint;
  std::string input_file_id;
  std::string completion_window;
  Json metadata;  // null, or texts
  BatchStatus status = BatchStatus::kValidating;
  // Unix seconds; 0: not yet.
  std::int64_t created_at = 0;
  std::int64_t in_progress_at = 0;
  std::int64_t expires_at = 0;
  std::int64_t finalizing_at = 0;
  std::int64_t completed_at = 0;
  std::int64_t failed_at = 0;
  std::int64_t expired_at = 0;
  std::int64_t cancelling_at = 0;
  std::int64_t cancelled_at = 0;
  std::int64_t output_keep_s = 0;  // seconds its files are kept; 0: as long as others
  std::vector<BatchError> errors;
  // Chosen before the files are written, so that a restart in between writes the same ones again.
  std::string output_file_id;
  std::string error_file_id;
  std::int64_t num_requests = 0;
  // While the batch runs, counted from the records of its answers.
  std::int64_t num_completed = 0;
  std::int64_t num_failed = 0;
  TokenUsage usage;

  bool has_ended() const {
    return status == BatchStatus::kFailed || status == BatchStatus::kCompleted || status == BatchStatus::kExpired ||
           status == BatchStatus::kCancelled;
  }
  std::int64_t ended_at() const { return failed_at + completed_at + expired_at + cancelled_at; }  // a single one is set
  bool is_running() const { return status == BatchStatus::kInProgress; }
  // Its output files are being written.
  bool is_ending() const { return status == BatchStatus::kFinalizing || status == BatchStatus::kCancelling; }
};

std::string encode_batch(const BatchRecord& record);
std::optional<BatchRecord> decode_batch(const std::string& text);

}  // namespace quire
