// TierEvent: one read or write of a KV record, on its way to the thread that does it and back. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>

#include "core/kv/tiers/tier_record.h"

namespace quire {

// A request to the tier's thread, or its result: the event of the request returns as the event of the result, so that
// answering takes no memory.
struct TierEvent {
  enum class Kind : std::uint8_t {
    kFound,    // `record`, without its payload, of file_bytes: left by an earlier process, or by the one that wrote
    kLoaded,   // every existing record has been found
    kWritten,  // the record is written
    kLost,     // it could not be written
    kRead,     // `record` is the answer; without payload if missing or damaged
  };
  Kind kind;
  ChainKey key{};
  TierRecord record{};
  std::int64_t file_bytes = 0;
  double seconds = 0.0;         // time spent reading
  bool only_if_absent = false;  // writes: an existing record may hold more
};
using TierEvents = std::list<TierEvent>;

// Moves the first `most` of `from`, or all where there are fewer, to the end of `to`.
inline void move_first(TierEvents& from, std::size_t most, TierEvents& to) noexcept {
  const auto end = std::next(from.begin(), static_cast<std::ptrdiff_t>(std::min(most, from.size())));
  to.splice(to.end(), from, from.begin(), end);
}

}  // namespace quire
