// QuotaTable: the use of each API key's quotas. Any thread. Rates are token buckets that hold a minute's worth: a key
// that was idle may use all of it at once. Prompt tokens are taken before a request is queued, generated ones when it
// ends, because they are not known earlier; they may leave a debt, which later requests wait for. Lease: one admitted
// request's share, released when destroyed. One thread at a time. Must not outlive its table.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/request/request.h"
#include "server/ops/key_ring.h"

namespace quire {

class QuotaTable {
 public:
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept { *this = std::move(other); }
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { release(); }

    // Takes a request's prompt tokens, and what its sequences count beyond the one that was admitted, or refuses: 429,
    // with the time after which they are available, where there is one.
    Result<void> take_prompt(std::int64_t num_tokens, std::int64_t num_sequences, Clock::time_point now);
    // Changes how many sequences of the request run or wait, one at first; refuses to exceed the key's bound.
    Result<void> hold(std::int64_t num_sequences);
    // Takes what was generated.
    void take_generated(std::int64_t num_tokens, Clock::time_point now);

   private:
    friend class QuotaTable;
    Result<void> take_requests(std::int64_t num_further, Clock::time_point now);
    void release();

    QuotaTable* table_ = nullptr;  // null: a key without quotas
    std::string name_;
    KeyQuota quota_;
    std::int64_t num_held_ = 0;
  };

  // Counts one more request of the key, or refuses it: 429 with retry_after.
  Result<Lease> admit(const ApiKey& key, Clock::time_point now);
  // OpenAI's x-ratelimit-* header fields, name and value, for the rates that the key has.
  std::vector<std::pair<std::string, std::string>> headers(const ApiKey& key, Clock::time_point now);

 private:
  struct Bucket {
    double level = 0.0;
    Clock::time_point at{};
    bool used = false;  // false: full
  };
  struct Usage {
    Bucket requests;
    Bucket tokens;
    std::int64_t num_running = 0;  // sequences
  };
  static double refill(Bucket& bucket, std::int64_t per_minute, Clock::time_point now);

  std::mutex mutex_;
  std::unordered_map<std::string, Usage> usage_;  // by key name: bounded by the keys there ever were
};

}  // namespace quire
