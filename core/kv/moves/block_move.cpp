#include "core/kv/moves/block_move.h"

#include <chrono>

#include "kernels/backend.h"
#include "kernels/recurrent_ops.h"

namespace quire {

namespace {

// Layers with a window come before recurrent ones: a payload with a state holds the part, too.
std::size_t state_begin(const KvStorage& storage, const KvStorage* windows) {
  return storage.block_bytes() + (windows == nullptr ? 0 : windows->block_bytes());
}

void offload(const BlockMove& move, const KvStorage& storage, const StateStorage* states, const KvStorage* windows) {
  const std::span<std::byte> bytes(*move.unfilled);
  storage.read_block(move.block.value, bytes.first(storage.block_bytes()));
  const auto& [part, state] = move.extras;
  if (part != kNoPart) windows->read_block(part.value, bytes.subspan(storage.block_bytes(), windows->block_bytes()));
  if (state != kNoState) states->read_state(state.value, bytes.subspan(state_begin(storage, windows)));
}

void load(const BlockMove& move, KvStorage& storage, StateStorage* states, KvStorage* windows) {
  const std::span<const std::byte> bytes(*move.bytes);
  if (move.block != kNoBlock) storage.write_block(move.block.value, bytes.first(storage.block_bytes()));
  const auto& [part, state] = move.extras;
  if (part != kNoPart) windows->write_block(part.value, bytes.subspan(storage.block_bytes(), windows->block_bytes()));
  if (state != kNoState) states->write_state(state.value, bytes.subspan(state_begin(storage, windows)));
}

}  // namespace

MoveTimes do_moves(std::span<const BlockMove> moves, KvStorage& storage, StateStorage* states, KvStorage* windows) {
  MoveTimes times;
  for (const BlockMove& move : moves) {
    const auto began = std::chrono::steady_clock::now();
    switch (move.kind) {
      case BlockMove::Kind::kOffload: offload(move, storage, states, windows); break;
      case BlockMove::Kind::kLoad: load(move, storage, states, windows); break;
      case BlockMove::Kind::kCopyState: states->copy_state(move.source.value, move.extras.state.value); continue;
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
    (move.kind == BlockMove::Kind::kLoad ? times.load_s : times.offload_s) += seconds.count();
  }
  return times;
}

}  // namespace quire
