// The state that a model keeps of a sequence between steps, as groups of layers with the same state. Plain values; any
// thread. Invariant: a layer with something to keep is in one group and is addressed by (group, index among the group's
// layers); a layer that reads what another one keeps uses that one's address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire {

enum class KvDType : std::uint8_t { kF32, kF16, kBF16, kI8, kI4 };

inline constexpr std::int64_t kMostInt4HeadDim = 1024;  // limit for K and for V

enum class KvGroupKind : std::uint8_t {
  kFull,    // K and V of every token
  kWindow,  // K and V of the last `window` tokens: parts of blocks, given up behind the window
  kLatent,  // a row per token as key and value: one head, no V
  kState,   // a fixed number of floats per sequence, replaced as tokens are computed
};

struct KvGroupSpec {
  KvGroupKind kind = KvGroupKind::kFull;
  std::int64_t num_layers = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;      // floats of K per head
  std::int64_t value_dim = -1;    // floats of V per head; -1: as head_dim, 0: no V is kept (kLatent)
  std::int64_t window = 0;        // kWindow: tokens that a token sees, itself among them
  std::int64_t state_floats = 0;  // kState: floats of one sequence over all its layers
};

// K and V of one layer.
struct KvLayerShape {
  std::int64_t num_heads = 0;  // 0: the layer keeps none
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;  // 0: V is part of K and not kept
};

// The blocks of one paged group.
struct KvLayout {
  std::int64_t num_layers = 0;
  std::int64_t num_blocks = 0;
  std::int64_t block_size = 16;  // tokens per block; a multiple of 16
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  KvDType dtype = KvDType::kF16;
  std::int64_t value_dim = -1;            // floats of V per head; -1: as head_dim, 0: no V is kept
  std::vector<KvLayerShape> layers = {};  // [num_layers] where they differ; empty: all as above

  KvLayerShape shape(std::int64_t layer) const {
    if (!layers.empty()) return layers[static_cast<std::size_t>(layer)];
    return {num_kv_heads, head_dim, value_dim < 0 ? head_dim : value_dim};
  }
};

// Two layouts: of the layers that keep a window, and of the layers that keep all tokens. Each layer has its number in
// both, and is empty in one of them.
struct KvSplit {
  std::int64_t window = 0;  // tokens that a token sees at most, itself among them; 0: all layers keep all
  KvLayout full;
  KvLayout windowed;
};

}  // namespace quire
