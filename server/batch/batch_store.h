// BatchStore: all batches and their files, in one folder that outlives the process. Batch thread only. A lock gives the
// folder to one process at a time. Invariants: each request of a batch that ended is in its output file or in its error
// file, once; a state is on the disk before it is shown, but for a cancellation, which a full disk does not prevent;
// one owner (API key's name) never sees another's; work is done in slices, so that no call takes long.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/batch/active_batch.h"

namespace quire {

class BatchStore {
 public:
  // Creates the folder if it is absent. Throws StartupError if it cannot be used.
  explicit BatchStore(const BatchOptions& options);
  ~BatchStore();
  BatchStore(const BatchStore&) = delete;
  BatchStore& operator=(const BatchStore&) = delete;

  // Takes the lock and reads the stored state. Returns false if another process holds the folder.
  Result<bool> open();
  bool is_open() const { return is_open_; }
  void close();  // afterwards another process may open it
  // The functions below need an open store.
  FileStore& files() { return files_; }
  const FileStore& files() const { return files_; }
  // Errors: 404; 409 if it is the input of a batch that has not ended.
  Result<void> remove_file(const std::string& id, const std::string& owner);

  // `fields`: the client's choices, which work() validates later.
  Result<BatchRecord> create(BatchRecord fields, std::int64_t now);
  // Null if this owner has no such batch.
  const BatchRecord* find(const std::string& id, const std::string& owner) const;
  std::vector<const BatchRecord*> of_owner(const std::string& owner) const;  // the oldest first
  // Errors: 404; 409 if it has ended. A disk that refuses writes does not prevent it.
  Result<BatchRecord> cancel(const std::string& id, const std::string& owner, std::int64_t now);

  // The next request to answer: owners take turns, an owner's oldest batch comes first. `may_run` decides by owner.
  std::optional<BatchLine> next_line(const std::function<bool(const std::string& owner)>& may_run);
  // Returns whether the line's answer is still wanted.
  bool is_wanted(const BatchLine& line) const;
  // Stores the answer of a wanted line. After an error the caller may try again.
  Result<void> answer(const BatchLine& line, AnswerRecord answer);
  void give_back(BatchLine&& line);  // unanswered: a later next_line() returns it again
  void drop(const BatchLine& line);  // the line is not wanted any more

  // Does a slice of pending work: reads inputs, ends batches, writes their files, removes expired ones. Returns true if
  // more work is ready.
  bool work(std::int64_t now);

  struct Counts {
    std::int64_t num_files = 0;
    std::int64_t num_bytes = 0;
    std::int64_t num_active = 0;  // batches that have not ended
    std::map<std::string, std::int64_t> by_status;
    std::int64_t num_waiting = 0;    // unanswered requests of batches in progress
    std::int64_t num_out = 0;        // waiting requests that were given out
    std::int64_t num_completed = 0;  // since the start
    std::int64_t num_failed = 0;
    TokenUsage usage;  // completed and failed requests together
  };
  Counts counts() const;

 private:
  struct Batch {
    BatchRecord record;                   // valid once the batch has ended
    std::unique_ptr<ActiveBatch> active;  // null once the batch has ended
    BatchRecord ended;                    // while its files are written
    const BatchRecord& now() const { return active ? active->record() : record; }
  };

  void load_batches();
  std::filesystem::path record_path(const std::string& id) const { return batches_folder_ / (id + ".json"); }
  std::filesystem::path records_path(const std::string& id) const { return batches_folder_ / (id + ".answers"); }
  std::unique_ptr<ActiveBatch> activate(BatchRecord record);
  Result<void> save(const BatchRecord& record) const;
  // Saves the record before showing it.
  Result<void> change(Batch& batch, BatchRecord record);
  Result<void> end(Batch& batch, BatchRecord record);
  Result<void> make_place(const std::string& owner);
  void forget(const std::string& id);
  bool needs_file(const std::string& id) const;
  // Each returns true if there is more to do.
  Result<bool> advance(Batch& batch, std::int64_t now);
  Result<bool> validate(Batch& batch, std::int64_t now);
  Result<bool> write_files(Batch& batch, std::int64_t now);
  void begin_cancel(Batch& batch, std::int64_t now);
  Result<void> fail(Batch& batch, const Error& error, std::int64_t now);
  void tidy(std::int64_t now);

  const BatchOptions options_;
  const std::filesystem::path batches_folder_;
  StorageUse use_;
  FileStore files_;
  std::map<std::string, Batch> batches_;
  std::map<std::string, ActiveBatch*> active_;
  std::string last_owner_;  // owner of the request given out last
  std::int64_t tidied_at_ = 0;
  std::int64_t num_completed_ = 0;
  std::int64_t num_failed_ = 0;
  TokenUsage usage_;
  int lock_ = -1;
  bool is_open_ = false;
};

}  // namespace quire
