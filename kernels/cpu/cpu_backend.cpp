#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/check.h"
#include "kernels/cpu/cpu_attention.h"
#include "kernels/cpu/cpu_graph_ops.h"
#include "kernels/cpu/cpu_kv.h"
#include "kernels/cpu/cpu_linear.h"
#include "kernels/cpu/cpu_state_ops.h"
#include "kernels/cpu/machine/memory.h"
#include "kernels/cpu/machine/thread_pool.h"
#include "kernels/cpu/machine/topology.h"
#include "kernels/cpu/packing.h"
#include "kernels/cpu/rows/graph_math.h"

namespace quire {
namespace {

class CpuBuffer final : public Buffer {
 public:
  explicit CpuBuffer(std::int64_t num_floats)
      : size_(num_floats), memory_(static_cast<std::size_t>(num_floats) * sizeof(float)) {}
  float* data() override { return reinterpret_cast<float*>(memory_.data()); }
  std::int64_t size() const override { return size_; }

 private:
  std::int64_t size_;
  AlignedMemory memory_;
};

class CpuEmbedding final : public Embedding {
 public:
  explicit CpuEmbedding(const WeightSource& table) : table_(table) {
    if (table.maker == nullptr) return;
    const std::size_t row_bytes = dtype_bytes(table.type, table.cols);
    made_.resize(row_bytes * static_cast<std::size_t>(table.rows));
    for (std::int64_t row = 0; row < table.rows; ++row)
      table.maker->make_row(table.first_row + row, &made_[static_cast<std::size_t>(row) * row_bytes]);
    table_.data = made_.data();
  }
  std::int64_t dim() const override { return table_.cols; }
  const WeightSource& table() const { return table_; }

 private:
  WeightSource table_;
  std::vector<std::byte> made_;  // rows that no file holds
};

// Elements that one piece of an element-wise operation should have at least: less is not worth waking a thread.
constexpr std::int64_t kGrain = 8192;
constexpr std::int64_t kManyRows = 64;

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuBackendOptions& options)
      : kernels_(*options.kernels),
        pool_(options.threads, options.pin ? usable_cores() : std::vector<int>()),
        linear_(kernels_, pool_),
        attention_(kernels_, pool_),
        recurrent_(kernels_, pool_),
        graph_(kernels_, pool_, linear_, attention_) {}

  std::string name() const override { return std::string("cpu/") + kernels_.name; }

  std::unique_ptr<Linear> load_linear(std::span<const WeightSource> parts, std::span<const float> bias) override {
    return std::make_unique<CpuLinear>(parts, bias, kernels_.panel_form, &pool_,
                                       weights_.take(CpuLinear::packed_bytes(parts)));
  }
  std::unique_ptr<Linear> load_linear_beside(const WeightSource& matrix) override {
    const std::span parts(&matrix, 1);
    return std::make_unique<CpuLinear>(parts, std::span<const float>(), kernels_.panel_form, nullptr,
                                       share(AlignedMemory(CpuLinear::packed_bytes(parts))));
  }
  std::string packing() const override { return packing_name(kernels_.panel_form); }
  std::unique_ptr<Linear> adopt_linear(std::span<const WeightSource> parts, std::span<const float> bias,
                                       std::span<const std::byte> packed) override {
    if (packed.size() != CpuLinear::packed_bytes(parts)) return nullptr;
    return std::make_unique<CpuLinear>(parts, bias, packed);
  }
  std::unique_ptr<Embedding> load_embedding(const WeightSource& table) override {
    QUIRE_CHECK(table.cols % dtype_info(table.type).block_size == 0, "embedding rows cut through a block");
    return std::make_unique<CpuEmbedding>(table);
  }
  std::unique_ptr<Buffer> upload(std::span<const float> values) override {
    auto buffer = std::make_unique<CpuBuffer>(static_cast<std::int64_t>(values.size()));
    std::copy(values.begin(), values.end(), buffer->data());
    return buffer;
  }
  std::unique_ptr<Buffer> allocate(std::int64_t num_floats) override { return std::make_unique<CpuBuffer>(num_floats); }
  std::unique_ptr<KvStorage> allocate_kv(const KvLayout& layout) override {
    return std::make_unique<CpuKvStorage>(layout);
  }
  std::size_t packed_bytes(DType type, std::int64_t rows, std::int64_t cols) const override {
    return panel_layout(type, cols).bytes * static_cast<std::size_t>(num_panels(rows));
  }
  std::size_t kv_block_bytes(const KvLayout& layout) const override {
    return quire::kv_block_bytes(kv_geometry(layout));
  }

