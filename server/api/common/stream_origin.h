// StreamOrigin: all that an answer depends on beside its request: with it another daemon gives the same answer, event
// by event. Value type; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace quire {

struct StreamOrigin {
  std::uint64_t seed = 0;    // where the request has none
  std::int64_t created = 0;  // Unix seconds
  std::string id_tail;       // of the response's id and its calls': 24 letters and digits
  std::string fingerprint;   // of the model, its arithmetic and version; empty: not known yet
};

inline bool is_id_tail(const std::string& text) {
  return text.size() == 24 && text.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz") == std::string::npos;
}

}  // namespace quire
