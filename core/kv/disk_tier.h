// DiskTier: KV blocks that left the pool, as files in a directory: they outlive the process. Any thread; files are
// read, written and removed on its own thread `kv-disk`, and what it is asked returns at once. A block is found by the
// record before it and its tokens, compared in full: never by a hash alone. Invariants: the directory holds at most
// max_bytes of records; a record is served only where its checksum is right; records of another model or layout are
// never read.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/base/ids.h"
#include "core/kv/tier_index.h"
#include "core/kv/tier_record.h"

namespace quire {

struct DiskTierOptions {
  std::filesystem::path directory;
  std::int64_t max_bytes = std::int64_t{8} << 30;
  std::int64_t max_queued_bytes = std::int64_t{256} << 20;  // waiting to be written; more is not taken
  std::uint64_t fingerprint = 0;                            // of the model and the layout of a block
  std::int32_t block_size = 16;
};

class DiskTier {
 public:
  // `ready` is called on the tier's thread whenever a fetch has ended. Throws StartupError where the directory cannot
  // be used.
  DiskTier(const DiskTierOptions& options, std::function<void()> ready);
  ~DiskTier();  // writes what it was given
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  // The record of the block with these tokens after `parent` (kNoTierId: first, under `salt`); kNoTierId where there is
  // none.
  TierId find(TierId parent, const std::string& salt, std::span<const TokenId> tokens);
  bool contains(TierId record) const;
  // False until what an earlier process left is known: nothing is found or taken before; a fetch is answered after.
  bool is_loaded() const;
  // Takes a copy of a block to be written; its id, or that of the record it already has. kNoTierId where too much waits
  // already.
  TierId offer(TierId parent, const std::string& salt, std::span<const TokenId> tokens,
               std::span<const std::byte> payload);

  // Asks for the contents of records, in order; the answer comes by take_fetched() under the number returned.
  struct Fetched {
    std::uint64_t number;
    std::vector<std::vector<std::byte>> payloads;  // of the first records: what follows a damaged one is left out
    double seconds = 0.0;                          // that reading took
  };
  std::uint64_t fetch(std::vector<TierId> records);
  std::vector<Fetched> take_fetched();

  void wait_idle();  // until everything asked so far is done
  std::int64_t num_bytes() const;
  std::int64_t num_records() const;

 private:
  struct Fetch {
    std::uint64_t number;
    std::vector<TierId> records;
  };

  void run();
  void load();
  void write(const TierRecord& record);
  Fetched read(const Fetch& fetch);
  void remove_files();
  std::filesystem::path path_of(TierId id) const;

  const DiskTierOptions options_;
  const std::filesystem::path folder_;
  const std::function<void()> ready_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  TierIndex index_;
  std::deque<Fetch> fetches_;  // somebody waits for them: they go before what is to be written
  std::deque<TierRecord> writes_;
  std::vector<TierId> left_;  // the index; their files are still to be removed
  std::vector<Fetched> fetched_;
  std::int64_t num_queued_bytes_ = 0;
  TierId next_id_ = 1;
  std::uint64_t next_fetch_ = 1;
  bool is_loaded_ = false;  // what is on disk is known: nothing is taken before
  bool is_busy_ = true;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace quire
