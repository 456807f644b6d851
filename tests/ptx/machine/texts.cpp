#include "tests/ptx/machine/texts.h"

#include <array>
#include <cstring>

#include "tests/ptx/machine/read_module.h"

namespace quire::test {

TextRun run_text(const std::string& body, const TextLaunch& launch) {
  const std::string text =
      ".version 9.0\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 memory[];\n"
      ".visible .entry test(.param .u64 in, .param .u64 out)\n{\n"
      ".reg .pred %p<32>; .reg .b16 %rs<32>; .reg .b32 %r<32>; .reg .f32 %f<32>; .reg .b64 %rd<32>; .reg .f64 "
      "%fd<32>;\n"
      "ld.param.u64 %rd30, [in]; mov.u32 %r31, %tid.x;\n" +
      body +
      "\nld.param.u64 %rd31, [out]; mul.wide.u32 %rd29, %r31, 4; add.s64 %rd31, %rd31, %rd29;\n"
      "st.global.u32 [%rd31], %r0;\nret;\n}\n";
  TextRun run;
  run.function = ptx::read_module(text).functions.at(0);
  run.results.resize(static_cast<std::size_t>(launch.threads));
  const std::array<std::uint64_t, 2> addresses = {reinterpret_cast<std::uint64_t>(launch.input.data()),
                                                  reinterpret_cast<std::uint64_t>(run.results.data())};
  std::vector<ptx::MemoryRange> memory = {{addresses[0], addresses[0] + 4 * launch.input.size()},
                                          {addresses[1], addresses[1] + 4 * run.results.size()}};
  if (memory[1].begin < memory[0].begin) std::swap(memory[0], memory[1]);
  const ptx::Launch grid{
      .threads = launch.threads, .shared_bytes = launch.shared_bytes, .params = std::as_bytes(std::span(addresses))};
  run.counts = ptx::execute(run.function, grid, memory, launch.options);
  return run;
}

std::uint32_t result_of(const std::string& body) {
  return run_text(body).results[0];
}

}  // namespace quire::test
