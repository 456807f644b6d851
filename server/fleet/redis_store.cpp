#include "server/fleet/redis_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "core/base/log.h"

namespace quire {

namespace {

constexpr const char* kSetting = "kv_cache.shared";
// Limit on records being written, so that reads do not wait behind them.
constexpr std::int64_t kMostBytesOnTheWire = std::int64_t{4} << 20;
constexpr std::int64_t kMostHeadBytes = std::int64_t{1} << 20;  // limit on a record's bytes besides its payload

// A write that sends the record's bytes without copying them.
RedisCommand set_command(const std::string& name, const TierEvent& write, std::chrono::milliseconds lifetime) {
  const std::string record = record_head(write.record);
  const auto ttl = std::chrono::ceil<std::chrono::seconds>(lifetime);
  const std::size_t num_words = 3 + (write.only_if_absent ? 1 : 0) + (ttl.count() > 0 ? 2 : 0);
  RedisCommand command{.head = fmt::format("*{}\r\n$3\r\nSET\r\n${}\r\n{}\r\n${}\r\n", num_words, name.size(), name,
                                           record.size() + write.record.payload->size()),
                       .payload = write.record.payload,
                       .tail = "\r\n"};
  command.head += record;
  if (write.only_if_absent) command.tail += "$2\r\nNX\r\n";
  if (ttl.count() > 0) {
    const std::string seconds = std::to_string(ttl.count());
    command.tail += fmt::format("$2\r\nEX\r\n${}\r\n{}\r\n", seconds.size(), seconds);
  }
  return command;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

void check_store_options(const RedisStoreOptions& options) {
  if (options.server.is_given()) check_redis_server(options.server, kSetting);
}

RedisStore::RedisStore(const RedisStoreOptions& options, std::function<void()> ready)
    : options_(options),
      ready_(std::move(ready)),
      link_(options.server,
            {.setting = kSetting,
             .thread = "kv-net",
             .use = "KV blocks are shared through it",
             .consequence = "requests are served without it",
             .max_reply_bytes = static_cast<std::size_t>(options.max_bytes_in_flight + kMostHeadBytes)},
            {.up = [this] { note_up(); }, .failed = [this] { note_failed(); }}) {}

bool RedisStore::can_take(std::int64_t payload_bytes) {
  if (!is_up()) return false;
  const std::lock_guard lock(mutex_);
  return num_queued_bytes_ + payload_bytes <= options_.max_bytes_in_flight && Clock::now() >= refused_until_;
}

// If memory runs out here, the next call wakes the thread.
void RedisStore::wake() noexcept {
  link_.post([this] { pump(); });
}

void RedisStore::write(TierEvents write) noexcept {
  {
    const std::lock_guard lock(mutex_);
    num_queued_bytes_ += std::ssize(*write.front().record.payload);
    ++num_asked_;
    ++stats_.num_waiting;
    writes_.splice(writes_.end(), write);
  }
  wake();
}

void RedisStore::read(TierEvents read) noexcept {
  {
    const std::lock_guard lock(mutex_);
    ++num_asked_;
    reads_.splice(reads_.end(), read);
  }
  wake();
}

void RedisStore::look_up(KeyLookUps look_up) noexcept {
  {
    const std::lock_guard lock(mutex_);
    ++num_asked_;
    look_ups_.splice(look_ups_.end(), look_up);
  }
  wake();
}

void RedisStore::take_events(TierEvents& out, std::size_t most) noexcept {
  const std::lock_guard lock(mutex_);
  move_first(events_, most, out);
}

void RedisStore::take_look_ups(KeyLookUps& out) noexcept {
  const std::lock_guard lock(mutex_);
  out.splice(out.end(), answers_);
}

bool RedisStore::wait_idle(std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, until, [this] { return num_asked_ == 0; });
}

void RedisStore::drop_writes() {
  const std::lock_guard lock(mutex_);
  for (TierEvent& write : writes_) {
    num_queued_bytes_ -= std::ssize(*write.record.payload);
    write.record.payload.reset();
    write.kind = TierEvent::Kind::kLost;
    --num_asked_;
    --stats_.num_waiting;
    ++stats_.num_lost;
  }
  events_.splice(events_.end(), writes_);
}

SharedStoreStats RedisStore::stats() const {
  const std::lock_guard lock(mutex_);
  SharedStoreStats stats = stats_;
  stats.is_up = is_up() ? 1 : 0;
  return stats;
}

void RedisStore::note_up() {
  ready_();  // lets the engine see the change
  pump();
}

void RedisStore::note_failed() {
  {
    const std::lock_guard lock(mutex_);
    ++stats_.num_failures;
  }
  fail_queued();
}

// Answers waiting look-ups and reads as not found, and writes as lost. Commands already sent have a reply, or null.
void RedisStore::fail_queued() {
  {
    const std::lock_guard lock(mutex_);
    asked_.splice(asked_.end(), reads_);
    asked_.splice(asked_.end(), writes_);
    looking_up_.splice(looking_up_.end(), look_ups_);
    for (TierEvent& event : asked_) {
      const bool is_read = event.kind == TierEvent::Kind::kRead;
      if (!is_read) num_queued_bytes_ -= std::ssize(*event.record.payload);
      if (!is_read) event.kind = TierEvent::Kind::kLost;
      ++(is_read ? stats_.num_missed : stats_.num_lost);
      event.record = {};
    }
    for (KeyLookUp& look_up : looking_up_)
      look_up.record_bytes.clear();
    events_.splice(events_.end(), asked_);
    answers_.splice(answers_.end(), looking_up_);
    num_asked_ = 0;
    stats_.num_waiting = 0;
  }
  bytes_on_the_wire_ = 0;
  changed_.notify_all();
  ready_();
}

void RedisStore::pump() {
  if (!is_up()) return fail_queued();
  while (is_up() && send_next()) {
  }
}

// Sends reads and look-ups first; writes only while few of their bytes wait for replies.
bool RedisStore::send_next() {
  enum class Next { kNothing, kLookUp, kRead, kWrite } next = Next::kNothing;
  {
    const std::lock_guard lock(mutex_);
    if (!look_ups_.empty()) {
      looking_up_.splice(looking_up_.end(), look_ups_, look_ups_.begin());
      next = Next::kLookUp;
    } else if (!reads_.empty()) {
      asked_.splice(asked_.end(), reads_, reads_.begin());
      next = Next::kRead;
    } else if (!writes_.empty() && bytes_on_the_wire_ < kMostBytesOnTheWire) {
      asked_.splice(asked_.end(), writes_, writes_.begin());
      next = Next::kWrite;
    }
  }
  if (next == Next::kLookUp) send_look_up(std::prev(looking_up_.end()));
  if (next == Next::kRead) send_read(std::prev(asked_.end()));
  if (next == Next::kWrite) send_write(std::prev(asked_.end()));
  return next != Next::kNothing;
}

void RedisStore::send_read(TierEvents::iterator read) {
  const std::string name = name_of(read->record.fingerprint, read->key);
  link_.call(name, redis_command({"GET", name}),
             [this, read, sent = Clock::now()](const RespReply* reply) { take_read(read, reply, sent); });
}

// A reply's own time: since the previous reply, or since its command if sent later. Null: no reply came.
void RedisStore::take_read(TierEvents::iterator read, const RespReply* reply, Clock::time_point sent) {
  std::optional<TierRecord> record;
  if (reply != nullptr) {
    read->seconds = seconds_since(std::max(sent, last_reply_));
    last_reply_ = Clock::now();
    if (reply->kind == RespReply::Kind::kText) record = parse_record(std::as_bytes(std::span(reply->text)));
  }
  const bool is_right = record && record->key == read->key && record->fingerprint == read->record.fingerprint;
  read->record = is_right ? *std::move(record) : TierRecord{};
  {
    const std::lock_guard lock(mutex_);
    if (reply != nullptr) stats_.bytes_read += reply->text.size();
    ++(is_right ? stats_.num_read : stats_.num_missed);
  }
  post(read);
  note_refusal(reply);
}

void RedisStore::send_write(TierEvents::iterator write) {
  bytes_on_the_wire_ += std::ssize(*write->record.payload);
  const std::string name = name_of(write->record.fingerprint, write->key);
  link_.call(name, set_command(name, *write, options_.ttl),
             [this, write](const RespReply* reply) { take_write(write, reply); });
}

void RedisStore::take_write(TierEvents::iterator write, const RespReply* reply) {
  const std::int64_t num_bytes = std::ssize(*write->record.payload);
  const bool is_refused = reply != nullptr && reply->kind == RespReply::Kind::kError;
  const bool is_written = reply != nullptr && !is_refused;
  bytes_on_the_wire_ -= num_bytes;
  write->record.payload.reset();
  write->kind = is_written ? TierEvent::Kind::kWritten : TierEvent::Kind::kLost;
  {
    const std::lock_guard lock(mutex_);
    num_queued_bytes_ -= num_bytes;
    --stats_.num_waiting;
    ++(is_written ? stats_.num_written : stats_.num_lost);
    if (is_written) stats_.bytes_written += static_cast<std::uint64_t>(num_bytes);
    if (is_refused) refused_until_ = Clock::now() + options_.refusal_pause;
  }
  if (is_refused && !std::exchange(said_refused_, true)) {
    log::warn("kv_cache.shared: {} refuses writes ({}); it is read, and written again every {} s", link_.place(),
              reply->text, std::chrono::duration_cast<std::chrono::seconds>(options_.refusal_pause).count());
  }
  if (is_written && std::exchange(said_refused_, false))
    log::info("kv_cache.shared: {} takes writes again", link_.place());
  if (is_refused) drop_writes();
  post(write);
  if (reply == nullptr) return wake();  // not from here: each failure would recurse into the next
  pump();
}

// All sizes are requested at once; the look-up ends with the last reply. A cluster's nodes reply separately.
void RedisStore::send_look_up(KeyLookUps::iterator asked) {
  asked->record_bytes.assign(asked->keys.size(), 0);
  const auto asking = std::make_shared<Asking>(Asking{asked, asked->keys.size(), Clock::now()});
  std::vector<std::string> names;
  for (const ChainKey& key : asked->keys)
    names.push_back(name_of(asked->fingerprint, key));
  for (std::size_t place = 0; place < names.size(); ++place) {
    link_.call(names[place], redis_command({"STRLEN", names[place]}),
               [this, asking, place](const RespReply* reply) { take_size(*asking, place, reply); });
  }
}

void RedisStore::take_size(Asking& asking, std::size_t place, const RespReply* reply) {
  const KeyLookUps::iterator asked = asking.look_up;
  asking.is_answered = asking.is_answered || reply != nullptr;
  if (reply != nullptr && reply->kind == RespReply::Kind::kNumber) asked->record_bytes[place] = reply->number;
  if (--asking.num_awaited == 0) {
    asked->seconds = seconds_since(asking.sent);
    if (!asking.is_answered) asked->record_bytes.clear();
    {
      const std::lock_guard lock(mutex_);
      --num_asked_;
      answers_.splice(answers_.end(), looking_up_, asked);
    }
    changed_.notify_all();
    ready_();
  }
  note_refusal(reply);
}

// A store that refuses reads is given up; a key of another type only counts as not found.
void RedisStore::note_refusal(const RespReply* reply) {
  if (reply != nullptr && reply->kind == RespReply::Kind::kError && !reply->text.starts_with("WRONGTYPE"))
    link_.give_up("it refuses to be read: " + reply->text);
}

void RedisStore::post(TierEvents::iterator event) {
  bool wakes = event->kind == TierEvent::Kind::kRead;
  {
    const std::lock_guard lock(mutex_);
    --num_asked_;
    events_.splice(events_.end(), asked_, event);
    wakes = wakes || writes_.empty();  // there is room for more
  }
  changed_.notify_all();
  if (wakes) ready_();
}

std::string RedisStore::name_of(const ChainKey& fingerprint, const ChainKey& key) const {
  return fmt::format("{}:{}:{}", options_.prefix, hex_digits(fingerprint), hex_digits(key));
}

}  // namespace quire
