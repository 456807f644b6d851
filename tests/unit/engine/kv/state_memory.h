// StateMemory: recurrent states as the tokens that each stands after. One thread at a time.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "kernels/recurrent_ops.h"

namespace quire::test {

class StateMemory final : public StateStorage {
 public:
  explicit StateMemory(std::int64_t num_states)
      : layout_{num_states, 1}, tokens_(static_cast<std::size_t>(num_states)) {
    for (std::vector<TokenId>& each : tokens_)
      each.reserve(kMostTokens);  // copying takes no memory
  }
  const StateLayout& layout() const override { return layout_; }
  std::size_t state_bytes() const override { return (1 + kMostTokens) * sizeof(TokenId); }
  void copy_state(std::int32_t source, std::int32_t destination) override { of(destination) = of(source); }
  void read_state(std::int32_t state, std::span<std::byte> out) const override {
    const std::vector<TokenId>& held = tokens_.at(static_cast<std::size_t>(state));
    const auto count = static_cast<std::int32_t>(held.size());
    std::memcpy(out.data(), &count, sizeof count);
    std::memcpy(out.data() + sizeof count, held.data(), held.size() * sizeof(TokenId));
  }
  void write_state(std::int32_t state, std::span<const std::byte> in) override {
    std::int32_t count = 0;
    std::memcpy(&count, in.data(), sizeof count);
    of(state).resize(static_cast<std::size_t>(count));
    std::memcpy(of(state).data(), in.data() + sizeof count, of(state).size() * sizeof(TokenId));
  }
  std::vector<TokenId>& of(std::int32_t state) { return tokens_.at(static_cast<std::size_t>(state)); }

 private:
  static constexpr std::size_t kMostTokens = 128;
  StateLayout layout_;
  std::vector<std::vector<TokenId>> tokens_;
};

}  // namespace quire::test
