// Backend: the hardware, as a small set of batch-shaped operations over plain views. The caller owns every view.
// Engine thread only, except the loading calls (one thread at a time, before the first step).
// Invariant (batch invariance): each output row depends only on its own inputs; the operations that make it and their
// order never depend on how many other rows there are, how the batch was cut into chunks, or how many threads run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/formats/dtype.h"
#include "kernels/graph_ops.h"
#include "kernels/kv_layout.h"
#include "kernels/recurrent_ops.h"

namespace quire {

class StepOps;

// Row-major f32 activations [rows, cols]; `stride` floats from one row to the next.
struct MatrixView {
  float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;
};

// Rows that a product multiplies: the rows of x, or rows computed from them on the fly and not stored.
struct ProductInput {
  enum class Form : std::uint8_t {
    kPlain,
    kNormed,  // x[r] / rms(x[r]) * norm_weight
    kGated,   // silu(x[:, j]) * x[:, x.cols / 2 + j]
  };
  ProductInput(MatrixView plain) : x(plain) {}
  ProductInput(Form made_by, MatrixView from, const float* weight = nullptr, float epsilon = 0.0f)
      : form(made_by), x(from), norm_weight(weight), eps(epsilon) {}
  std::int64_t cols() const { return form == Form::kGated ? x.cols / 2 : x.cols; }

  Form form = Form::kPlain;
  MatrixView x;
  const float* norm_weight = nullptr;  // [x.cols]
  float eps = 0.0f;
};

// RMSNorm (arXiv 1910.07467).
inline ProductInput normed(MatrixView x, const float* weight, float eps) {
  return {ProductInput::Form::kNormed, x, weight, eps};
}
// SwiGLU (arXiv 2002.05202) of gate and up side by side.
inline ProductInput gated(MatrixView gate_up) {
  return {ProductInput::Form::kGated, gate_up};
}

// Makes rows of a matrix in the blocks of its type, for weights that no file stores so. Immutable; any thread.
class RowMaker {
 public:
  virtual ~RowMaker() = default;
  virtual void make_row(std::int64_t row, std::byte* out) const = 0;  // out: dtype_bytes(type, cols)
};

// A weight matrix as the file holds it: row-major [rows = output features, cols = input features], rows contiguous.
struct WeightSource {
  DType type = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const std::byte* data = nullptr;
  float scale = 1.0f;  // common factor of the weights, applied to the products
  // Replaces data: rows are made while they are packed, this matrix's from first_row on.
  const RowMaker* maker = nullptr;
  std::int64_t first_row = 0;
  const std::int32_t* order = nullptr;  // [cols]: column k multiplies input order[k]; null: input k
};

// Rows [first, first + count) of a matrix: one expert of a stack of them.
inline WeightSource rows_of(const WeightSource& matrix, std::int64_t first, std::int64_t count) {
  WeightSource out = matrix;
  out.rows = count;
  if (matrix.maker != nullptr) {
    out.first_row += first;
  } else {
    out.data += static_cast<std::size_t>(first) * dtype_bytes(matrix.type, matrix.cols);
  }
  return out;
}

// A weight matrix packed for the backend; made by load_linear. Immutable after construction.
class Linear {
 public:
  virtual ~Linear() = default;
  virtual std::int64_t in_features() const = 0;
  virtual std::int64_t out_features() const = 0;
  virtual std::size_t bytes() const = 0;                            // resident bytes
  virtual std::span<const std::byte> packed() const { return {}; }  // input of adopt_linear
};

// Token embeddings, looked up by row; made by load_embedding. Immutable after construction.
class Embedding {
 public:
  virtual ~Embedding() = default;
  virtual std::int64_t dim() const = 0;
};

// A contiguous f32 array in the backend's memory. Move-only owner.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual float* data() = 0;
  virtual std::int64_t size() const = 0;  // number of floats
};

// The paged K and V of layers. Each backend lays out a block in its own way.
class KvStorage {
 public:
  virtual ~KvStorage() = default;
  virtual const KvLayout& layout() const = 0;
  virtual std::size_t block_bytes() const = 0;  // a block in all the group's layers, K and V
  virtual void copy_block(std::int32_t source, std::int32_t destination) = 0;
  virtual void read_block(std::int32_t block, std::span<std::byte> out) const = 0;  // out: block_bytes()
  virtual void write_block(std::int32_t block, std::span<const std::byte> in) = 0;
};

enum class RopeStyle : std::uint8_t {
  kInterleaved,  // pairs (2i, 2i+1): GGUF `llama`
  kHalf,         // pairs (i, i + rotary_dim/2): Hugging Face, GGUF `qwen2`, `qwen3`
};

