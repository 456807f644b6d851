// StreamOrigin: everything besides its request that an answer depends on: with it another daemon gives the same answer,
// event by event. Value type; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace quire {

struct StreamOrigin {
  std::uint64_t seed = 0;    // used if the request has none
  std::int64_t created = 0;  // Unix seconds
  std::string id_tail;       // end of the ids of response and calls: 24 letters and digits
  std::string fingerprint;   // identifies model, arithmetic and version; empty: unknown
};

inline bool is_id_tail(const std::string& text) {
  return text.size() == 24 && text.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz") == std::string::npos;
}

}  // namespace quire
