// TowerOps: the operations of a tower on rows, over a Backend, with buffers for intermediate rows. Engine thread.
// Rows lie in the backend's memory; values that the host makes or reads go through put() and on_host().
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/model/encode/towers/tower_weights.h"
#include "kernels/backend.h"

namespace quire {

class TowerOps {
 public:
  // Places of values that live within one piece of work.
  enum Room : std::uint8_t {
    kInput,
    kNormed,
    kProjected,
    kWide,
    kActivated,
    kOut,
    kClamped,
    kStepA,
    kStepB,
    kNumRooms
  };

  static constexpr std::int64_t kMostInCaches = 256;
  static constexpr std::int64_t kMostOnDevice = 2048;

  explicit TowerOps(Backend& backend) : backend_(backend) {}
  Backend& backend() const { return backend_; }

  // Valid until the next call for the same room.
  MatrixView room(Room room, std::int64_t rows, std::int64_t cols);
  // Most rows of a piece: on a CPU its activations stay in caches, on a device they fill it.
  std::int64_t most_rows() const { return backend_.has_own_memory() ? kMostOnDevice : kMostInCaches; }

  // Host memory for `count` floats, valid until the next call.
  std::span<float> host_values(std::int64_t count);
  // to = the first of the host's rows, which lie one behind the other.
  void put(std::span<const float> values, MatrixView to) {
    backend_.put_rows(values.first(static_cast<std::size_t>(to.rows * to.cols)), to);
  }
  // The rows as the host reads them, until the next call.
  MatrixView on_host(MatrixView x);

  void norm(const TowerNorm& norm, MatrixView x, MatrixView out);
  // A layer norm whose sums are f64.
  void norm_exactly(const TowerNorm& norm, MatrixView x, MatrixView out);
  // The same as norm() over each head.
  void head_norm(const TowerNorm& norm, std::int64_t num_heads, std::int64_t head_dim, MatrixView x);
  // out = x W^T + bias; out += x W^T + bias if nothing clamps the product.
  void multiply(const TowerProduct& product, MatrixView x, MatrixView out, bool accumulate = false);
  // Matrices on the same rows, outputs side by side.
  void multiply_all(std::span<const TowerProduct> products, MatrixView x, MatrixView out);
  // Each row of out is the mean of `count` rows of x.
  void mean(std::int64_t count, MatrixView x, MatrixView out);
  void activate(Nonlinearity kind, MatrixView gate, MatrixView up, MatrixView out);
  // out += scale * norm(product(x)); without a norm or scale where they are null.
  void add_product(const TowerProduct& product, const TowerNorm& norm, const Buffer* scale, MatrixView x,
                   MatrixView out);
  // The number of rows of x must be a multiple of the rows that the steps merge. The result lies in an internal buffer.
  MatrixView run_steps(const TowerSteps& steps, MatrixView x);
  // Replaces x; the steps must keep its shape.
  void run_in_place(const TowerSteps& steps, MatrixView x);

  // body(row) for each row, on the compute threads; it reads and writes memory of the host.
  void for_rows(std::int64_t rows, std::int64_t cols, const std::function<void(std::int64_t row)>& body);

 private:
  MatrixView run_step(const TowerStepWeights& step, MatrixView x, Room free);

  Backend& backend_;
  std::array<std::unique_ptr<Buffer>, kNumRooms> rooms_;
  std::vector<float> host_values_;
};

// Outputs of products side by side.
std::int64_t outputs_of(std::span<const TowerProduct> products);
// Rows that become one in the steps.
std::int64_t merged_rows(const TowerSteps& steps);
// Multiply-adds for each row that the steps give.
std::int64_t work_of(const TowerSteps& steps);

}  // namespace quire
