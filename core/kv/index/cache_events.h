// CacheEventLog: the full blocks in the pool, as a count, a digest and events of changes, for routers that route by
// prefix. Engine thread only; the sink takes a step's events without waiting. Invariants: events are in the order of
// the changes; if some are lost, because memory failed or the sink was full, the next events clear everything and then
// name every block in the pool, so that a subscriber is correct again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/content/media_names.h"
#include "core/kv/index/chain_key.h"

namespace quire {

struct CacheEvent {
  enum class Kind : std::uint8_t { kStored, kRemoved, kCleared };
  Kind kind;
  std::vector<std::uint64_t> hashes{};    // stored or removed blocks; stored ones form one chain
  std::optional<std::uint64_t> parent{};  // parent of the first stored block; nothing: a prompt begins there
  std::vector<TokenId> tokens{};          // tokens of the stored blocks; rows of media as placeholders
  struct Media {
    std::size_t block;  // index among the blocks stored
    MediaKey key;
  };
  std::vector<Media> media{};  // in order
  std::string adapter{};       // content key or name of the adapter; empty: none
};
using CacheEvents = std::vector<CacheEvent>;

class CacheEventSink {
 public:
  virtual ~CacheEventSink() = default;
  // Takes the events of a step; false where there is no room, and they are lost.
  virtual bool publish(CacheEvents events) noexcept = 0;
  virtual bool has_room() const noexcept = 0;
};

class CacheEventLog {
 public:
  // `media` must outlive it.
  explicit CacheEventLog(const MediaNames& media) : media_(media) {}
  // Whether a block with this parent begins a new event, which names its adapter.
  bool begins_event(const ChainKey* parent) const { return sink_ != nullptr && !is_lost_ && !goes_on(parent); }
  // A block of this content came into the pool. parent: null for the first of a prompt. adapter: its content key, where
  // the block begins an event.
  void note_stored(const ChainKey& key, const ChainKey* parent, std::span<const TokenId> tokens,
                   std::string_view adapter) noexcept;
  void note_removed(const ChainKey& key) noexcept;
  // Records changes for `sink`, which must outlive this object, from now on; existing content counts as lost.
  void set_sink(CacheEventSink* sink);
  // Reports that recorded events were dropped.
  void lose() {
    is_lost_ = true;
    ++num_losses_;
  }
  // Call at the end of a step. `name_all` calls its argument, with the parameters of note_stored(), for each block of
  // the pool, parents before children.
  template <class NameAll>
  void flush(NameAll&& name_all);

  std::uint64_t num_blocks() const { return num_blocks_; }
  std::uint64_t num_losses() const { return num_losses_; }
  std::uint64_t digest() const { return digest_; }  // the hashes, combined by exclusive or

 private:
  // More of a step than this is lost: an engine's step changes far less.
  static constexpr std::size_t kMostEvents = 1 << 16;

  bool goes_on(const ChainKey* parent) const;
  void record_stored(const ChainKey& key, const ChainKey* parent, std::span<const TokenId> tokens,
                     std::string_view adapter) noexcept;
  bool begin_again() noexcept;
  void record_media(std::span<const TokenId> tokens);

  const MediaNames& media_;
  CacheEventSink* sink_ = nullptr;
  CacheEvents events_;
  std::uint64_t num_blocks_ = 0;
  std::uint64_t digest_ = 0;
  std::uint64_t num_losses_ = 0;
  bool is_lost_ = false;
};

template <class NameAll>
void CacheEventLog::flush(NameAll&& name_all) {
  if (sink_ == nullptr) return;
  if (is_lost_) {
    if (!begin_again()) return;
    name_all([this](const ChainKey& key, const ChainKey* parent, std::span<const TokenId> tokens,
                    std::string_view adapter) { record_stored(key, parent, tokens, adapter); });
  }
  if (events_.empty() || is_lost_) return;
  CacheEvents events;
  events.swap(events_);
  if (!sink_->publish(std::move(events))) lose();
}

}  // namespace quire
