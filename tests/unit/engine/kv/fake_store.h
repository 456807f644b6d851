// FakeStore: a SharedStore whose records lie in a map that several of them share, as processes share a real one. It
// answers at once, or once answer() is called. One thread at a time.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/kv/tiers/shared_store.h"

namespace quire::test {

using StoredRecords = std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>, std::vector<std::byte>>;

class FakeStore final : public SharedStore {
 public:
  explicit FakeStore(std::shared_ptr<StoredRecords> records) : records_(std::move(records)) {}

  bool is_up() const override { return up; }
  bool can_take(std::int64_t /*payload_bytes*/) override { return up && !full; }
  void write(TierEvents write) noexcept override { take(std::move(write)); }
  void read(TierEvents read) noexcept override {
    ++num_reads;
    take(std::move(read));
  }
  void look_up(KeyLookUps look_up) noexcept override {
    ++num_look_ups;
    asked_.splice(asked_.end(), look_up);
    if (answers) answer();
  }
  void take_events(TierEvents& out, std::size_t /*most*/) noexcept override { out.splice(out.end(), events_); }
  void take_look_ups(KeyLookUps& out) noexcept override { out.splice(out.end(), answered_); }
  bool wait_idle(std::chrono::steady_clock::time_point /*until*/) override { return answers; }
  void drop_writes() override {}
  SharedStoreStats stats() const override { return {.is_up = up ? 1U : 0U, .num_failures = num_failures}; }

  // Performs all queued reads, writes and look-ups; they fail if the store is not up.
  void answer() {
    for (TierEvent& event : queued_)
      event.kind == TierEvent::Kind::kRead ? answer_read(event) : answer_write(event);
    events_.splice(events_.end(), queued_);
    for (KeyLookUp& look_up : asked_) {
      look_up.seconds = seconds;
      for (const ChainKey& key : look_up.keys) {
        const auto found = records_->find(place(look_up.fingerprint, key));
        if (up) look_up.record_bytes.push_back(found == records_->end() ? 0 : std::ssize(found->second));
      }
    }
    answered_.splice(answered_.end(), asked_);
  }

  bool up = true;
  bool full = false;
  bool answers = true;
  double seconds = 1e-6;  // claimed time of each answer
  std::uint64_t num_failures = 0;
  int num_reads = 0;
  int num_writes = 0;
  int num_look_ups = 0;

 private:
  static StoredRecords::key_type place(const ChainKey& fingerprint, const ChainKey& key) {
    return {fingerprint.low ^ fingerprint.high, key.low, key.high};
  }
  void take(TierEvents events) {
    queued_.splice(queued_.end(), events);
    if (answers) answer();
  }
  void answer_read(TierEvent& event) {
    const auto found = records_->find(place(event.record.fingerprint, event.key));
    event.record = {};
    event.seconds = seconds;
    if (!up || found == records_->end()) return;
    if (auto record = parse_record(found->second)) event.record = *std::move(record);
  }
  void answer_write(TierEvent& event) {
    const std::string head = record_head(event.record);
    std::vector<std::byte> bytes(head.size());
    std::memcpy(bytes.data(), head.data(), head.size());
    bytes.insert(bytes.end(), event.record.payload->begin(), event.record.payload->end());
    const auto where = place(event.record.fingerprint, event.key);
    event.record.payload.reset();
    event.kind = up && !full ? TierEvent::Kind::kWritten : TierEvent::Kind::kLost;
    if (event.kind == TierEvent::Kind::kLost) return;
    ++num_writes;
    if (!event.only_if_absent || !records_->contains(where)) (*records_)[where] = std::move(bytes);
  }

  const std::shared_ptr<StoredRecords> records_;
  TierEvents queued_;
  TierEvents events_;
  KeyLookUps asked_;
  KeyLookUps answered_;
};

}  // namespace quire::test
