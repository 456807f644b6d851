// Recommends published models for a machine, by its memory and its read rate. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire::cli {

struct Recommendation {
  std::string reference;  // OWNER/NAME:QUANTISATION for --hf
  std::uint64_t file_bytes = 0;
  // Rate if the weights are read once per token at the machine's rate; 0 if that is unknown.
  double most_tokens_per_second = 0.0;
};

// At most three that fit into the memory, best first: the best of all, one that writes at reading speed, one for
// agents. A rate of 0 is unknown.
std::vector<Recommendation> recommend(std::uint64_t memory_bytes, double bytes_per_second);

}  // namespace quire::cli