  void embed(const Embedding& table, std::span<const std::int32_t> ids, MatrixView out) override;
  void rms_norm(MatrixView x, const float* weight, float eps, MatrixView out) override;
  void head_rms_norm(MatrixView x, std::int64_t num_heads, std::int64_t head_dim, const float* weight,
                     float eps) override;
  void linear(const Linear& weights, const ProductInput& x, MatrixView out, bool accumulate) override {
    linear_.run(static_cast<const CpuLinear&>(weights), x, out, accumulate);
  }
  void linear_some(const Linear& weights, const ProductInput& x, std::span<const OutputRange> wanted, float rest,
                   MatrixView out) override;
  void rope_angles(const RopePositions& positions, std::span<const double> inv_freq, float scale, MatrixView cos,
                   MatrixView sin) override;
  void rope(MatrixView x, std::int64_t num_heads, std::int64_t head_dim, RopeStyle style, MatrixView cos,
            MatrixView sin) override;
  void store_kv(KvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView k, MatrixView v) override;
  void attention(const KvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                 std::int64_t num_heads, float scale, MatrixView out) override {
    attention_.run(static_cast<const CpuKvStorage&>(kv), layer, batch, q,
                   {.num_heads = num_heads, .scale = scale, .causal = batch.causal}, out);
  }
  void gather_rows(MatrixView x, std::span<const std::int32_t> rows, MatrixView out) override;
  void put_rows(std::span<const float> values, MatrixView out) override;
  RecurrentOps* recurrent() override { return &recurrent_; }
  GraphOps* graph() override { return &graph_; }
  void parallel_for(std::int64_t count, std::int64_t grain,
                    const std::function<void(std::int64_t, std::int64_t)>& body) override;
  void synchronize() override {}

 private:
  // body(row) for every row, rows of `cols` elements.
  template <class Body>
  void for_rows(std::int64_t rows, std::int64_t cols, const Body& body) {
    const std::int64_t step = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, cols));
    pool_.run((rows + step - 1) / step, [&](int, std::int64_t piece) {
      for (std::int64_t row = piece * step; row < std::min(rows, (piece + 1) * step); ++row)
        body(row);
    });
  }

  const KernelTable& kernels_;
  ThreadPool pool_;
  MemoryBlocks weights_;
  LinearRunner linear_;
  AttentionRunner attention_;
  CpuRecurrentOps recurrent_;
  CpuGraphOps graph_;
};

void CpuBackend::embed(const Embedding& table, std::span<const std::int32_t> ids, MatrixView out) {
  const WeightSource& source = static_cast<const CpuEmbedding&>(table).table();
  const std::size_t row_bytes = dtype_bytes(source.type, source.cols);
  for_rows(static_cast<std::int64_t>(ids.size()), source.cols, [&](std::int64_t row) {
    const std::int32_t id = ids[static_cast<std::size_t>(row)];
    QUIRE_CHECK(id >= 0 && id < source.rows, "token id outside the embedding table");
    dequantize(source.type, source.data + static_cast<std::size_t>(id) * row_bytes, source.cols,
               out.data + row * out.stride);
  });
}

void CpuBackend::rms_norm(MatrixView x, const float* weight, float eps, MatrixView out) {
  for_rows(x.rows, x.cols, [&](std::int64_t row) {
    kernels_.rms_norm(x.data + row * x.stride, weight, eps, x.cols, out.data + row * out.stride);
  });
}

void CpuBackend::head_rms_norm(MatrixView x, std::int64_t num_heads, std::int64_t head_dim, const float* weight,
                               float eps) {
  for_rows(x.rows, x.cols, [&](std::int64_t row) {
    for (std::int64_t head = 0; head < num_heads; ++head) {
      float* at = x.data + row * x.stride + head * head_dim;
      kernels_.rms_norm(at, weight, eps, head_dim, at);
    }
  });
}

void CpuBackend::linear_some(const Linear& weights, const ProductInput& x, std::span<const OutputRange> wanted,
                             float rest, MatrixView out) {
  for_rows(out.rows, out.cols, [&](std::int64_t row) {
    float* const columns = out.data + row * out.stride;
    std::int64_t column = 0;
    for (const OutputRange& range : wanted) {
      std::fill(columns + column, columns + std::max(column, std::min(range.begin, out.cols)), rest);
      column = std::min(range.end, out.cols);
    }
    std::fill(columns + column, columns + out.cols, rest);
  });
  if (!wanted.empty()) linear_.run_some(static_cast<const CpuLinear&>(weights), x, wanted, out);
}

