// Ids of places in the KV cache. Value types; any thread.
#pragma once

#include <cstdint>
#include <limits>

#include "core/base/ids.h"

namespace quire {

inline constexpr BlockId kNoBlock{-1};

// A part of a block, which layers with a window keep.
using PartId = Id<struct PartTag, std::int32_t>;
inline constexpr PartId kNoPart{-1};

// A recurrent state, of a running sequence or as a snapshot.
using StateId = Id<struct StateTag, std::int32_t>;
inline constexpr StateId kNoState{-1};

// A place in the tree of contents: a block's content, or the root of one salt.
using PrefixNode = Id<struct PrefixNodeTag, std::int32_t>;
inline constexpr PrefixNode kNoNode{std::numeric_limits<std::int32_t>::min()};

}  // namespace quire
