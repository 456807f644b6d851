#include "tests/ptx/machine/products.h"

#include "kernels/gpu/gpu_linear.h"
#include "tests/gpu/device_arrays.h"

namespace quire::test {

std::size_t run_product(gpu::Device& device, const ProductShape& shape) {
  std::mt19937 random(17);
  const Weights weights = random_weights(random, shape.type, shape.outputs, shape.depth);
  const WeightSource source = weights.source();
  const gpu::GpuLinear linear(device, {&source, 1}, {});
  gpu::GpuLinearRunner runner(device, {.skinny_rows = shape.is_wide ? 0 : shape.rows, .any_blocks = shape.is_wide});
  const DeviceMatrix in(device, random_matrix(random, shape.rows, shape.depth));
  const DeviceMatrix out(device, Matrix(shape.rows, shape.outputs));
  runner.run(linear, in.view(), out.view(), false);
  device.synchronize();
  return linear.bytes();
}

}  // namespace quire::test
