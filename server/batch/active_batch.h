// ActiveBatch: a batch that has not ended: its input, the records of its answers, and the requests left. Batch thread
// only. Work is done in slices of a bounded size. Invariants: a request is given out once, and again only after it was
// returned or the process ended; its first record counts, so that it is answered once; memory does not grow with the
// size of the files.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/batch/batch_options.h"
#include "server/batch/batch_record.h"
#include "server/batch/file_store.h"

namespace quire {

// A request of a batch that is to be answered.
struct BatchLine {
  std::string batch_id;
  std::string owner;
  std::int64_t number = 0;
  BatchRequest request;
};

class ActiveBatch {
 public:
  ActiveBatch(const BatchOptions& options, FileStore& files, StorageUse& use, std::filesystem::path records,
              BatchRecord record);
  ~ActiveBatch();
  ActiveBatch(const ActiveBatch&) = delete;
  ActiveBatch& operator=(const ActiveBatch&) = delete;

  const BatchRecord& record() const { return record_; }
  void set_record(BatchRecord record) { record_ = std::move(record); }

  // Reads one slice of the input. Returns true when all was read: `found` then holds the number of requests, or the
  // input's errors.
  struct Found {
    std::int64_t num_requests = 0;
    std::vector<BatchError> errors;
  };
  Result<bool> validate(Found& found);
  // Reads the records written so far; to be called before next().
  Result<void> start();
  bool is_started() const { return records_.is_open(); }
  // The next request without an answer that was not given out; nothing if there is none.
  Result<std::optional<BatchLine>> next();
  void give_back(BatchLine&& line);
  // Stores an answer. After an error nothing was stored, and the caller may try again.
  Result<void> answer(const AnswerRecord& answer);
  // Releases a request that was given out and is no longer wanted.
  void drop() { --num_out_; }

  std::int64_t num_out() const { return num_out_; }
  bool is_answered() const { return record_.num_completed + record_.num_failed == record_.num_requests; }

  // Writes one slice of the output files from the records; requests without an answer get the error `unanswered`.
  // Returns true when the files are complete: `ended` is then the record with its final counts.
  Result<bool> finalize(const BatchError& unanswered, std::int64_t now, BatchRecord& ended);
  // Starts finalizing again, after an error.
  void restart_files();
  void remove_records();

  std::int64_t retry_at = 0;     // Unix seconds: no attempt before this
  std::optional<Error> failure;  // from next() or start(); work() handles it
  bool is_saved = true;          // the record is on the disk as it is here

 private:
  Result<LineReader> open_input();
  bool check_line(const std::string& line, std::int64_t line_number, Found& found);
  Result<std::optional<BatchLine>> read_next();
  void count(const AnswerRecord& answer);
  Result<void> take_room(std::int64_t num_bytes);
  Result<bool> copy_records(BatchRecord& ended);
  Result<bool> add_unanswered(const BatchError& unanswered, BatchRecord& ended);
  Result<void> add_line(bool failed, std::string line);
  Result<void> finish_files(std::int64_t now, BatchRecord& ended);

  const BatchOptions options_;
  FileStore& files_;
  StorageUse& use_;
  const std::filesystem::path records_path_;
  BatchRecord record_;
  std::int64_t paid_bytes_ = 0;  // reserved for the records and their copies

  std::optional<LineReader> input_;
  std::int64_t line_number_ = 0;                                  // lines, or requests, read of it so far
  std::int64_t next_number_ = 0;                                  // first request that was not given out yet
  std::set<std::pair<std::uint64_t, std::uint64_t>> custom_ids_;  // hashes of custom ids, used while validating
  Found found_;

  DiskFile records_;
  bool is_torn_ = false;       // the records may end in the middle of a line
  std::vector<bool> is_done_;  // indexed by request
  std::deque<BatchLine> returned_;
  std::int64_t num_out_ = 0;

  // Used while the files are written.
  std::optional<LineReader> recorded_;
  bool is_copied_ = false;
  std::vector<bool> is_written_;
  std::shared_ptr<FileUpload> output_;
  std::shared_ptr<FileUpload> errors_;
};

}  // namespace quire
