// QuotaTable: the use of each API key's quotas. Any thread. Rates are token buckets that hold a minute's worth: a key
// that was idle may use all of it at once. Prompt tokens are taken before a request is queued, generated ones when it
// ends, because they are not known earlier; they may leave a debt, which later requests wait for. Rates that are
// shared with other daemons are bounded here too, whatever the store says. Lease: one admitted request's share,
// released when destroyed. One thread at a time. Must not outlive its table.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/request/request.h"
#include "server/ops/keys/key_ring.h"
#include "server/ops/keys/shared_rate.h"
#include "server/ops/keys/token_bucket.h"

namespace quire {

// Metrics of the store that shares the rates.
struct SharedQuotaCounts {
  std::atomic<bool> is_shared{false};
  std::atomic<bool> is_up{false};
  std::atomic<std::int64_t> num_replicas{0};  // from the store's last answer
  std::atomic<std::int64_t> num_failures{0};
};

// kRuns: the request computes, and holds one of the key's places. kReads: it reads, deletes or resumes stored objects.
enum class QuotaUse { kRuns, kReads };

class QuotaTable {
  struct Rate;

 public:
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept { *this = std::move(other); }
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { release(); }

    // Takes a request's prompt tokens, and one request for each sequence beyond the first, or refuses: 429, with the
    // time after which they are available, if there is one.
    Result<void> take_prompt(std::int64_t num_tokens, std::int64_t num_sequences, Clock::time_point now);
    // Changes how many sequences of the request run or wait, one at first; refuses to exceed the key's bound.
    Result<void> hold(std::int64_t num_sequences);
    // Takes the generated tokens.
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
  Result<Lease> admit(const ApiKey& key, Clock::time_point now, QuotaUse use = QuotaUse::kRuns);
  // OpenAI's x-ratelimit-* header fields, name and value, for the rates that the key has.
  std::vector<std::pair<std::string, std::string>> headers(const ApiKey& key, Clock::time_point now);

  // Shares the rates with other daemons from now on; there are num_replicas of them until set_num_replicas(). `wake` is
  // called, on any thread and under the table's lock, when there is something to report; null: not shared.
  void share(std::int64_t num_replicas, std::function<void()> wake);
  void set_num_replicas(std::int64_t num_replicas);
  struct Report {
    std::string bucket;  // the same on every daemon
    std::int64_t per_minute = 0;
    SharedRate::Report ask{};
    Rate* rate = nullptr;
  };
  // Reports to send to the store now. Each is answered, or note_failure() says that all of them failed.
  std::vector<Report> begin_reports(Clock::time_point now);
  void note_answer(const Report& report, double level, Clock::time_point now);
  void note_failure(Clock::time_point now);

 private:
  struct Rate {
    TokenBucket own;
    SharedRate shared;
    std::int64_t per_minute = 0;  // limit at the last use
    std::string bucket{};         // its name in the store, if shared
    bool is_listed = false;       // in to_report_
  };
  struct Usage {
    Rate requests;
    Rate tokens;
    std::int64_t num_running = 0;  // sequences
  };
  Usage& usage_of(const std::string& key_name);
  void list(Rate& rate);
  // The remaining level of the rate.
  double level(Rate& rate, std::int64_t per_minute, Clock::time_point now);
  bool may_take(Rate& rate, double wanted, std::int64_t per_minute, Clock::time_point now);
  void take(Rate& rate, double amount, std::int64_t per_minute, Clock::time_point now);
  double seconds_until(Rate& rate, double wanted, Clock::time_point now) const;
  SharedRate::Limit limit_of(const Rate& rate) const { return {rate.per_minute, num_replicas_}; }
  Error too_soon(const std::string& name, const char* what, double wanted, Rate& rate, Clock::time_point now) const;

  std::mutex mutex_;
  std::unordered_map<std::string, Usage> usage_;  // by key name; bounded by all keys ever configured
  std::function<void()> wake_;                    // null: rates are not shared
  std::vector<Rate*> to_report_;
  std::int64_t num_replicas_ = 1;
};

}  // namespace quire
