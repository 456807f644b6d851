// Each barrier and each wait in the PTX of the kernels is needed: a text without one differs from the emulator or
// breaks a rule of the interpreter. Needs the texts of nvcc (run.sh).
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "kernels/gpu/gpu_backend.h"
#include "tests/gpu_check/cases.h"
#include "tests/ptx/compared_device.h"
#include "tests/ptx/machine/products.h"
#include "tests/ptx/machine/read_module.h"

namespace quire::test {
namespace {

using ptx::ComparedDevice;
using ptx::KernelPrograms;

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++count;
  return count;
}

// Blanks the `number`-th statement that begins with `what`.
std::string without(std::string text, const std::string& what, std::size_t number) {
  std::size_t at = text.find(what);
  for (; number > 0; --number)
    at = text.find(what, at + 1);
  const std::size_t end = text.find(';', at);
  return text.replace(at, end - at + 1, end - at + 1, ' ');
}

// A test's use of a device.
using Work = std::function<void(std::unique_ptr<ComparedDevice>)>;

// Returns whether the work shows a difference in some order.
bool differs(const KernelPrograms& programs, const Work& work, std::vector<std::string>& said) {
  for (const std::uint64_t seed : {0U, 1U, 2U, 3U, 4U, 5U}) {
    for (const bool early : {false, true}) {
      work(std::make_unique<ComparedDevice>(programs, ptx::RunOptions{.seed = seed, .early_copies = early}, &said));
      if (!said.empty()) return true;
    }
  }
  return false;
}

// Leaves out each statement that begins with `what`; returns the numbers of those without effect.
std::vector<std::size_t> not_needed(const std::vector<std::string>& texts, const std::string& kernel,
                                    const std::string& what, const Work& work) {
  const std::string text = ptx::text_of_kernel(texts, kernel);
  const std::size_t count = count_of(text, what);
  INFO(kernel << ", " << what);
  REQUIRE(count > 0);
  KernelPrograms programs(texts);
  std::vector<std::size_t> out;
  for (std::size_t number = 0; number < count; ++number) {
    programs.replace(kernel, ptx::read_module(without(text, what, number)).functions.at(0));
    std::vector<std::string> said;
    if (!differs(programs, work, said)) out.push_back(number);
  }
  return out;
}

Work product(const ProductShape& shape) {
  return [shape](std::unique_ptr<ComparedDevice> device) { run_product(*device, shape); };
}

// An operation of the backend.
Work operation(const std::string& name) {
  const std::vector<DeviceCase> all = device_cases();
  const auto found = std::ranges::find(all, name, &DeviceCase::name);
  REQUIRE(found != all.end());
  return [run = found->run](std::unique_ptr<ComparedDevice> device) {
    run(*gpu::make_gpu_backend(std::move(device), {.name = "cuda", .graphs = false}));
  };
}

}  // namespace

TEST_CASE("each barrier and wait in the PTX of the products is found where it is left out", "[.nvcc]") {
  const auto texts = ptx::emitted_texts();
  REQUIRE(texts);
  // Six cuts on four warps: two rounds.
  const Work few = product({.type = DType::kQ4_K, .rows = 3, .outputs = 16, .depth = 6144});
  const Work many = product({.type = DType::kQ4_K, .rows = 70, .outputs = 20, .depth = 1024, .is_wide = true});
  const Work floats = product({.type = DType::kF32, .rows = 3, .outputs = 20, .depth = 64});
  CHECK(not_needed(*texts, "linear_skinny Q4_K 1", "bar.sync", few).empty());
  CHECK(not_needed(*texts, "linear_skinny Q4_K 1", "bar.warp.sync", few).empty());
  CHECK(not_needed(*texts, "linear_skinny Q4_K 1", "cp.async.wait_group", few).empty());
  // Seven cuts at once.
  const Work one = product({.type = DType::kQ4_K, .rows = 1, .outputs = 16, .depth = 7168});
  CHECK(not_needed(*texts, "linear_row Q4_K deep", "bar.warp.sync", one).empty());
  CHECK(not_needed(*texts, "linear_row Q4_K deep", "cp.async.wait_group", one).empty());
  CHECK(not_needed(*texts, "linear_wide Q4_K", "bar.sync", many).empty());
  CHECK(not_needed(*texts, "linear_wide Q4_K", "cp.async.wait_group", many).empty());
  CHECK(not_needed(*texts, "linear_f32 F32", "bar.sync", floats).empty());
}

