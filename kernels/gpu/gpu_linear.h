// GpuLinear: weights on a device, quantised types as strips, those of 16 bits as half tiles, others as the file's rows;
// GpuLinearRunner: enqueues the product of activations with one. Weights are immutable after construction, which any
// thread may do; the rest is the engine thread's. Invariant: an output row has the same bits whatever rows are computed
// with it and whatever kernel is chosen.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/gpu/device/device.h"
#include "kernels/gpu/device/device_memory.h"
#include "kernels/gpu/kernels/linear_int.h"
#include "kernels/gpu/moves/weight_uploads.h"
#include "kernels/gpu/pack/half_tiles.h"

namespace quire::gpu {

// A table of rows as embed reads them; returns when the device has it.
DeviceMemory place_table(Device& device, WeightUploads& uploads, const WeightSource& source);

class GpuLinear final : public Linear {
 public:
  // A kernel with its block's size in rows and outputs, for products of at most most_rows rows and at least
  // least_blocks blocks: fewer blocks would leave multiprocessors idle.
  struct Blocks {
    const Kernel* kernel = nullptr;
    std::int64_t rows = 0;
    std::int64_t outputs = 0;
    std::int64_t most_rows = std::numeric_limits<std::int64_t>::max();
    std::int64_t least_blocks = 0;

    Grid grid(std::int64_t num_rows, std::int64_t num_outputs) const;
  };
  // Matrices of one type, one behind the other.
  struct Part {
    std::int64_t rows = 0;
    std::int64_t first_output = 0;
    float scale = 1.0f;
    DeviceMemory weights = {};
    DeviceMemory order = {};  // order of input features; empty: their own
    DType type = DType::kF32;
    std::vector<Blocks> few = {};    // kernels for few rows; the first that fits
    std::vector<Blocks> many = {};   // kernels for many rows; the first that fits
    const Kernel* floats = nullptr;  // replaces the others for float types not of 16 bits

    const Kernel& one_row() const { return floats != nullptr ? *floats : *few.front().kernel; }
    // Blocks for items of experts with at most `num_rows` rows: 1, 8, 32 or, for 16-bit types, 64.
    const Blocks& few_of(std::int64_t num_rows) const;
  };

  // uploads: null: weights are packed by the calling thread.
  GpuLinear(Device& device, std::span<const WeightSource> parts, std::span<const float> bias,
            WeightUploads* uploads = nullptr);
  // A matrix that may be freed on any thread while steps run, and after the backend.
  GpuLinear(std::shared_ptr<Device> device, const WeightSource& matrix);

  std::int64_t in_features() const override { return in_features_; }
  std::int64_t out_features() const override { return out_features_; }
  std::size_t bytes() const override;

  std::span<const Part> parts() const { return parts_; }
  std::uint64_t serial() const { return serial_; }  // no other one of the process has it
  const float* bias() const { return bias_.as<const float>(); }

 private:
  void add(Device& device, WeightUploads* uploads, std::span<const WeightSource> sources,
           DeviceMemory::Release release);

  std::shared_ptr<Device> owner_;  // null: the device outlives it
  std::int64_t in_features_ = 0;
  std::int64_t out_features_ = 0;
  std::uint64_t serial_;
  std::vector<Part> parts_;
  DeviceMemory bias_;
};

class GpuLinearRunner {
 public:
  struct Options {
    std::int64_t skinny_rows = 64;  // most rows for the kernels for few rows
    bool any_blocks = false;        // small products take the kernels of large ones, too: for tests
  };
  explicit GpuLinearRunner(Device& device, const Options& options);

  // Enqueues out = x W^T + bias, or out += ...; x, its norm's weights and out lie on the device.
  void run(const GpuLinear& weights, const ProductInput& x, MatrixView out, bool accumulate);

 private:
  std::int64_t tile_stride(std::int64_t rows) const;
  void quantise(const ProductInput& x, const std::int32_t* order);
  MatrixView make_rows(const ProductInput& x, const std::int32_t* order);
  void round(const ProductInput& x, const std::int32_t* order, DType type);
  template <class Args>
  void launch(const GpuLinear::Part& part, const Args& args);
  void multiply(const GpuLinear::Part& part, std::int64_t depth, const LinearOutput& output);
  void multiply_halves(const GpuLinear::Part& part, std::int64_t depth, const LinearOutput& output);
  void multiply_floats(const GpuLinear::Part& part, MatrixView x, const LinearOutput& output);

  Device& device_;
  Options options_;
  const Kernel* quantise_[3];  // indexed by ProductInput::Form
  const Kernel* make_rows_[3];
  const Kernel* round_f16_[3];
  const Kernel* round_bf16_[3];
  DeviceMemory tiles_;
  DeviceMemory half_tiles_;
  DeviceMemory row_scales_;  // scales of half tiles of f16
  DeviceMemory made_rows_;
};

}  // namespace quire::gpu
