#include "core/kv/index/cache_events.h"

#include <new>
#include <utility>

namespace quire {

bool CacheEventLog::goes_on(const ChainKey* parent) const {
  return parent != nullptr && !events_.empty() && events_.back().kind == CacheEvent::Kind::kStored &&
         events_.back().hashes.back() == parent->low;
}

void CacheEventLog::note_stored(const ChainKey& key, const ChainKey* parent, std::span<const TokenId> tokens,
                                std::string_view adapter) noexcept {
  ++num_blocks_;
  digest_ ^= key.low;
  record_stored(key, parent, tokens, adapter);
}

void CacheEventLog::record_stored(const ChainKey& key, const ChainKey* parent, std::span<const TokenId> tokens,
                                  std::string_view adapter) noexcept {
  if (sink_ == nullptr || is_lost_) return;
  try {
    if (!goes_on(parent)) {
      if (events_.size() >= kMostEvents) throw std::bad_alloc();
      events_.push_back({.kind = CacheEvent::Kind::kStored});
      if (parent != nullptr) events_.back().parent = parent->low;
      events_.back().adapter = adapter;
    }
    events_.back().hashes.push_back(key.low);
    events_.back().tokens.insert(events_.back().tokens.end(), tokens.begin(), tokens.end());
    if (has_media(tokens)) record_media(tokens);
  } catch (const std::bad_alloc&) {
    lose();
  }
}

void CacheEventLog::record_media(std::span<const TokenId> tokens) {
  CacheEvent& event = events_.back();
  const auto recorded = std::span(event.tokens).last(tokens.size());
  media_.visit(tokens, [&](const MediaNames::Stretch& stretch) {
    event.media.push_back({event.hashes.size() - 1, stretch.media.key});
    for (std::size_t i = 0; i < stretch.count; ++i)
      recorded[stretch.begin + i] = media_placeholder(stretch.row + static_cast<std::int64_t>(i));
  });
}

void CacheEventLog::note_removed(const ChainKey& key) noexcept {
  --num_blocks_;
  digest_ ^= key.low;
  if (sink_ == nullptr || is_lost_) return;
  try {
    if (events_.empty() || events_.back().kind != CacheEvent::Kind::kRemoved) {
      if (events_.size() >= kMostEvents) throw std::bad_alloc();
      events_.push_back({.kind = CacheEvent::Kind::kRemoved});
    }
    events_.back().hashes.push_back(key.low);
  } catch (const std::bad_alloc&) {
    lose();
  }
}

void CacheEventLog::set_sink(CacheEventSink* sink) {
  sink_ = sink;
  is_lost_ = true;
}

// False where the sink has no room yet, or memory fails.
bool CacheEventLog::begin_again() noexcept {
  if (!sink_->has_room()) return false;
  events_.clear();
  try {
    events_.push_back({.kind = CacheEvent::Kind::kCleared});
  } catch (const std::bad_alloc&) {
    return false;
  }
  is_lost_ = false;
  return true;
}

}  // namespace quire