TEST_CASE("each barrier and wait in the PTX of the products of 16-bit weights is found where it is left out",
          "[.nvcc]") {
  const auto texts = ptx::emitted_texts();
  REQUIRE(texts);
  const Work few = product({.type = DType::kF16, .rows = 3, .outputs = 16, .depth = 6144});
  const Work many = product({.type = DType::kBF16, .rows = 70, .outputs = 20, .depth = 320, .is_wide = true});
  CHECK(not_needed(*texts, "linear_half F16 1", "bar.sync", few).empty());
  CHECK(not_needed(*texts, "linear_half F16 1", "cp.async.wait_group", few).empty());
  CHECK(not_needed(*texts, "round_rows F16 plain", "bar.sync", few).empty());
  CHECK(not_needed(*texts, "linear_half BF16 wide", "bar.sync", many).empty());
  CHECK(not_needed(*texts, "linear_half BF16 wide", "cp.async.wait_group", many).empty());
}

TEST_CASE("each barrier in the PTX of attention and norms is found where it is left out", "[.nvcc]") {
  const auto texts = ptx::emitted_texts();
  REQUIRE(texts);
  const Work attention = operation("attention int8 6 heads of 20, 20 rows");
  const Work norm = operation("linear Q8_0 of a norm over 2304, 9 rows");
  const Work graph = operation("graph operations, nonlinearity 0");
  CHECK(not_needed(*texts, "attend int8", "bar.sync", attention).empty());
  CHECK(not_needed(*texts, "norm_quantise normed", "bar.sync", norm).empty());
  CHECK(not_needed(*texts, "layer_norm", "bar.sync", graph).empty());
}

TEST_CASE("each barrier in the PTX of drawing is found where it is left out", "[.nvcc]") {
  const auto texts = ptx::emitted_texts();
  REQUIRE(texts);
  const Work draws = operation("draws and scores");
  CHECK(not_needed(*texts, "draw_rows", "bar.sync", draws).empty());
  CHECK(not_needed(*texts, "draw_sums", "bar.sync", draws).empty());
}

TEST_CASE("each barrier in the PTX of routing, recurrent mixers and streams is found where it is left out", "[.nvcc]") {
  const auto texts = ptx::emitted_texts();
  REQUIRE(texts);
  CHECK(not_needed(*texts, "route", "bar.warp.sync", operation("routing in groups")).empty());
  const Work delta = operation("states of the delta rule");
  CHECK(not_needed(*texts, "advance_state delta", "bar.sync", delta).empty());
  CHECK(not_needed(*texts, "gated_norm", "bar.sync", delta).empty());
  const Work space = operation("states of a state space");
  CHECK(not_needed(*texts, "advance_state space", "bar.sync", space).empty());
  const Work streams = operation("residual streams");
  CHECK(not_needed(*texts, "match_length", "bar.sync", streams).empty());
  CHECK(not_needed(*texts, "keep_excess", "bar.sync", streams).empty());
}

TEST_CASE("each barrier and wait in the PTX of attention in tiles is found where it is left out", "[.nvcc]") {
  const auto texts = ptx::emitted_texts();
  REQUIRE(texts);
  const Work attention = operation("attention f16 window and sinks");
  for (const char* what : {"bar.sync", "bar.warp.sync", "cp.async.wait_group"})
    CHECK(not_needed(*texts, "attend_tiles f16 1 128", what, attention).empty());
}

}  // namespace quire::test
