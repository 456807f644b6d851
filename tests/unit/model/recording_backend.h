// RecordingBackend: passes every operation to another backend and keeps the inputs of its matrix products. One thread
// at a time. A backend that quantises activations rounds values near a rounding edge either way, depending on a float's
// last bit; a reference agrees reliably only if it rounds the very values that the backend had.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "tests/support/made_rows.h"

namespace quire::test {

// inputs[call][row]: the input of a step's call-th product.
using Recording = std::vector<std::vector<std::vector<float>>>;

class RecordingBackend final : public Backend {
 public:
  // records: false where no inputs are asked for; each takes one more product.
  explicit RecordingBackend(std::unique_ptr<Backend> backend, bool records = true)
      : backend_(std::move(backend)), records_(records) {}

  Recording take() { return std::exchange(inputs_, {}); }
  // Rows from the last call of embed().
  const std::vector<float>& embedded() const { return embedded_; }

  void linear(const Linear& weights, const ProductInput& x, MatrixView out, bool accumulate) override {
    if (!records_) return backend_->linear(weights, x, out, accumulate);
    auto& rows = inputs_.emplace_back();
    const std::vector<float> made = made_rows(*backend_, x);
    for (auto row = made.begin(); row != made.end(); row += x.cols())
      rows.emplace_back(row, row + x.cols());
    backend_->linear(weights, x, out, accumulate);
  }

  std::string name() const override { return backend_->name(); }
  bool has(Ability ability) const override { return backend_->has(ability); }
  std::unique_ptr<Linear> load_linear(std::span<const WeightSource> parts, std::span<const float> bias) override {
    return backend_->load_linear(parts, bias);
  }
  std::unique_ptr<Linear> load_linear_beside(const WeightSource& matrix) override {
    return backend_->load_linear_beside(matrix);
  }
  std::string packing() const override { return backend_->packing(); }
  std::unique_ptr<Linear> adopt_linear(std::span<const WeightSource> parts, std::span<const float> bias,
                                       std::span<const std::byte> packed) override {
    return backend_->adopt_linear(parts, bias, packed);
  }
  std::unique_ptr<Embedding> load_embedding(const WeightSource& table) override {
    return backend_->load_embedding(table);
  }
  std::unique_ptr<Buffer> upload(std::span<const float> values) override { return backend_->upload(values); }
  std::unique_ptr<Buffer> allocate(std::int64_t num_floats) override { return backend_->allocate(num_floats); }
  std::unique_ptr<KvStorage> allocate_kv(const KvLayout& layout) override { return backend_->allocate_kv(layout); }
  std::size_t packed_bytes(DType type, std::int64_t rows, std::int64_t cols) const override {
    return backend_->packed_bytes(type, rows, cols);
  }
  std::size_t kv_block_bytes(const KvLayout& layout) const override { return backend_->kv_block_bytes(layout); }
  void embed(const Embedding& table, std::span<const std::int32_t> ids, MatrixView out) override {
    backend_->embed(table, ids, out);
    if (!records_) return;
    embedded_.clear();
    for (std::int64_t row = 0; row < out.rows; ++row) {
      const float* first = out.data + row * out.stride;
      embedded_.insert(embedded_.end(), first, first + out.cols);
    }
  }
  void rms_norm(MatrixView x, const float* weight, float eps, MatrixView out) override {
    backend_->rms_norm(x, weight, eps, out);
  }
  void head_rms_norm(MatrixView x, std::int64_t num_heads, std::int64_t head_dim, const float* weight,
                     float eps) override {
    backend_->head_rms_norm(x, num_heads, head_dim, weight, eps);
  }
  void rope_angles(const RopePositions& positions, std::span<const double> inv_freq, float scale, MatrixView cos,
                   MatrixView sin) override {
    backend_->rope_angles(positions, inv_freq, scale, cos, sin);
  }
  void rope(MatrixView x, std::int64_t num_heads, std::int64_t head_dim, RopeStyle style, MatrixView cos,
            MatrixView sin) override {
    backend_->rope(x, num_heads, head_dim, style, cos, sin);
  }
  void store_kv(KvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView k, MatrixView v) override {
    backend_->store_kv(kv, layer, batch, k, v);
  }
  void attention(const KvStorage& kv, std::int64_t layer, const AttentionBatch& batch, MatrixView q,
                 std::int64_t num_heads, float scale, MatrixView out) override {
    backend_->attention(kv, layer, batch, q, num_heads, scale, out);
  }
  void put_rows(std::span<const float> values, MatrixView out) override { backend_->put_rows(values, out); }
  void gather_rows(MatrixView x, std::span<const std::int32_t> rows, MatrixView out) override {
    backend_->gather_rows(x, rows, out);
  }
  GraphOps* graph() override { return backend_->graph(); }
  RecurrentOps* recurrent() override { return backend_->recurrent(); }
  void parallel_for(std::int64_t count, std::int64_t grain,
                    const std::function<void(std::int64_t, std::int64_t)>& body) override {
    backend_->parallel_for(count, grain, body);
  }
  MatrixView on_host(MatrixView x, HostResult result) override { return backend_->on_host(x, result); }
  void synchronize() override { backend_->synchronize(); }

 private:
  std::unique_ptr<Backend> backend_;
  const bool records_;
  Recording inputs_;
  std::vector<float> embedded_;
};

}  // namespace quire::test
