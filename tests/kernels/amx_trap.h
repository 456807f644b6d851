// AmxTrap: while one lives, the tile instructions of AMX (configuration, loads, stores, bf16 and int8 products) are
// executed in software wherever a thread of this process runs into one, so that machine code for AMX runs on processors
// without it. One thread at a time makes and destroys it; any number of threads may run tiles meanwhile. Invariant:
// what the processor would refuse (Intel SDM, volume 2, exceptions of AMX) is passed on as the signal it would have
// been, with a line on stderr that says why.
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

// Whether this processor executes tile instructions itself, for this process.
bool has_amx_tiles();
// Whether the vector instructions of the AMX level run here, whatever becomes of its tiles.
bool has_amx_vectors();

}  // namespace quire::test