void CpuBackend::rope_angles(const RopePositions& positions, std::span<const double> inv_freq, float scale,
                             MatrixView cos, MatrixView sin) {
  // A sine and cosine in double cost about twenty of the elements that kGrain counts.
  for_rows(cos.rows, 20 * cos.cols, [&](std::int64_t row) {
    for (std::int64_t i = 0; i < cos.cols; ++i) {
      const auto frequency = static_cast<std::size_t>(i);
      const double angle = positions.at(row, frequency) * inv_freq[frequency];
      cos.data[row * cos.stride + i] = static_cast<float>(std::cos(angle)) * scale;
      sin.data[row * sin.stride + i] = static_cast<float>(std::sin(angle)) * scale;
    }
  });
}

void CpuBackend::rope(MatrixView x, std::int64_t num_heads, std::int64_t head_dim, RopeStyle style, MatrixView cos,
                      MatrixView sin) {
  const auto rotate = style == RopeStyle::kHalf ? kernels_.rope_half : kernels_.rope_interleaved;
  for_rows(x.rows, num_heads * head_dim, [&](std::int64_t row) {
    for (std::int64_t head = 0; head < num_heads; ++head) {
      rotate(x.data + row * x.stride + head * head_dim, cos.data + row * cos.stride, sin.data + row * sin.stride,
             cos.cols);
    }
  });
}

void CpuBackend::store_kv(KvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView k, MatrixView v) {
  const auto& storage = static_cast<const CpuKvStorage&>(kv);
  const KvLayout& layout = storage.layout();
  const KvLayerShape& shape = storage.shape(layer);
  // Keys are scattered over a block's lines, few of which are in a cache: each is worth some eight of other elements.
  // Many rows are neighbours in a prompt, which share those lines: runs of them stay on one thread.
  const std::int64_t cost = k.rows < kManyRows ? 8 * (k.cols + v.cols) : k.cols;
  for_rows(k.rows, cost, [&](std::int64_t row) {
    const std::int64_t place = batch.slots[static_cast<std::size_t>(row)];
    QUIRE_CHECK(place >= 0 && place < layout.num_blocks * layout.block_size, "KV position out of range");
    for (std::int64_t head = 0; head < shape.num_heads; ++head) {
      KvHeadView view = storage.head(layer, head);
      const std::int64_t block = place / layout.block_size;
      const std::int64_t offset = place % layout.block_size;
      float rotated[kMostInt4HeadDim];
      const auto stored = [&](const float* vector, std::int64_t dim) {
        if (layout.dtype != KvDType::kI4) return vector;
        rotate_head(vector, dim, rotated);
        return static_cast<const float*>(rotated);
      };
      kernels_.store_key(view, block, offset, stored(k.data + row * k.stride + head * shape.key_dim, shape.key_dim));
      if (shape.value_dim == 0) continue;
      view.head_dim = shape.value_dim;
      kernels_.store_value(view, block, offset,
                           stored(v.data + row * v.stride + head * shape.value_dim, shape.value_dim));
    }
  });
}

void CpuBackend::put_rows(std::span<const float> values, MatrixView out) {
  for_rows(out.rows, out.cols, [&](std::int64_t row) {
    std::memcpy(out.data + row * out.stride, values.data() + row * out.cols,
                static_cast<std::size_t>(out.cols) * sizeof(float));
  });
}

void CpuBackend::gather_rows(MatrixView x, std::span<const std::int32_t> rows, MatrixView out) {
  for_rows(static_cast<std::int64_t>(rows.size()), x.cols, [&](std::int64_t row) {
    const std::int32_t from = rows[static_cast<std::size_t>(row)];
    QUIRE_CHECK(from >= 0 && from < x.rows, "gathered row out of range");
    std::memcpy(out.data + row * out.stride, x.data + from * x.stride,
                static_cast<std::size_t>(x.cols) * sizeof(float));
  });
}

void CpuBackend::parallel_for(std::int64_t count, std::int64_t grain,
                              const std::function<void(std::int64_t, std::int64_t)>& body) {
  const std::int64_t step = std::max<std::int64_t>(1, grain);
  pool_.run((count + step - 1) / step,
            [&](int, std::int64_t piece) { body(piece * step, std::min(count, (piece + 1) * step)); });
}

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuBackendOptions& options) {
  QUIRE_CHECK(options.kernels != nullptr && options.threads >= 1, "a CPU backend without kernels or threads");
  return std::make_unique<CpuBackend>(options);
}

}  // namespace quire
