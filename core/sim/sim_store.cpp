#include "core/sim/sim_store.h"

#include <algorithm>
#include <utility>

namespace quire::sim {

const TierRecord* SimStore::find(const ChainKey& key, double now_s) {
  const auto found = places_.find(key);
  if (found == places_.end() || found->second->written_s > now_s) return nullptr;
  kept_.splice(kept_.end(), kept_, found->second);
  return &found->second->record;
}

void SimStore::put(TierRecord record, double written_s) {
  const ChainKey key = record.key;
  if (places_.contains(key)) return;
  kept_.push_back({std::move(record), written_s});
  places_[key] = std::prev(kept_.end());
  if (std::ssize(kept_) <= max_records_) return;
  places_.erase(kept_.front().record.key);
  kept_.pop_front();
}

double SimStoreClient::pass_block() {
  busy_until_s_ = std::max(busy_until_s_, clock_s_) + options_.shared_block_ms / 1000.0;
  return busy_until_s_ + latency_s();
}

void SimStoreClient::write(TierEvents write) noexcept {
  const double done_s = pass_block();
  store_.put(std::exchange(write.front().record, {}), done_s);
  ++report_.num_shared_writes;
  events_.splice(events_.end(), write);
  event_times_.push_back(done_s);
}

void SimStoreClient::read(TierEvents read) noexcept {
  const TierRecord* const found = store_.find(read.front().key, clock_s_);
  if (found != nullptr) {
    read.front().record = *found;
    ++report_.num_shared_reads;
  }
  // A daemon measures the block's own time, without the wait for earlier blocks.
  read.front().seconds = options_.shared_block_ms / 1000.0;
  event_times_.push_back(pass_block());
  events_.splice(events_.end(), read);
}

void SimStoreClient::look_up(KeyLookUps look_up) noexcept {
  KeyLookUp& asked = look_up.front();
  for (const ChainKey& key : asked.keys) {
    const TierRecord* const found = store_.find(key, clock_s_);
    asked.record_bytes.push_back(found != nullptr ? record_bytes(*found) : 0);
  }
  asked.seconds = latency_s();
  look_up_times_.push_back(clock_s_ + latency_s());
  look_ups_.splice(look_ups_.end(), look_up);
}

void SimStoreClient::take_events(TierEvents& out, std::size_t most) noexcept {
  for (; most > 0 && !events_.empty() && event_times_.front() <= clock_s_; --most) {
    out.splice(out.end(), events_, events_.begin());
    event_times_.pop_front();
  }
}

void SimStoreClient::take_look_ups(KeyLookUps& out) noexcept {
  while (!look_ups_.empty() && look_up_times_.front() <= clock_s_) {
    out.splice(out.end(), look_ups_, look_ups_.begin());
    look_up_times_.pop_front();
  }
}

double SimStoreClient::next_answer_s() const {
  double next_s = std::numeric_limits<double>::infinity();
  if (!event_times_.empty()) next_s = event_times_.front();
  if (!look_up_times_.empty()) next_s = std::min(next_s, look_up_times_.front());
  return next_s;
}

}  // namespace quire::sim
