#include "server/fleet/stream_sharer.h"

#include <fmt/format.h>

#include <sstream>
#include <utility>

namespace quire {

namespace {

constexpr const char* kElsewhere = "elsewhere";

// Redis runs a script atomically. An ended stream has the owner '-'. KEYS: the record. ARGV: this daemon, the record's
// lifetime, and the prefix of daemons' leases. Returns the record, which then belongs to this daemon.
constexpr const char* kTakeScript = R"(
local record = redis.call('GET', KEYS[1])
if not record then return '' end
local owner, rest = string.match(record, '^(%S+) (.*)$')
if not owner then return '' end
if owner ~= '-' and owner ~= ARGV[1] and redis.call('EXISTS', ARGV[3] .. owner) == 1 then return 'elsewhere' end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. rest, 'PX', ARGV[2])
return record
)";

// KEYS: the record. ARGV: this daemon, the rest of the record and its lifetime. Marks the stream as ended, unless
// another daemon took it over meanwhile.
constexpr const char* kEndScript = R"(
local record = redis.call('GET', KEYS[1])
local owner = record and string.match(record, '^(%S+) ')
if owner and owner ~= ARGV[1] then return 'elsewhere' end
redis.call('SET', KEYS[1], '- ' .. ARGV[2], 'PX', ARGV[3])
return 'ended'
)";

std::string record_of(const StreamOrigin& origin) {
  return fmt::format("{} {} {} {}", origin.seed, origin.created, origin.id_tail, origin.fingerprint);
}

// Returns nothing unless the text is a record.
std::optional<StreamOrigin> parse_record(const std::string& text) {
  std::istringstream words(text);
  std::string owner;
  StreamOrigin origin;
  words >> owner >> origin.seed >> origin.created >> origin.id_tail >> origin.fingerprint;
  const bool is_whole = !words.fail() && words.eof() && is_id_tail(origin.id_tail) && origin.created >= 0;
  return is_whole ? std::optional(std::move(origin)) : std::nullopt;
}

}  // namespace

StreamSharer::StreamSharer(const Options& options)
    : options_(options),
      prefix_('{' + options.prefix + ":streams}:"),
      id_(random_daemon_id()),
      link_(options.server,
            {.setting = "kv_cache.shared",
             .thread = "stream-net",
             .use = "streams can be resumed at another daemon",
             .consequence = "streams are resumed at their own daemon alone",
             .max_reply_bytes = kShortReplyBytes,
             .home = prefix_,
             .beat = options.heartbeat},
            {.up = [this] { beat(); }, .failed = [] {}, .beat = [this] { beat(); }}) {}

StreamSharer::~StreamSharer() = default;

void StreamSharer::begin(const std::string& name, const StreamOrigin& origin,
                         std::chrono::milliseconds window) noexcept {
  link_.post([this, name, stream = Active{record_of(origin), window}] {
    active_.insert_or_assign(name, stream);
    write(name, stream, false);
  });
}

void StreamSharer::end(const std::string& name) noexcept {
  link_.post([this, name] {
    const auto ended = active_.extract(name);
    if (ended.empty()) return;
    link_.call(key_of(name),
               redis_command({"EVAL", kEndScript, "1", key_of(name), id_, ended.mapped().record,
                              std::to_string(ended.mapped().window.count())}),
               [this](const RespReply* reply) { check(reply); });
  });
}

void StreamSharer::take(const std::string& name, std::chrono::milliseconds window,
                        std::function<void(Taken)> done) noexcept {
  link_.post([this, name, window, done = std::move(done)] {
    link_.call(key_of(name),
               redis_command(
                   {"EVAL", kTakeScript, "1", key_of(name), id_, std::to_string(window.count()), prefix_ + "alive:"}),
               [this, done](const RespReply* reply) {
                 Taken taken;
                 if (reply != nullptr && reply->kind == RespReply::Kind::kText) {
                   taken.is_elsewhere = reply->text == kElsewhere;
                   taken.origin = parse_record(reply->text);
                 }
                 done(std::move(taken));
                 check(reply);
               });
  });
}

// Renews the lease first, so that no record has an owner without one.
void StreamSharer::beat() {
  link_.call(prefix_,
             redis_command({"SET", prefix_ + "alive:" + id_, "1", "PX", std::to_string(options_.lease.count())}),
             [this](const RespReply* reply) { check(reply); });
  renew();
}

// Writes records that the store lost again, unless another daemon did so before.
void StreamSharer::renew() {
  for (const auto& [name, stream] : active_) {
    link_.call(key_of(name), redis_command({"PEXPIRE", key_of(name), std::to_string(stream.window.count())}),
               [this, name = name](const RespReply* reply) {
                 const auto lost = active_.find(name);
                 const bool is_gone = reply != nullptr && reply->kind == RespReply::Kind::kNumber && reply->number == 0;
                 if (is_gone && lost != active_.end()) write(name, lost->second, true);
               });
  }
}

void StreamSharer::write(const std::string& name, const Active& stream, bool only_if_absent) {
  std::vector<std::string> words = {"SET", key_of(name), id_ + ' ' + stream.record, "PX",
                                    std::to_string(stream.window.count())};
  if (only_if_absent) words.emplace_back("NX");
  link_.call(key_of(name), redis_command(words), [this](const RespReply* reply) { check(reply); });
}

// A full or read-only store keeps no records: streams continue without it.
void StreamSharer::check(const RespReply* reply) {
  if (reply == nullptr || reply->kind != RespReply::Kind::kError) return;
  const bool is_full = reply->text.starts_with("OOM") || reply->text.starts_with("READONLY");
  if (!is_full) link_.give_up("it refuses to keep streams: " + reply->text);
}

}  // namespace quire