// Some outputs of a product, [begin, end).
struct OutputRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
inline constexpr std::int64_t kOutputStep = 64;  // ranges begin at multiples of it

// The sequences of one step. Row r of the step belongs to sequence s where query_start[s] <= r < query_start[s+1]; its
// position is context_len[s] - (query_start[s+1] - r). Block tables hold enough blocks for context_len[s] tokens.
struct AttentionBatch {
  std::span<const std::int32_t> query_start;        // [num_seqs + 1]
  std::span<const std::int32_t> context_len;        // [num_seqs], tokens in the cache including this step's
  std::span<const std::int32_t> block_table_start;  // [num_seqs + 1] offsets into block_tables
  std::span<const std::int32_t> block_tables;       // block ids, sequences concatenated
  std::span<const std::int32_t> slots;           // [rows] block_id * block_size + offset: where row r's K/V are stored
  std::span<const std::int32_t> state_ids = {};  // [num_seqs] where recurrent layers keep the sequence's state
  bool causal = true;  // false: a row sees all of its sequence's context, in Backend::attention
  // [rows] a causal row sees tokens before this one as well, at most its context; empty: no row sees later ones.
  std::span<const std::int32_t> seen_end = {};
};

// Positions for the rotation: one number per row, or several from which each frequency takes one (M-RoPE, arXiv
// 2409.12191).
struct RopePositions {
  RopePositions(std::span<const std::int32_t> each) : values(each) {}
  RopePositions(const std::vector<std::int32_t>& each) : values(each) {}
  RopePositions(std::span<const std::int32_t> parts, std::int64_t parts_per_row, std::span<const std::uint8_t> axis)
      : values(parts), per_row(parts_per_row), axes(axis) {}

  std::int32_t at(std::int64_t row, std::size_t frequency) const {
    const std::int64_t part = per_row > 1 && !axes.empty() ? axes[frequency] : 0;
    return values[static_cast<std::size_t>(row * per_row + part)];
  }

  std::span<const std::int32_t> values;  // [rows, per_row]
  std::int64_t per_row = 1;
  std::span<const std::uint8_t> axes{};  // [frequencies] which number of the position each takes; empty: the first
};

// Operations that a backend may lack. A model that needs them is refused when it is loaded.
enum class Ability : std::uint8_t {
  kGraph,            // GraphOps, except for those named below
  kMaskedAttention,  // windows, chunks, soft caps, sinks, slopes, values in keys, attention in both directions
  kExperts,          // route, experts
  kHeadLinear,
  kStreams,         // mix_streams, add_to_streams, match_length, keep_excess
  kAdapters,        // load_linear_beside while steps run
  kExpertAdapters,  // ExpertArgs::changes
  kInt4Cache,       // KvDType::kI4, except for layers whose V is part of K
};

// Memory of a backend's own, separate from the machine's.
struct BackendMemory {
  std::string name;  // "GPU 0 (NVIDIA H200)"
  std::uint64_t available = 0;
};

class ParallelBackend;

