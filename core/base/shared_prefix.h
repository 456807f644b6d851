// SharedPrefix: the full blocks of a prompt's beginning, which one daemon wrote to the shared store and another
// fetches: prefill apart from decode. Value type; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace quire {

struct SharedPrefix {
  std::int64_t num_tokens = 0;
  std::int32_t num_blocks = 0;
  std::string last_block{};   // its key, 32 hexadecimal digits; empty: there is no block
  std::string fingerprint{};  // of the model, its arithmetic and the layout: those who share blocks have the same
};

// What becomes of a request's prompt.
struct PrefixTransfer {
  bool publishes = false;           // the last event waits until the store has what it takes of the prompt
  std::optional<SharedPrefix> has;  // what another one published: it is fetched even where computing it costs less
};

}  // namespace quire
