// Mutator: deterministic variations of a fuzz target's corpus. One thread at a time.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace quire::fuzz {

using Input = std::vector<std::uint8_t>;

class Mutator {
 public:
  // corpus: not empty; must outlive this.
  Mutator(const std::vector<Input>& corpus, std::uint64_t seed) : corpus_(corpus), random_(seed) {}

  // A corpus entry with one to eight changes: bits, bytes, integers of any width, cuts, copies, pieces of other
  // entries.
  Input next();

 private:
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : static_cast<std::size_t>(random_() % bound); }
  void change(Input& input);
  void overwrite_integer(Input& input);
  void cut(Input& input);
  void copy(Input& input, const Input& from);

  const std::vector<Input>& corpus_;
  std::mt19937_64 random_;
};

}  // namespace quire::fuzz
