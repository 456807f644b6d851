// TierFolder: a folder of KV records with its lock and its thread `kv-io`. Called by the engine's thread, which never
// waits for a file here: writes, reads and removals are queued, and results come back as events. The process with the
// lock writes to the folder; others only read, and take over the lock once it is free. Invariants: a record is named by
// its content's chain key and returned only whole; a reported record is read unchanged, or not at all; without the lock
// nothing in the folder is changed; each accepted read or write has its event, even without memory.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/thread_role.h"
#include "core/kv/tiers/tier_event.h"

namespace quire {

struct TierFolderOptions {
  std::filesystem::path directory;  // the folder is below it, named by the fingerprint
  ChainKey fingerprint;
  std::int32_t block_size = 16;
  std::int64_t max_bytes = 0;               // all folders together; unused ones of other models go first
  std::int64_t max_queued_bytes = 0;        // waiting to be written; more is not taken
  std::chrono::milliseconds pause{60'000};  // time without writing after a failed write
};

class TierFolder {
 public:
  // `ready` is called on the folder's thread when events have arrived. Throws StartupError if the folder cannot be
  // made.
  TierFolder(const TierFolderOptions& options, std::function<void()> ready);
  ~TierFolder();  // completes the queued requests
  TierFolder(const TierFolder&) = delete;
  TierFolder& operator=(const TierFolder&) = delete;

  // Whether a record with such a payload would be taken: not if too much is queued, writing failed a while ago, or
  // another process writes here (whose lock is then tried again).
  bool can_take(std::int64_t payload_bytes);
  // Each call takes one event: for a write, its key and record; for a read, its key and the record's number.
  void write(TierEvents write) noexcept;
  void read(TierEvents read) noexcept;
  // Without memory for the request, the file stays until the folder is loaded again.
  void remove(const ChainKey& key) noexcept;
  // Moves at most `most` events to the end of `out`.
  void take_events(TierEvents& out, std::size_t most) noexcept;

  std::uint64_t next_number() { return number_ += 0x9e3779b97f4a7c15ULL; }
  bool can_write() const;  // the lock is held
  // Waits until all requests so far are done; false if `until` came first.
  bool wait_idle(std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max());
  void drop_writes();  // drops the writes that have not begun

 private:
  void run() QUIRE_REQUIRES(kKvIoThread);
  bool take_lock() noexcept QUIRE_REQUIRES(kKvIoThread);
  void note_lock(int why) QUIRE_REQUIRES(kKvIoThread);
  void load() noexcept QUIRE_REQUIRES(kKvIoThread);
  void find_records() QUIRE_REQUIRES(kKvIoThread);
  void trim_other_folders() const QUIRE_REQUIRES(kKvIoThread);
  void remove_one(const ChainKey& key) noexcept QUIRE_REQUIRES(kKvIoThread);
  void write_one(TierEvent& write) noexcept QUIRE_REQUIRES(kKvIoThread);
  void read_one(TierEvent& read) const noexcept QUIRE_REQUIRES(kKvIoThread);
  void pause_writing(const std::error_code& why) QUIRE_REQUIRES(kKvIoThread);
  void drop_lock() QUIRE_REQUIRES(kKvIoThread);
  void post(TierEvents event) noexcept QUIRE_REQUIRES(kKvIoThread);
  std::filesystem::path path_of(const ChainKey& key) const QUIRE_REQUIRES(kKvIoThread);

  const TierFolderOptions options_;
  const std::filesystem::path folder_;
  const std::function<void()> ready_;
  std::uint64_t number_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  TierEvents reads_;  // served before writes, because a request waits for them
  TierEvents writes_;
  std::list<ChainKey> removals_;
  TierEvents events_;
  std::int64_t num_queued_bytes_ = 0;
  std::chrono::steady_clock::time_point paused_until_{};
  bool wants_lock_ = true;
  bool has_lock_ = false;
  bool said_locked_ = false;
  bool is_busy_ = true;
  bool stopping_ = false;
  int lock_file_ QUIRE_GUARDED_BY(kKvIoThread) = -1;
  TierEvents loaded_ QUIRE_GUARDED_BY(kKvIoThread){{.kind = TierEvent::Kind::kLoaded}};  // posted when loading is done
  std::thread thread_;
};

}  // namespace quire
