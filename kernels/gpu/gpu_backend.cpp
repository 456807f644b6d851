#include "kernels/gpu/gpu_backend.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/check.h"
#include "kernels/cpu/machine/thread_pool.h"
#include "kernels/gpu/device/host_results.h"
#include "kernels/gpu/form_names.h"
#include "kernels/gpu/gpu_attention.h"
#include "kernels/gpu/gpu_graph_ops.h"
#include "kernels/gpu/gpu_kv.h"
#include "kernels/gpu/gpu_linear.h"
#include "kernels/gpu/gpu_recurrent.h"
#include "kernels/gpu/gpu_steps.h"
#include "kernels/gpu/kernels/embed.h"
#include "kernels/gpu/kernels/row_ops.h"
#include "kernels/gpu/moves/step_uploads.h"
#include "kernels/gpu/moves/weight_uploads.h"

namespace quire::gpu {
namespace {

constexpr const char* kArithmetic = "/3";  // changes with every change of the results' bits

class GpuBuffer final : public Buffer {
 public:
  GpuBuffer(Device& device, std::int64_t num_floats)
      : size_(num_floats), memory_(device, static_cast<std::size_t>(num_floats) * sizeof(float), "an array") {}
  float* data() override { return memory_.as<float>(); }
  std::int64_t size() const override { return size_; }

 private:
  std::int64_t size_;
  DeviceMemory memory_;
};

class GpuEmbedding final : public Embedding {
 public:
  GpuEmbedding(Device& device, WeightUploads& uploads, const WeightSource& table)
      : rows_(table.rows),
        cols_(table.cols),
        kernel_(device.kernel("embed " + std::string(form_name(table.type)))),
        table_(place_table(device, uploads, table)) {}
  std::int64_t dim() const override { return cols_; }
  std::int64_t rows() const { return rows_; }
  const Kernel& kernel() const { return kernel_; }
  const std::byte* table() const { return table_.data(); }

 private:
  std::int64_t rows_;
  std::int64_t cols_;
  const Kernel& kernel_;
  DeviceMemory table_;
};

class GpuBackend final : public Backend {
 public:
  GpuBackend(std::unique_ptr<GatheringDevice> device, const GpuBackendOptions& options)
      : name_(options.name + kArithmetic),
        device_(std::move(device)),
        norm_(device_->kernel("make_rows normed")),
        head_norm_(device_->kernel("head_norm")),
        rope_(device_->kernel("rope")),
        gather_(device_->kernel("gather")),
        pool_(options.threads, {}),
        weights_(*device_, pool_, options.loading_bytes),
        uploads_(*device_),
        results_(*device_),
        steps_(*device_, uploads_, results_),
        linear_(*device_, {.any_blocks = options.any_blocks}),
        attention_(*device_, uploads_, options.partial_bytes),
        graph_(*device_, uploads_, linear_, attention_),
        recurrent_(*device_, uploads_) {}
  ~GpuBackend() override;

  std::string name() const override { return name_; }
  bool has_own_memory() const override { return true; }
  bool has(Ability ability) const override {
    constexpr Ability kAbilities[] = {Ability::kGraph,      Ability::kMaskedAttention, Ability::kExperts,
                                      Ability::kHeadLinear, Ability::kStreams,         Ability::kAdapters};
    return std::ranges::find(kAbilities, ability) != std::end(kAbilities);
  }

  std::unique_ptr<Linear> load_linear(std::span<const WeightSource> parts, std::span<const float> bias) override {
    return std::make_unique<GpuLinear>(*device_, parts, bias, &weights_);
  }
  std::unique_ptr<Linear> load_linear_beside(const WeightSource& matrix) override {
    return std::make_unique<GpuLinear>(device_, matrix);
  }
  std::unique_ptr<Embedding> load_embedding(const WeightSource& table) override {
    QUIRE_CHECK(table.cols % dtype_info(table.type).block_size == 0, "embedding rows cut through a block");
    return std::make_unique<GpuEmbedding>(*device_, weights_, table);
  }
  std::unique_ptr<Buffer> upload(std::span<const float> values) override;
  std::unique_ptr<Buffer> allocate(std::int64_t num_floats) override {
    return std::make_unique<GpuBuffer>(*device_, num_floats);
  }
  std::unique_ptr<KvStorage> allocate_kv(const KvLayout& layout) override {
    return std::make_unique<GpuKvStorage>(*device_, layout);
  }
  std::size_t packed_bytes(DType type, std::int64_t rows, std::int64_t cols) const override {
    return groups_of_weights(type, rows, cols).bytes;
  }
  std::size_t kv_block_bytes(const KvLayout& layout) const override { return KvBlockShape(layout).bytes; }

