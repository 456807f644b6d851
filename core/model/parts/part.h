// Part: one kind of mixer or feed-forward: its weights, memory and operations, what it keeps of a sequence, its cut for
// several devices, and its computation. Parts hold no data: one constant of each class serves every layer of its kind
// (parts.h), and each function takes the layer's numbers. Any thread; run(), prepare() and store() engine thread only.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "core/model/parts/activations.h"
#include "core/model/parts/model_spec.h"
#include "kernels/backend.h"
#include "kernels/device_step_bytes.h"

namespace quire {

class LayerRun;
class RankCut;
class SpecChecker;
class WeightList;
struct SourceGroup;

// Sizes of a layer's recurrent state, in floats.
struct StateSize {
  std::int64_t conv = 0;
  std::int64_t behind_conv = 0;
};

// A matrix of each expert that an adapter may change: the product's outputs from first_output on.
struct ExpertMatrix {
  WeightRole role = WeightRole::kNoRole;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t first_output = 0;
  bool is_down = false;
  bool is_whole = false;  // has all outputs of its product
};

struct AbilityNeed {
  bool needed;
  Ability ability;
  const char* what;
};
// Names the first needed operation that the backend does not compute; null: none.
const char* first_lacking(std::initializer_list<AbilityNeed> needs, const Backend& backend);

class Part {
 public:
  virtual ~Part() = default;

  // Name on the page of models; empty: not mentioned there.
  virtual const char* name() const { return ""; }
  // A layer without this branch.
  virtual bool is_absent() const { return false; }

  // --- weights ---
  // Names of the roles that only this part has.
  virtual std::span<const RoleName> roles() const { return {}; }
  virtual void list_weights(const LayerSpec&, WeightList&) const {}
  // Size of the heads that the rows of this role are, if rotations pair their elements; 0: no such rows.
  virtual std::int64_t turned_rows(const LayerSpec&, WeightRole) const { return 0; }

  // Matrices of experts, independent of how the model's own file stacks them.
  virtual std::vector<ExpertMatrix> expert_matrices(const LayerSpec&, std::int64_t /*hidden_size*/) const { return {}; }

  // --- needs ---
  // Throws StartupError if a number is out of its range; `index` is the layer's.
  virtual void check(const LayerSpec&, std::int64_t /*index*/, const SpecChecker&) const {}
  virtual void fit(const LayerSpec&, std::int64_t /*hidden_size*/, Widths&) const {}
  virtual void bound(const LayerSpec&, StepBounds&) const {}
  // The first operation that the backend does not compute; null: none.
  virtual const char* lacking(const LayerSpec&, const ModelSpec&, Backend&) const { return nullptr; }
  // Uses no memory beside products' and the input and output.
  virtual bool is_plain(const LayerSpec&) const { return true; }

  // --- what it keeps ---
  // Dimensions of a head that ModelSpec::ropes[attention.rope] rotates; 0: none.
  virtual std::int64_t rotated_dim(const LayerSpec&) const { return 0; }
  // Attends over K and V of the heads of LayerSpec::attention, which other layers may read.
  virtual bool has_heads() const { return false; }
  // K and V of a token with the heads' sizes as computed; no layers: none.
  virtual KvGroupSpec kept(const LayerSpec&) const { return {}; }
  // Heads in the cache: padded with zeros to a multiple of eight elements.
  virtual KvLayerShape cached_heads(const LayerSpec&) const { return {}; }
  virtual StateSize state(const LayerSpec&) const { return {}; }

  // --- several devices ---
  // The reason why the layer cannot be divided; empty: it can.
  virtual std::string why_not_cut(const LayerSpec&, const SourceGroup&, int /*num_ranks*/) const { return ""; }
  // Keeps a rank's share: its numbers of `whole` in `spec`, its weights in the group.
  virtual void cut(const LayerSpec& /*whole*/, const RankCut&, LayerSpec& /*spec*/, SourceGroup&) const {}

  // --- computation ---
  // The result may be added to `out` in the course of the last product; else run() overwrites `out`.
  virtual bool can_accumulate(const LayerSpec&) const { return true; }
  // Norms its input itself: run() takes the layer's.
  virtual bool norms_input() const { return false; }
  // A single product takes all of the input, and may normalise it.
  virtual bool takes_one_product(const LayerSpec&) const { return false; }
  // Called with the layer's input, before the mixer.
  virtual void prepare(const LayerRun& /*layer*/, MatrixView /*x*/) const {}
  // Computes the branch: adds the result to `out`, or overwrites it.
  virtual void run(const LayerRun& layer, const ProductInput& in, MatrixView out, bool accumulate) const = 0;
  // Stores K and V of rows whose outputs are not needed.
  virtual void store(const LayerRun& layer, const ProductInput& in, std::int64_t rows) const;

 protected:
  using Role = WeightRole;
  using enum ActivationName;
  static std::int64_t padded(std::int64_t head_dim) { return (head_dim + 7) / 8 * 8; }
};

}  // namespace quire
