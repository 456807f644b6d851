// AmxTrap: while one exists, the tile instructions of AMX (configuration, loads, stores, bf16 and int8 products) are
// executed in software when a thread of this process meets one, so that machine code for AMX runs on processors without
// it. One thread at a time creates and destroys it; any number of threads may run tiles meanwhile. Invariant: an
// instruction that the processor would refuse (Intel SDM, volume 2, exceptions of AMX) raises the signal that it would
// raise, with the reason on stderr.
#pragma once

#include <cstdint>

namespace quire::test {

struct AmxCounts {
  std::int64_t configures = 0;
  std::int64_t releases = 0;
  std::int64_t zeros = 0;
  std::int64_t loads = 0;
  std::int64_t stores = 0;
  std::int64_t products = 0;
};

class AmxTrap {
 public:
  AmxTrap();
  ~AmxTrap();
  AmxTrap(const AmxTrap&) = delete;
  AmxTrap& operator=(const AmxTrap&) = delete;

  // Instructions executed by all threads since the trap was made or the last call of this.
  AmxCounts take_counts();
  // Threads whose tiles are configured now: a processor would save 8 KiB for each whenever it switches them.
  int configured_threads() const;
};

// Returns whether this processor executes tile instructions itself, for this process.
bool has_amx_tiles();
// Returns whether the vector instructions of the AMX level run here, with or without its tiles.
bool has_amx_vectors();

}  // namespace quire::test