  void embed(const Embedding& table, std::span<const std::int32_t> ids, MatrixView out) override;
  void rms_norm(MatrixView x, const float* weight, float eps, MatrixView out) override;
  void head_rms_norm(MatrixView x, std::int64_t num_heads, std::int64_t head_dim, const float* weight,
                     float eps) override;
  void linear(const Linear& weights, const ProductInput& x, MatrixView out, bool accumulate) override {
    linear_.run(static_cast<const GpuLinear&>(weights), x, out, accumulate);
  }
  void rope_angles(const RopePositions& positions, std::span<const double> inv_freq, float scale, MatrixView cos,
                   MatrixView sin) override;
  void rope(MatrixView x, std::int64_t num_heads, std::int64_t head_dim, RopeStyle style, MatrixView cos,
            MatrixView sin) override;
  void store_kv(KvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView k, MatrixView v) override {
    attention_.store(static_cast<GpuKvStorage&>(kv), layer, batch, k, v);
  }
  void attention(const KvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                 std::int64_t num_heads, float scale, MatrixView out) override {
    const AttentionOptions options{.num_heads = num_heads, .scale = scale, .causal = batch.causal};
    attention_.run(static_cast<const GpuKvStorage&>(kv), layer, batch, q, options, out);
  }
  void gather_rows(MatrixView x, std::span<const std::int32_t> rows, MatrixView out) override;
  void put_rows(std::span<const float> values, MatrixView out) override;
  RecurrentOps* recurrent() override { return &recurrent_; }
  GraphOps* graph() override { return &graph_; }
  StepOps* steps() override { return &steps_; }
  void parallel_for(std::int64_t count, std::int64_t grain,
                    const std::function<void(std::int64_t, std::int64_t)>& body) override;
  MatrixView on_host(MatrixView x, HostResult result) override { return results_.copy(x, result); }
  void synchronize() override;

