// Activations: the matrices between a model's operations, each reused by every layer, in memory for a fixed number of
// rows. Engine thread only. Invariant: after reserve() nothing is allocated.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "kernels/backend.h"

namespace quire {

enum class ActivationName : std::uint8_t {
  kX,
  kInput,
  kNormed,
  kBranch,
  kBranch2,
  kQkv,
  kQuery,
  kWideQuery,
  kWideKey,
  kWideValue,
  kWideAttended,
  kAttended,
  kGateUp,
  kActivated,
  kRouter,
  kExpertIn,
  kExpertGateUp,
  kExpertOut,
  kMixed,
  kPerLayer,
  kStreams,
  kPredicted,
  kStreamFactors,
  kDense,
  kCos,
  kSin,
  kLowRank,
  kExpertLowRank,
  kNextHidden,
  kNextJoined,
  kNext,
  kHeadInput,  // rows whose logits are wanted, before the last norm
  kHidden,
  kLabelInput,
  kLabelDense,
  kLabels,
  kLogits,
  kHeadLowRank
};
inline constexpr std::size_t kNumActivations = static_cast<std::size_t>(ActivationName::kHeadLowRank) + 1;

// Floats of a row, by activation.
class Widths {
 public:
  std::int64_t& operator[](ActivationName which) { return all_[static_cast<std::size_t>(which)]; }
  std::int64_t operator[](ActivationName which) const { return all_[static_cast<std::size_t>(which)]; }
  void fit(ActivationName which, std::int64_t width) { (*this)[which] = std::max((*this)[which], width); }

 private:
  std::array<std::int64_t, kNumActivations> all_{};
};

class Activations {
 public:
  Activations(Backend& backend, const Widths& widths) : backend_(backend), widths_(widths) {}

  const Widths& widths() const { return widths_; }
  // Takes effect with the next reserve().
  void set_width(ActivationName which, std::int64_t width) { widths_[which] = width; }
  void reserve(ActivationName which, std::int64_t rows);
  std::int64_t capacity(ActivationName which) const { return at(which).capacity; }
  MatrixView view(ActivationName which, std::int64_t rows, std::int64_t cols) const;

 private:
  struct Memory {
    std::int64_t capacity = 0;
    std::unique_ptr<Buffer> buffer;
  };
  const Memory& at(ActivationName which) const { return memory_[static_cast<std::size_t>(which)]; }

  Backend& backend_;
  Widths widths_;
  std::array<Memory, kNumActivations> memory_;
};

}  // namespace quire
