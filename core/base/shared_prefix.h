// SharedPrefix: the full blocks at a prompt's beginning that one daemon wrote to the shared store for another to fetch:
// disaggregated prefill. Value type; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace quire {

struct SharedPrefix {
  std::int64_t num_tokens = 0;
  std::int32_t num_blocks = 0;
  std::string last_block{};   // the block's key, 32 hexadecimal digits; empty: no block
  std::string fingerprint{};  // model, arithmetic and layout: equal for daemons that share blocks
};

// Exchange of a request's prompt with the shared store.
struct PrefixTransfer {
  bool publishes = false;           // the last event waits until the store has accepted what it takes of the prompt
  std::optional<SharedPrefix> has;  // another daemon's prefix: fetched even if computing it costs less
};

}  // namespace quire