// Results that the host reads after a step; each has its own place.
enum class HostResult : std::uint8_t { kLogits, kHidden, kLabels, kDrafted };

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "cpu/avx512"
  virtual bool has(Ability /*ability*/) const { return true; }
  // The backends of several devices that compute a model together; null: this one computes all of it.
  virtual ParallelBackend* parallel() { return nullptr; }
  virtual int num_ranks() const { return 1; }            // number of those devices
  virtual bool has_own_memory() const { return false; }  // memory separate from the machine's

  // --- loading -----------------------------------------------------------------------------------------------------
  // Stacks `parts` (equal cols, possibly different types) into one operation with sum(rows) outputs: fused QKV,
  // gate+up. bias: sum(rows) floats or empty.
  virtual std::unique_ptr<Linear> load_linear(std::span<const WeightSource> parts, std::span<const float> bias) = 0;
  // Loads one small matrix like load_linear, on the caller's own thread: any thread, also while steps run.
  virtual std::unique_ptr<Linear> load_linear_beside(const WeightSource& matrix) = 0;
  // Names the layout of packed weights; empty if the backend cannot adopt them.
  virtual std::string packing() const { return {}; }
  // Works like load_linear, from Linear::packed() of the same parts on a backend of the same packing(). Keeps a view of
  // `packed`, which must outlive it. Null if `packed` has the wrong size.
  virtual std::unique_ptr<Linear> adopt_linear(std::span<const WeightSource> /*parts*/, std::span<const float> /*bias*/,
                                               std::span<const std::byte> /*packed*/) {
    return nullptr;
  }
  // Keeps a view of the source, which must outlive it.
  virtual std::unique_ptr<Embedding> load_embedding(const WeightSource& table) = 0;
  virtual std::unique_ptr<Buffer> upload(std::span<const float> values) = 0;
  virtual std::unique_ptr<Buffer> allocate(std::int64_t num_floats) = 0;
  virtual std::unique_ptr<KvStorage> allocate_kv(const KvLayout& layout) = 0;
  // Bytes that load_linear and allocate_kv will take, for the memory plan.
  virtual std::size_t packed_bytes(DType type, std::int64_t rows, std::int64_t cols) const = 0;
  virtual std::size_t kv_block_bytes(const KvLayout& layout) const = 0;

  // --- operations, in the order a layer uses them -------------------------------------------------------------------
  // An id below zero stands for the token drawn for place -id - 1 in the step before, if the backend has steps(); such
  // an id outside the table takes row 0.
  virtual void embed(const Embedding& table, std::span<const std::int32_t> ids, MatrixView out) = 0;
  // out[r] = x[r] / rms(x[r]) * weight. x and out may be the same.
  virtual void rms_norm(MatrixView x, const float* weight, float eps, MatrixView out) = 0;
  // Normalises each of `num_heads` heads of `head_dim` within every row of x, in place (Qwen3's QK-norm).
  virtual void head_rms_norm(MatrixView x, std::int64_t num_heads, std::int64_t head_dim, const float* weight,
                             float eps) = 0;
  // out = x W^T + bias, or out += ... if `accumulate` (the residual). The rows of x are made and quantised once for all
  // parts of W.
  virtual void linear(const Linear& weights, const ProductInput& x, MatrixView out, bool accumulate) = 0;
  // Computes only the outputs in `wanted`, ascending ranges that may reach beyond the last output. Each other column of
  // `out` is as in linear(), or `rest` if the backend saves its product.
  virtual void linear_some(const Linear& weights, const ProductInput& x, std::span<const OutputRange> /*wanted*/,
                           float /*rest*/, MatrixView out) {
    linear(weights, x, out, false);
  }
  // cos and sin [rows, rotary_dim / 2] of position * inv_freq, times `scale` (YaRN's attention factor).
  virtual void rope_angles(const RopePositions& positions, std::span<const double> inv_freq, float scale,
                           MatrixView cos, MatrixView sin) = 0;
  // Rotates the first rotary_dim (= 2 * cos.cols) elements of each head in place.
  virtual void rope(MatrixView x, std::int64_t num_heads, std::int64_t head_dim, RopeStyle style, MatrixView cos,
                    MatrixView sin) = 0;
  // Writes this step's k [rows, heads * key_dim] and v [rows, heads * value_dim] to batch.slots of `layer`.
  virtual void store_kv(KvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView k, MatrixView v) = 0;
  // Paged attention, causal unless the batch says otherwise: q, out [rows, num_heads * head_dim]; grouped-query:
  // num_heads is a multiple of num_kv_heads.
  virtual void attention(const KvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                         std::int64_t num_heads, float scale, MatrixView out) = 0;
  virtual void gather_rows(MatrixView x, std::span<const std::int32_t> rows, MatrixView out) = 0;
  // out = rows that the host made, one behind the other; they may change once this returns.
  virtual void put_rows(std::span<const float> values, MatrixView out) = 0;
  // Mixers that keep a fixed state per sequence; null if the backend has none.
  virtual RecurrentOps* recurrent() { return nullptr; }
  // Operations of further families' layers; null if the backend has none.
  virtual GraphOps* graph() { return nullptr; }
  // Two steps in flight, and drawing on the device; null if a step is done when its operations return.
  virtual StepOps* steps() { return nullptr; }

  // Runs body(begin, end) over [0, count) on the compute threads, caller included; returns when all is done. `grain` is
  // the smallest piece worth a thread.
  virtual void parallel_for(std::int64_t count, std::int64_t grain,
                            const std::function<void(std::int64_t begin, std::int64_t end)>& body) = 0;
  // The dense host copy of x, valid from synchronize() until the next call for the same result. The host
  // may write there. The CPU's is x itself.
  virtual MatrixView on_host(MatrixView x, HostResult /*result*/) { return x; }
  // Makes the operations' results visible to the host (a no-op on the CPU).
  virtual void synchronize() = 0;
};

}  // namespace quire
