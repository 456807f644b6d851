#include <algorithm>

#include "config/key_types.h"
#include "config/keys.h"
#include "kernels/registry.h"

namespace quire {

namespace types = config_types;

namespace {

// Checks against this build's levels. The key's text names those of every architecture, so that its page is the same.
bool is_isa_name(std::string_view name) {
  const std::vector<IsaLevel> levels = cpu_isa_levels();
  return name == "auto" || std::ranges::find(levels, name, &IsaLevel::name) != levels.end();
}

}  // namespace

std::vector<ConfigKey> backend_keys() {
  return {
      types::known_text(
          {"backend.device",
           "The device that computes; auto: the first GPU if the build and the machine have one",
           {"--device"}},
          [](Config & c) -> auto& { return c.serve.backend.device; }, "auto, cpu, cuda (the first GPU) or cuda:N",
          {"auto", "cpu", "cuda", "cuda:0"}, is_device_name),
      types::integer<int>({"backend.tensor_parallel",
                           "Number of GPUs, starting at backend.device, among which the weights and KV blocks of each "
                           "model are divided",
                           {"--tensor-parallel-size"}},
                          [](Config & c) -> auto& { return c.serve.backend.tensor_parallel; }, {1, 8}),
      types::number(
          {"backend.cuda.memory", "The share of a GPU's free memory that models may take"},
          [](Config & c) -> auto& { return c.serve.backend.cuda.memory; }, 0.01, 1.0),
      types::boolean(
          {"backend.cuda.graphs", "Launch the kernels of repeated steps as CUDA graphs; false: one by one"},
          [](Config & c) -> auto& { return c.serve.backend.cuda.graphs; }),
      types::known_text(
          {"backend.cpu.isa",
           "The instruction set of the kernels; auto: the best that the processor has. amx: prompts and many "
           "streams of quantised models are faster than with avx512amx, single streams take twice the time",
           {"--isa"}},
          [](Config & c) -> auto& { return c.serve.backend.cpu.isa; },
          "auto, scalar, avx2, avx512, avx512bf16, amx or avx512amx; on arm64 auto, scalar, neon, dotprod or i8mm", {},
          is_isa_name),
      types::integer<int>({"backend.cpu.threads",
                           "Compute threads; 0: one for each physical core that the process may use",
                           {"--threads", "-t"}},
                          [](Config & c) -> auto& { return c.serve.backend.cpu.threads; }, {0, 4096}),
      types::boolean(
          {"backend.cpu.pin", "Pin each compute thread to one core"},
          [](Config & c) -> auto& { return c.serve.backend.cpu.pin; }),
  };
}

}  // namespace quire