 private:
  std::string name_;
  std::shared_ptr<GatheringDevice> device_;
  const Kernel& norm_;
  const Kernel& head_norm_;
  const Kernel& rope_;
  const Kernel& gather_;
  ThreadPool pool_;
  WeightUploads weights_;
  std::vector<float> cosines_;
  std::vector<float> sines_;
  StepUploads uploads_;
  HostResults results_;
  GpuSteps steps_;
  GpuLinearRunner linear_;
  GpuAttention attention_;
  GpuGraphOps graph_;
  GpuRecurrentOps recurrent_;
};

// Enqueued work must not outlive the memory that it uses; wait() has thrown its error already.
GpuBackend::~GpuBackend() {
  try {
    device_->synchronize();
  } catch (const DeviceError&) {
  }
}

std::unique_ptr<Buffer> GpuBackend::upload(std::span<const float> values) {
  auto buffer = std::make_unique<GpuBuffer>(*device_, static_cast<std::int64_t>(values.size()));
  device_->copy_to_device(reinterpret_cast<std::byte*>(buffer->data()),
                          reinterpret_cast<const std::byte*>(values.data()), values.size_bytes(), Stream::kCopy);
  device_->synchronize();
  return buffer;
}

void GpuBackend::embed(const Embedding& table, std::span<const std::int32_t> ids, MatrixView out) {
  const auto& embedding = static_cast<const GpuEmbedding&>(table);
  const auto known = [&](std::int32_t id) { return id < embedding.rows(); };
  QUIRE_CHECK(std::ranges::all_of(ids, known), "token id outside the embedding table");
  if (ids.empty()) return;
  const EmbedArgs args{.table = embedding.table(),
                       .ids = steps_.known_ids(ids, embedding.rows()),
                       .cols = embedding.dim(),
                       .out = out.data,
                       .out_stride = out.stride};
  device_->launch(embedding.kernel(), {.x = static_cast<std::int64_t>(ids.size()), .y = spread_pieces(embedding.dim())},
                  args);
}

void GpuBackend::rms_norm(MatrixView x, const float* weight, float eps, MatrixView out) {
  const RowsArgs args{.x = x.data,
                      .x_stride = x.stride,
                      .cols = x.cols,
                      .weight = weight,
                      .eps = eps,
                      .out = out.data,
                      .out_stride = out.stride};
  if (x.rows > 0) device_->launch(norm_, {.x = x.rows}, args);
}

void GpuBackend::head_rms_norm(MatrixView x, std::int64_t num_heads, std::int64_t head_dim, const float* weight,
                               float eps) {
  const HeadNormArgs args{.x = x.data,
                          .stride = x.stride,
                          .rows = x.rows,
                          .num_heads = num_heads,
                          .head_dim = head_dim,
                          .weight = weight,
                          .eps = eps};
  if (x.rows > 0) device_->launch(head_norm_, {.x = (x.rows * num_heads + 3) / 4}, args);
}

void GpuBackend::put_rows(std::span<const float> values, MatrixView out) {
  const GatherArgs args{
      .x = uploads_.put(values), .x_stride = out.cols, .cols = out.cols, .out = out.data, .out_stride = out.stride};
  if (out.rows > 0) device_->launch(gather_, {.x = out.rows, .y = spread_pieces(out.cols)}, args);
}

void GpuBackend::rope_angles(const RopePositions& positions, std::span<const double> inv_freq, float scale,
                             MatrixView cos, MatrixView sin) {
  cosines_.clear();
  sines_.clear();
  for (std::int64_t row = 0; row < cos.rows; ++row) {
    for (std::size_t i = 0; i < inv_freq.size(); ++i) {
      const double angle = positions.at(row, i) * inv_freq[i];
      cosines_.push_back(static_cast<float>(std::cos(angle)) * scale);
      sines_.push_back(static_cast<float>(std::sin(angle)) * scale);
    }
  }
  put_rows(cosines_, cos);
  put_rows(sines_, sin);
}

void GpuBackend::rope(MatrixView x, std::int64_t num_heads, std::int64_t head_dim, RopeStyle style, MatrixView cos,
                      MatrixView sin) {
  const RopeArgs args{.x = x.data,
                      .stride = x.stride,
                      .num_heads = num_heads,
                      .head_dim = head_dim,
                      .cos = cos.data,
                      .sin = sin.data,
                      .cos_stride = cos.stride,
                      .sin_stride = sin.stride,
                      .half = cos.cols,
                      .interleaved = style == RopeStyle::kInterleaved};
  if (x.rows > 0) device_->launch(rope_, {.x = x.rows, .y = groups_of(num_heads, Rope::kHeads)}, args);
}

void GpuBackend::gather_rows(MatrixView x, std::span<const std::int32_t> rows, MatrixView out) {
  const auto known = [&](std::int32_t row) { return row >= 0 && row < x.rows; };
  QUIRE_CHECK(std::ranges::all_of(rows, known), "gathered row out of range");
  if (rows.empty()) return;
  const GatherArgs args{.x = x.data,
                        .x_stride = x.stride,
                        .rows = uploads_.put(rows),
                        .cols = x.cols,
                        .out = out.data,
                        .out_stride = out.stride};
  device_->launch(gather_, {.x = static_cast<std::int64_t>(rows.size()), .y = spread_pieces(x.cols)}, args);
}

void GpuBackend::parallel_for(std::int64_t count, std::int64_t grain,
                              const std::function<void(std::int64_t, std::int64_t)>& body) {
  const std::int64_t step = std::max<std::int64_t>(1, grain);
  pool_.run(groups_of(count, step),
            [&](int, std::int64_t piece) { body(piece * step, std::min(count, (piece + 1) * step)); });
}

void GpuBackend::synchronize() {
  device_->synchronize();
  uploads_.reset();
}

}  // namespace

std::unique_ptr<Backend> make_gpu_backend(std::unique_ptr<Device> device, const GpuBackendOptions& options) {
  QUIRE_CHECK(device != nullptr, "a GPU backend without a device");
  return make_gpu_backend(std::make_unique<GatheringDevice>(std::move(device), options.graphs), options);
}

std::unique_ptr<Backend> make_gpu_backend(std::unique_ptr<GatheringDevice> device, const GpuBackendOptions& options) {
  QUIRE_CHECK(device != nullptr && options.threads >= 1, "a GPU backend without a device or threads");
  return std::make_unique<GpuBackend>(std::move(device), options);
}

}  // namespace quire::gpu
