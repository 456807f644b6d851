// LayerRun: a layer while it runs: its numbers, weights and rows, and the operations that all parts use: products with
// the changes of adapters, norms, sums over ranks. ModelRun: the same for the weights outside the layers. Workspace:
// the memory that both use. Engine thread only. Invariant: a row's result depends only on its own sequence; nothing is
// allocated during a step.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/model/parts/activations.h"
#include "core/model/parts/adapter.h"
#include "core/model/parts/model_spec.h"
#include "core/model/parts/packed_group.h"
#include "kernels/backend.h"

namespace quire {

class RankSum;

// Consecutive rows of a slice with the same adapter.
struct AdapterRun {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  const Adapter* adapter = nullptr;
};

// Consecutive rows of a step, with the elements of its arrays that cover them.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  AttentionBatch attention;
  std::span<const std::int32_t> positions;
  std::int64_t positions_per_row = 1;
  StateStorage* states = nullptr;
  KvStorage* kv = nullptr;
  AttentionBatch window;           // the same for layers with a window
  KvStorage* window_kv = nullptr;  // their blocks; null: all layers keep all tokens
  MatrixView per_layer;            // [rows, layers * per_layer_size]
  MatrixView streams;              // [rows, num_streams * hidden]; no data: x is the only stream
  std::span<const AdapterRun> adapters;
  std::optional<std::span<const std::int32_t>> kept;  // rows kept after the last mixer; none: all
};

struct Rotation {
  MatrixView cos;
  MatrixView sin;
};

struct Workspace {
  // first_kv_layer: the model's first layer in the KV storage. rank_sum: null for a whole model. `spec` must outlive
  // it.
  Workspace(const ModelSpec& spec, Backend& backend, const Widths& widths, std::int64_t first_kv_layer,
            RankSum* rank_sum);

  GraphOps& graph() const;
  RecurrentOps& recurrent() const;
  MatrixView room(ActivationName which, std::int64_t rows, std::int64_t cols) const {
    return activations.view(which, rows, cols);
  }
  void norm(const PackedGroup& group, WeightRole role, MatrixView x, MatrixView out) const;
  void multiply(const PackedGroup& group, WeightRole product, const ProductInput& in, MatrixView out,
                bool accumulate) const {
    backend.linear(group.product(product), in, out, accumulate);
  }
  // Adds an adapter's changes of a product to its rows of `out`; `low`: memory between the two matrices.
  void add_low_rank(ActivationName low, const AdapterRun& rows, std::span<const LowRank> changes,
                    const ProductInput& in, MatrixView out) const;

  const ModelSpec& spec;
  Backend& backend;
  RankSum* const rank_sum;
  const std::int64_t first_kv_layer;
  const bool keeps_one_layer;
  const std::vector<StatePlace> state_places;
  const std::vector<std::int64_t> kept_windows;
  const float eps;
  std::unique_ptr<Buffer> ones;   // weight of norms without one
  std::unique_ptr<Buffer> zeros;  // zero weights of the same size
  // Taps of a convolution that returns the previous row; null: no block that predicts further tokens.
  std::unique_ptr<Buffer> previous_row;
  Activations activations;
  std::vector<Rotation> rotations;  // the slice's rotations, by rope
  std::vector<float> row_factors;
  std::vector<ExpertChange> expert_changes;
  std::vector<std::int32_t> row_changes;
  std::vector<std::int32_t> listed_ids;  // tokens that have an embedding for each layer
};

class ModelRun {
 public:
  ModelRun(Workspace& workspace, const PackedGroup& packed) : work(workspace), weights(packed) {}

  const ModelSpec& spec() const { return work.spec; }
  Backend& backend() const { return work.backend; }
  GraphOps& graph() const { return work.graph(); }
  MatrixView room(ActivationName which, std::int64_t rows, std::int64_t cols) const {
    return work.room(which, rows, cols);
  }
  float eps() const { return work.eps; }
  const float* vector(WeightRole role) const { return weights.vector(role); }
  void norm(WeightRole role, MatrixView x, MatrixView out) const { work.norm(weights, role, x, out); }
  void multiply(WeightRole product, const ProductInput& in, MatrixView out) const {
    work.multiply(weights, product, in, out, false);
  }
  void embed(WeightRole table, std::span<const std::int32_t> ids, MatrixView out) const {
    work.backend.embed(*weights.rows[static_cast<std::size_t>(table)], ids, out);
  }

  Workspace& work;
  const PackedGroup& weights;
};

class LayerRun {
 public:
  LayerRun(Workspace& workspace, const LayerSpec& layer_spec, const PackedLayer& packed, std::int64_t layer_index,
           const Slice& rows)
      : work(workspace), spec(layer_spec), weights(packed), index(layer_index), slice(rows) {}

  const ModelSpec& model() const { return work.spec; }
  Backend& backend() const { return work.backend; }
  GraphOps& graph() const { return work.graph(); }
  RecurrentOps& recurrent() const { return work.recurrent(); }
  MatrixView room(ActivationName which, std::int64_t rows, std::int64_t cols) const {
    return work.room(which, rows, cols);
  }
  float eps() const { return work.eps; }
  const float* vector(WeightRole role) const { return weights.vector(role); }
  void norm(WeightRole role, MatrixView x, MatrixView out) const { work.norm(weights, role, x, out); }
  // The input of a branch: normed inside its product if a single product takes all of it, else normed here.
  ProductInput input(WeightRole norm, MatrixView x, bool one_product) const;
  // Rotates heads by the rotation of LayerSpec::attention, in place.
  void rotate(MatrixView heads, std::int64_t count, std::int64_t head_dim) const;
  // Multiplies, with the changes of the rows' adapters.
  void multiply(WeightRole product, const ProductInput& in, MatrixView out, bool accumulate) const;
  // Multiplies by a matrix of which each rank has some columns.
  void multiply_cut(WeightRole product, const ProductInput& in, MatrixView out, bool accumulate) const;

  // The layer's recurrent state, or its floats after the convolution's.
  StatePart state(bool behind_conv) const;
  // Index of a layer in the KV storage.
  std::int64_t kv_layer(std::int64_t layer) const { return work.first_kv_layer + (work.keeps_one_layer ? 0 : layer); }
  // The storage of the layer's K and V.
  struct Kept {
    KvStorage& kv;
    const AttentionBatch& batch;
  };
  Kept kept() const {
    const bool has_parts = slice.window_kv != nullptr && work.kept_windows[static_cast<std::size_t>(index)] > 0;
    return has_parts ? Kept{*slice.window_kv, slice.window} : Kept{*slice.kv, slice.attention};
  }

  Workspace& work;
  const LayerSpec& spec;
  const PackedLayer& weights;
  const std::int64_t index;
  const Slice& slice;
};

}  // namespace quire
