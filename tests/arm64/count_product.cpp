// Computes a product of random weights on one level and one thread, for count_product.py, which counts its instructions
// under qemu. Usage: count_product LEVEL TYPE ROWS; 64 columns, 2,048 features.
#include <cstdlib>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/formats/dtype.h"
#include "kernels/registry.h"
#include "tests/kernels/random_data.h"

namespace {

quire::DType type_named(const std::string& name) {
  for (const quire::DType type : quire::test::kAllTypes) {
    if (quire::dtype_info(type).name == name) return type;
  }
  throw std::runtime_error("no type " + name);
}

}  // namespace

int main(int count, char** values) {
  const std::vector<std::string> args(values, values + count);
  if (args.size() != 4) return EXIT_FAILURE;
  const auto backend = quire::create_backend({.device = "cpu", .cpu = {.isa = args[1], .threads = 1, .pin = false}});
  std::mt19937 random(1);
  const quire::test::Weights weights = quire::test::random_weights(random, type_named(args[2]), 64, 2048);
  const quire::WeightSource source = weights.source();
  quire::test::Matrix x = quire::test::random_matrix(random, std::stoll(args[3]), 2048);
  quire::test::Matrix out(x.rows, 64);
  backend->linear(*backend->load_linear({&source, 1}, {}), x.view(), out.view(), false);
  std::cout << weights.bytes.size() << '\n';
  return EXIT_SUCCESS;
}
