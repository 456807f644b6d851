#include "server/cli/recommend.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "core/base/result.h"
#include "core/model/tools/memory_plan.h"
#include "kernels/gpu_devices.h"
#include "kernels/machine_limits.h"
#include "server/cli/commands.h"
#include "server/cli/cpu_flags.h"
#include "server/cli/downloads.h"
#include "server/hub/pull.h"
#include "server/modules/modules.h"

namespace quire::cli {

namespace {

struct Published {
  std::string_view reference;
  double file_gigabytes;
  double read_gigabytes;  // for one token: less than the file with experts
};

// Better models come last.
constexpr std::array kPublished = std::to_array<Published>({
    {"Qwen/Qwen3-0.6B-GGUF:Q8_0", 0.64, 0.64},
    {"Qwen/Qwen3-1.7B-GGUF:Q8_0", 1.83, 1.83},
    {"Qwen/Qwen3-4B-GGUF:Q4_K_M", 2.50, 2.50},
    {"Qwen/Qwen3-8B-GGUF:Q4_K_M", 5.03, 5.03},
    {"Qwen/Qwen3-14B-GGUF:Q4_K_M", 9.00, 9.00},
    {"ggml-org/gpt-oss-20b-GGUF:MXFP4", 12.1, 2.3},
    {"Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M", 18.6, 2.1},
    {"Qwen/Qwen3-32B-GGUF:Q4_K_M", 19.8, 19.8},
});

constexpr double kGiga = 1e9;
constexpr double kBeside = 1.5e9;  // memory for keys, values and a step
constexpr double kPatience = 3.0;  // tokens a second: acceptable for answers within a minute
constexpr double kReadingAlong = 10.0;
constexpr double kForAgents = 25.0;
constexpr std::size_t kMost = 3;

double speed(const Published& model, double bytes_per_second) {
  return bytes_per_second / (model.read_gigabytes * kGiga);
}

struct Machine {
  MachineMemory memory;
  double bytes_per_second = 0.0;
  std::string words;
};

Machine look_at_machine(const CpuOptions& options) {
  if (const GpuProbe gpu = probe_gpu({}); gpu.memory) {
    Machine machine{device_memory({}), 0.0, {}};
    machine.words = fmt::format("a GPU with {:.1f} GB free", static_cast<double>(machine.memory.available) / kGiga);
    return machine;
  }
  constexpr std::size_t kBeyondCaches = std::size_t{1} << 30;
  Machine machine{machine_memory(), MachineMeter(options).read_rate_now(kBeyondCaches) * kGiga, {}};
  machine.words = fmt::format("{:.1f} GB of memory free ({}), read at {:.0f} GB/s now",
                              static_cast<double>(machine.memory.available) / kGiga, machine.memory.limited_by,
                              machine.bytes_per_second / kGiga);
  return machine;
}

void print(const std::vector<Recommendation>& models, const Machine& machine) {
  fmt::print("This machine has {}.\n", machine.words);
  for (std::size_t i = 0; i < models.size(); ++i) {
    const Recommendation& model = models[i];
    fmt::print("{}  {:<34} {:>5.1f} GB{}\n", i + 1, model.reference, static_cast<double>(model.file_bytes) / kGiga,
               model.most_tokens_per_second > 0.0
                   ? fmt::format(", up to {:.{}f} tokens/s for one user", model.most_tokens_per_second,
                                 model.most_tokens_per_second < kReadingAlong ? 1 : 0)
                   : "");
  }
  if (is_built(Module::kHub) && is_built(Module::kTerminal))
    fmt::print("quire run --hf {}   talks to it\n", models[models.size() / 2].reference);
}

void run_recommend(const CpuOptions& options, std::size_t pulled) {
  const Machine machine = look_at_machine(options);
  const auto models = recommend(machine.memory.available, machine.bytes_per_second);
  if (models.empty())
    throw StartupError(fmt::format("this machine has {}: too little for a published model", machine.words));
  if (pulled == 0) return print(models, machine);
  if (pulled > models.size())
    throw StartupError(fmt::format("--pull {}: there are {} recommendations", pulled, models.size()));
  if constexpr (is_built(Module::kHub)) {
    return fmt::print("{}\n", pull_with_progress(models[pulled - 1].reference).path.string());
  }
  throw StartupError("--pull " + left_out(Module::kHub));
}

}  // namespace

std::vector<Recommendation> recommend(std::uint64_t memory_bytes, double bytes_per_second) {
  std::vector<Published> fitting;
  std::ranges::copy_if(kPublished, std::back_inserter(fitting), [&](const Published& model) {
    return model.file_gigabytes * kGiga + kBeside <= static_cast<double>(memory_bytes);
  });
  std::vector<std::size_t> chosen;
  const auto is_left = [&](std::size_t i) { return std::ranges::find(chosen, i) == chosen.end(); };
  for (const double least : {kPatience, kReadingAlong, kForAgents}) {
    for (std::size_t i = fitting.size(); i-- > 0;) {
      const bool is_enough = bytes_per_second == 0.0 || speed(fitting[i], bytes_per_second) >= least;
      if (!is_left(i) || !is_enough) continue;
      chosen.push_back(i);
      break;
    }
  }
  // If few are fast enough, the smallest of the others follow.
  for (std::size_t i = 0; i < fitting.size() && chosen.size() < kMost; ++i) {
    if (is_left(i)) chosen.push_back(i);
  }
  std::ranges::sort(chosen, std::greater());
  std::vector<Recommendation> models;
  for (const std::size_t i : chosen)
    models.push_back({std::string(fitting[i].reference), static_cast<std::uint64_t>(fitting[i].file_gigabytes * kGiga),
                      speed(fitting[i], bytes_per_second)});
  return models;
}

void add_recommend(CLI::App& app) {
  CLI::App* command = app.add_subcommand("recommend", "Name published models that suit this machine");
  const auto options = std::make_shared<CpuOptions>();
  const auto pulled = std::make_shared<std::size_t>(0);
  add_cpu_flags(*command, *options);
  command->add_option("--pull", *pulled, "Download the first, second or third, and print its path")
      ->type_name("NUMBER");
  command->footer(
      "The speed is what reading the weights allows, measured now; other programs that run make it less. "
      "'quire bench throughput' measures a model.");
  command->callback([options, pulled] { run_recommend(*options, *pulled); });
}

}  // namespace quire::cli
