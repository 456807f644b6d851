// The elementwise functions of feed-forwards and gates. Plain values; any thread. Included by the ISA level files, so
// it names no standard container and defines no function.
#pragma once

#include <cstdint>

namespace quire {

enum class Nonlinearity : std::uint8_t {
  kNone,
  kSilu,
  kGelu,         // the tanh form
  kGeluOfError,  // exact, by the error function
  kRelu,
  kReluSquared,
  kSwigluOai,
  kXielu,
  kTanh,
  kSigmoid,
  kQuickGelu,  // x sigmoid(1.702 x)
};

struct ActivationArgs {
  Nonlinearity kind = Nonlinearity::kSilu;
  float limit = 0.0f;  // upper limit of silu(gate), bound of the other factor; 0: none
  float alpha_p = 0.0f, alpha_n = 0.0f, beta = 0.0f, eps = 0.0f;  // kXielu
};

}  // namespace quire
