#include "server/fleet/quota_sharer.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

namespace quire {

namespace {

constexpr const char* kQuotaSetting = "shared_quotas";
constexpr std::int64_t kMostReplicas = 1'000'000;

// KEYS: the daemons, and optionally a bucket. ARGV: this daemon; the bucket's capacity (a minute's worth), the amount
// to take, and the level if the bucket is new. Returns the level and the number of daemons. Redis runs the script
// atomically and by its own clock.
constexpr const char* kScript = R"(
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - 15)
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + 15, '+inf')
redis.call('EXPIRE', KEYS[1], 60)
local level = 0
if KEYS[2] then
  local capacity = tonumber(ARGV[2])
  local bucket = redis.call('HMGET', KEYS[2], 'level', 'at')
  level = tonumber(bucket[1])
  local at = tonumber(bucket[2])
  if not level or not at or level ~= level then
    level = tonumber(ARGV[4])
    at = now
  end
  level = math.min(capacity, level + math.max(0, now - at) * capacity / 60) - tonumber(ARGV[3])
  redis.call('HSET', KEYS[2], 'level', string.format('%.6f', level), 'at', string.format('%.6f', now))
  redis.call('EXPIRE', KEYS[2], math.ceil((capacity - level) * 60 / capacity) + 60)
end
return string.format('%.6f %d', level, redis.call('ZCARD', KEYS[1]))
)";

struct SharedLevel {
  double level = 0.0;
  std::int64_t num_replicas = 0;
};

// Returns nothing unless the reply has the script's form.
std::optional<SharedLevel> parse_answer(const RespReply& reply) {
  if (reply.kind != RespReply::Kind::kText) return std::nullopt;
  SharedLevel answer;
  const char* const end = reply.text.data() + reply.text.size();
  const auto level = std::from_chars(reply.text.data(), end, answer.level);
  if (level.ec != std::errc() || level.ptr == end || *level.ptr != ' ' || !std::isfinite(answer.level))
    return std::nullopt;
  const auto replicas = std::from_chars(level.ptr + 1, end, answer.num_replicas);
  const bool is_right = replicas.ec == std::errc() && replicas.ptr == end && answer.num_replicas >= 1 &&
                        answer.num_replicas <= kMostReplicas;
  return is_right ? std::optional(answer) : std::nullopt;
}

}  // namespace

void check_quota_options(const SharedQuotaOptions& options) {
  if (options.server.is_given()) check_redis_server(options.server, kQuotaSetting);
}

QuotaSharer::QuotaSharer(const SharedQuotaOptions& options, std::vector<Table> tables, SharedQuotaCounts& counts)
    : options_(options),
      tables_(std::move(tables)),
      counts_(counts),
      prefix_('{' + options.prefix + ":quotas}:"),
      id_(random_daemon_id()),
      link_(options.server,
            {.setting = kQuotaSetting,
             .thread = "quota-net",
             .use = "rates of keys are shared through it",
             .consequence = "each daemon holds its part of every key's rates",
             .max_reply_bytes = kShortReplyBytes,
             .home = prefix_,
             .beat = options.heartbeat},
            {.up = [this] { note_up(); }, .failed = [this] { note_failed(); }, .beat = [this] { beat(); }}) {
  counts_.is_shared = true;
  for (const Table& each : tables_)
    each.table->share(options.replicas, [this] { wake(); });
}

QuotaSharer::~QuotaSharer() {
  for (const Table& each : tables_)
    each.table->share(options_.replicas, nullptr);
}

// Many requests cause a single wake-up. If memory fails, the heartbeat wakes the thread.
void QuotaSharer::wake() noexcept {
  if (link_.is_up() && !is_woken_.exchange(true)) link_.post([this] { pump(); });
}

void QuotaSharer::pump() {
  is_woken_ = false;
  for (const Table& each : tables_) {
    if (!link_.is_up()) return;
    for (const QuotaTable::Report& report : each.table->begin_reports(Clock::now()))
      ask(*each.table, each.scope, report);
  }
}

void QuotaSharer::note_up() {
  counts_.is_up = true;
  beat();
}

void QuotaSharer::beat() {
  link_.call(prefix_, redis_command({"EVAL", kScript, "1", prefix_ + "replicas", id_}),
             [this](const RespReply* reply) { take_answer(reply, nullptr, {}); });
  pump();
}

void QuotaSharer::note_failed() {
  counts_.is_up = false;
  ++counts_.num_failures;
  for (const Table& each : tables_)
    each.table->note_failure(Clock::now());
}

void QuotaSharer::ask(QuotaTable& table, const std::string& scope, const QuotaTable::Report& report) {
  const std::string bucket = fmt::format("{}{}{}", prefix_, scope, report.bucket);
  link_.call(prefix_,
             redis_command({"EVAL", kScript, "2", prefix_ + "replicas", bucket, id_, std::to_string(report.per_minute),
                            fmt::format("{:.6f}", report.ask.amount), fmt::format("{:.6f}", report.ask.level)}),
             [this, &table, report](const RespReply* reply) { take_answer(reply, &table, report); });
}

// A failed connection answers with null: note_failed() follows.
void QuotaSharer::take_answer(const RespReply* reply, QuotaTable* table, const QuotaTable::Report& report) {
  if (reply == nullptr) return;
  const std::optional<SharedLevel> answer = parse_answer(*reply);
  if (!answer) {
    link_.give_up(reply->kind == RespReply::Kind::kError ? "it refuses the script: " + reply->text
                                                         : "it answers with what is no level");
    return;
  }
  for (const Table& each : tables_)
    each.table->set_num_replicas(answer->num_replicas);
  counts_.num_replicas = answer->num_replicas;
  if (table == nullptr) return;
  table->note_answer(report, answer->level, Clock::now());
}

}  // namespace quire
