// QuotaSharer: the rates of API keys, shared by all daemons that use one Redis or Valkey server. Its thread `quota-net`
// reports the tables' use and fetches the remaining levels; no request waits for it. Invariants: each bucket has at
// most one report under way; any reply that is no answer counts as a failure of the store, after which each daemon
// holds its share of each rate; all times in the store are the store's own.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "server/fleet/fleet_options.h"
#include "server/fleet/redis_link.h"
#include "server/ops/keys/quota.h"

namespace quire {

// Throws StartupError for options that cannot be used.
void check_quota_options(const SharedQuotaOptions& options);

class QuotaSharer {
 public:
  struct Table {
    QuotaTable* table;
    std::string scope;  // distinguishes its buckets from another table's
  };

  // The tables and counts must outlive this. To be made before the first request.
  QuotaSharer(const SharedQuotaOptions& options, std::vector<Table> tables, SharedQuotaCounts& counts);
  ~QuotaSharer();
  QuotaSharer(const QuotaSharer&) = delete;
  QuotaSharer& operator=(const QuotaSharer&) = delete;

 private:
  void wake() noexcept;
  // The link's thread calls everything below.
  void note_up();
  void pump();
  void beat();
  void note_failed();
  void ask(QuotaTable& table, const std::string& scope, const QuotaTable::Report& report);
  void take_answer(const RespReply* reply, QuotaTable* table, const QuotaTable::Report& report);

  const SharedQuotaOptions options_;
  const std::vector<Table> tables_;
  SharedQuotaCounts& counts_;
  const std::string prefix_;  // contains a tag that keeps all keys on one cluster node
  const std::string id_;      // this daemon's random id
  std::atomic<bool> is_woken_{false};
  RedisLink link_;  // last: its thread uses this object at once
};

}  // namespace quire
