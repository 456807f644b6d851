// BlockMove: bytes that move between the pool and host memory beside a step. Engine thread only, except that the
// executor reads and fills the bytes from submission until the ticket is done. Invariant: a step's moves run in their
// order, after all steps submitted before, and before the step's copies and rows, so that a block is offloaded before
// it is written again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/kv/groups/kv_group.h"
#include "core/kv/index/prefix_index.h"
#include "core/kv/tiers/tier_record.h"

namespace quire {

class KvStorage;
class StateStorage;

struct BlockMove {
  enum class Kind : std::uint8_t {
    kOffload,    // from the pool to `bytes`
    kLoad,       // from `bytes` to the pool
    kCopyState,  // copies `source` to the state in `extras`; loads may follow
  };
  Kind kind;
  PrefixNode node = kNoNode;  // owner of the content
  BlockId block = kNoBlock;   // kNoBlock: the state or the part alone
  KvExtras extras{};          // part and state beside the block
  StateId source = kNoState;
  BlockPayload bytes{};                        // the block's bytes, then the groups'; see RecordLayout
  std::vector<std::byte>* unfilled = nullptr;  // kOffload: the vector that `bytes` holds
  std::uint8_t records = 0;                    // kOffload: bits of TierKind; the tiers to write to afterwards
  std::uint64_t chain = 0;                     // ChainTransfer's number for the chain; 0: none
};

// How long a step's moves took.
struct MoveTimes {
  double offload_s = 0.0;
  double load_s = 0.0;
};

// Does the moves, one after the other. states, windows: null where no move names a state or a part.
MoveTimes do_moves(std::span<const BlockMove> moves, KvStorage& storage, StateStorage* states, KvStorage* windows);

}  // namespace quire
