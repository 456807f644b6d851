#include "core/model/tools/memory_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "core/base/result.h"
#include "core/kv/pool/window_pool.h"
#include "core/model/layers/drafted_model.h"
#include "core/model/layers/loaded_model.h"
#include "core/sched/scheduler_options.h"
#include "kernels/parallel/parallel_backend.h"

namespace quire {

namespace {

constexpr std::int64_t kStatesPerSequence = 3;  // its current state and two snapshots

// Number of blocks that the options request.
std::int64_t requested_blocks(const MemoryNeeds& needs, const KvCacheOptions& options) {
  if (options.num_blocks > 0) return options.num_blocks;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(options.memory) / needs.kv_block_bytes);
}

std::int64_t useful_blocks(const MemoryNeeds& needs, std::int32_t block_size) {
  return (needs.useful_kv_tokens + block_size - 1) / block_size;
}

std::int64_t default_blocks(const MemoryNeeds& needs, std::int32_t block_size, std::uint64_t left) {
  const std::int64_t useful = useful_blocks(needs, block_size);
  const std::uint64_t affordable = left / 100 * kDefaultKvShare / needs.kv_block_bytes;
  return static_cast<std::int64_t>(std::min(affordable, static_cast<std::uint64_t>(useful)));
}

// At least 1, so that a sequence can run.
std::int64_t affordable_states(const MemoryNeeds& needs, std::uint64_t left) {
  if (needs.state_bytes == 0) return 0;
  const auto affordable = static_cast<std::int64_t>(left / 100 * kStateShare / needs.state_bytes);
  return std::clamp<std::int64_t>(affordable, 1, std::max<std::int64_t>(needs.useful_states, 1));
}

void check_options(const KvCacheOptions& options) {
  if (options.block_size <= 0 || options.block_size % 16 != 0) {
    throw StartupError(fmt::format("kv_cache.block_size is {}, not a multiple of 16", options.block_size));
  }
  if (options.num_blocks < 0) throw StartupError("kv_cache.num_blocks is negative");
  if (options.memory < 0) throw StartupError("kv_cache.memory is negative");
  if (options.num_blocks > 0 && options.memory > 0) {
    throw StartupError("kv_cache.num_blocks and kv_cache.memory are both given: keep one");
  }
  if (options.num_blocks > INT32_MAX / options.block_size) {
    throw StartupError(fmt::format("kv_cache.num_blocks is {}, more than can be numbered", options.num_blocks));
  }
}

// States the shortage in the unit of the request.
std::string kv_shortage(const MemoryPlan& plan, const KvCacheOptions& options, std::uint64_t fixed,
                        std::uint64_t left) {
  const std::string machine = fmt::format("beside {} for the model, and {} has {} left", format_bytes(fixed),
                                          plan.machine.limited_by, format_bytes(plan.machine.available));
  if (options.num_blocks == 0) {
    return fmt::format("the KV cache does not fit: kv_cache.memory is {} {}; set it to at most {}MiB",
                       format_bytes(static_cast<std::uint64_t>(options.memory)), machine, left >> 20);
  }
  return fmt::format("the KV cache does not fit: {} blocks of {} {}; set kv_cache.num_blocks to at most {}",
                     plan.num_blocks, format_bytes(plan.needs.kv_block_bytes), machine,
                     left / plan.needs.kv_block_bytes);
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Most parts that a sequence holds besides those of a step's tokens.
std::int64_t parts_per_sequence(const MemoryPlan& plan) {
  return WindowPool::parts_per_sequence(plan.needs.window_tokens, plan.block_size);
}

// Parts that go with `num_blocks` blocks: a step's, and windows of as many sequences as the blocks hold, assuming
// sequences of several windows (of full length if blocks have no bytes of their own). With shorter sequences, parts run
// out before blocks: so a quarter of the pool's bytes is for the windows of as many sequences as may run.
std::int64_t parts_beside(const MemoryPlan& plan, std::int64_t num_blocks, std::uint64_t pool_bytes) {
  constexpr std::int64_t kWindows = 4;
  constexpr std::int64_t kLeastTokens = 2048;
  const MemoryNeeds& needs = plan.needs;
  const std::int64_t of_one = parts_per_sequence(plan);
  const std::int64_t of_step = ceil_div(needs.limits.max_num_batched_tokens, plan.block_size);
  const bool are_blocks_free = needs.kv_block_bytes == needs.window_part_bytes;
  const std::int64_t longest = needs.limits.max_model_len;
  const std::int64_t typical =
      are_blocks_free ? longest : std::min(std::max(kWindows * needs.window_tokens, kLeastTokens), longest);
  const std::int64_t of_long = of_step + ceil_div(num_blocks * of_one, ceil_div(typical, plan.block_size));
  const auto quarter = static_cast<std::int64_t>(pool_bytes / 4 / needs.window_part_bytes);
  const std::int64_t of_short = std::min(of_step + needs.limits.max_num_seqs * of_one, quarter);
  const std::int64_t least = WindowPool::least_parts(needs.window_tokens, plan.block_size) + of_step;
  return std::min(std::max({of_long, of_short, least}), num_blocks);
}

// Layers with a window keep parts of only some blocks, so the bytes of a pool of whole blocks hold more blocks.
void split_window(const KvCacheOptions& options, std::int64_t most_blocks, MemoryPlan& plan) {
  const MemoryNeeds& needs = plan.needs;
  const std::uint64_t bytes = static_cast<std::uint64_t>(plan.num_blocks) * needs.kv_block_bytes;
  if (options.num_blocks > 0) {
    const std::int64_t num_parts = parts_beside(plan, plan.num_blocks, bytes);
    plan.num_window_parts = num_parts < plan.num_blocks ? num_parts : 0;
    return;
  }
  // More blocks than full-length sequences with that many parts need are useless.
  const auto all_parts = static_cast<std::int64_t>(bytes / needs.window_part_bytes);
  const std::int64_t longest = ceil_div(needs.limits.max_model_len, plan.block_size);
  const std::int64_t enough = ceil_div(all_parts * longest, parts_per_sequence(plan));
  std::int64_t fits = plan.num_blocks;
  for (std::int64_t end = std::min(most_blocks, std::max(enough, fits)) + 1; fits + 1 < end;) {
    const std::int64_t middle = fits + (end - fits) / 2;
    (plan.kv_bytes(middle, parts_beside(plan, middle, bytes)) <= bytes ? fits : end) = middle;
  }
  const std::int64_t num_parts = parts_beside(plan, fits, bytes);
  if (num_parts >= fits) return;
  plan.num_blocks = fits;
  plan.num_window_parts = num_parts;
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", value, kUnits.at(unit));
}

std::uint64_t MemoryPlan::total_bytes() const {
  return needs.fixed_bytes() + kv_bytes() + states_bytes();
}

std::int64_t MemoryPlan::num_requests_of(std::int64_t tokens) const {
  const std::int64_t of_one = ceil_div(tokens, block_size);
  if (num_window_parts == 0) return num_blocks / of_one;
  return std::min(num_blocks / of_one, num_window_parts / std::min(of_one, parts_per_sequence(*this)));
}

std::string MemoryPlan::describe() const {
  const std::string states =
      num_states == 0 ? std::string()
                      : fmt::format("recurrent states {}: {} of {}, for running sequences and snapshots\n",
                                    format_bytes(states_bytes()), num_states, format_bytes(needs.state_bytes));
  const std::string window =
      num_window_parts == 0 ? std::string()
                            : fmt::format("of them {} with the part of {} that layers keep which see {} tokens\n",
                                          num_window_parts, format_bytes(needs.window_part_bytes), needs.window_tokens);
  const std::string adapters =
      needs.adapter_bytes == 0 ? std::string() : fmt::format(", adapters up to {}", format_bytes(needs.adapter_bytes));
  const std::string ranks =
      needs.num_ranks == 1 ? std::string() : fmt::format("on each of {} devices: ", needs.num_ranks);
  const std::string steps =
      needs.host_bytes == 0 ? std::string() : fmt::format(", steps {}", format_bytes(needs.beside_bytes));
  std::string on_host =
      needs.host_bytes == 0 ? "" : fmt::format("\nbeside it {} on the host", format_bytes(needs.host_bytes));
  if (host && needs.host_bytes > 0)
    on_host += fmt::format(" of {} that {} has left", format_bytes(host->available), host->limited_by);
  return fmt::format(
      "{}weights {}, activations {}{}{}\n"
      "KV pool {}: {} blocks of {} tokens, {} tokens, room for {} requests of 2048 tokens\n"
      "{}{}in all {} of {} that {} has left{}",
      ranks, format_bytes(needs.weight_bytes), format_bytes(needs.activation_bytes), adapters, steps,
      format_bytes(kv_bytes()), num_blocks, block_size, kv_tokens(), num_requests_of(2048), window, states,
      format_bytes(total_bytes()), format_bytes(machine.available), machine.limited_by, on_host);
}

namespace {

void check_host(const MemoryNeeds& needs, const std::optional<MachineMemory>& host) {
  if (!host || needs.host_bytes <= host->available) return;
  throw MemoryShortage(
      fmt::format("the model does not fit: beside the GPU it needs {} of the host's memory, and {} has {} left",
                  format_bytes(needs.host_bytes), host->limited_by, format_bytes(host->available)));
}

// Refuses a model that does not fit even without any KV cache.
[[noreturn]] void refuse_model(const MemoryNeeds& needs, std::uint64_t fixed, const MachineMemory& machine) {
  const std::string adapters = needs.adapter_bytes == 0
                                   ? std::string()
                                   : fmt::format(", model.adapter_memory {}", format_bytes(needs.adapter_bytes));
  throw MemoryShortage(
      fmt::format("the model does not fit: it needs {} (weights {}, activations {}{}, {} {}) before any "
                  "KV cache, and {} has {} left",
                  format_bytes(fixed), format_bytes(needs.weight_bytes), format_bytes(needs.activation_bytes), adapters,
                  needs.host_bytes == 0 ? "process" : "steps", format_bytes(needs.beside_bytes), machine.limited_by,
                  format_bytes(machine.available)));
}

}  // namespace

MemoryPlan plan_memory(const MemoryNeeds& needs, const KvCacheOptions& options, const MachineMemory& machine,
                       const std::optional<MachineMemory>& host) {
  check_options(options);
  check_host(needs, host);
  const std::uint64_t fixed = needs.fixed_bytes() + needs.state_bytes;
  if (fixed + needs.kv_block_bytes > machine.available) refuse_model(needs, fixed, machine);
  std::uint64_t left = machine.available - fixed + needs.state_bytes;
  MemoryPlan plan{.needs = needs,
                  .block_size = options.block_size,
                  .num_blocks = 0,
                  .num_states = affordable_states(needs, left),
                  .machine = machine,
                  .host = host};
  left -= plan.states_bytes();
  const bool is_given = needs.keeps_kv && (options.num_blocks > 0 || options.memory > 0);
  const std::int64_t largest = INT32_MAX / options.block_size;  // slots are numbered in 32 bits
  plan.num_blocks =
      std::min(is_given ? requested_blocks(needs, options) : default_blocks(needs, options.block_size, left), largest);
  if (plan.num_blocks == 0) {
    throw MemoryShortage(
        fmt::format("the KV cache would hold no block: one takes {}; raise kv_cache.memory or free memory",
                    format_bytes(needs.kv_block_bytes)));
  }
  if (needs.window_tokens > 0)
    split_window(options, is_given ? largest : useful_blocks(needs, options.block_size), plan);
  // Compared in blocks: the product in bytes might not fit in 64 bits.
  const bool is_short = plan.num_window_parts > 0
                            ? plan.kv_bytes() > left
                            : static_cast<std::uint64_t>(plan.num_blocks) > left / needs.kv_block_bytes;
  if (is_short) {
    throw MemoryShortage(kv_shortage(plan, options, fixed, left));
  }
  return plan;
}

namespace {

// Bytes of a block on each device.
std::size_t kv_block_bytes(const Backend& backend, KvLayout layout, const KvCacheOptions& options, int num_ranks) {
  layout.num_blocks = 1;
  layout.block_size = options.block_size;
  layout.dtype = options.dtype;
  if (backend.num_ranks() > 1) return backend.kv_block_bytes(layout) / static_cast<std::size_t>(num_ranks);
  return backend.kv_block_bytes(layout_of_rank(layout, num_ranks));
}

}  // namespace

MemoryNeeds memory_needs(const LoadedModel& model, const Backend& backend, const KvCacheOptions& options,
                         const ServingLimits& limits, const LoadedModel* drafter) {
  const int num_ranks = std::max(backend.num_ranks(), limits.num_ranks);
  model.require_ranks(num_ranks);
  if (drafter != nullptr) drafter->require_ranks(num_ranks);
  const auto block_bytes = [&](const KvLayout& layout) { return kv_block_bytes(backend, layout, options, num_ranks); };
  const std::int64_t model_len =
      limits.max_model_len > 0 ? std::min(limits.max_model_len, model.info().max_context) : model.info().max_context;
  const bool is_causal = model.info().is_causal;
  const std::int64_t num_rows =
      is_causal ? limits.max_num_batched_tokens : std::max(limits.max_num_batched_tokens, model_len);
  const std::int64_t num_logit_rows = std::min(limits.max_num_seqs + kMaxPromptLogitRows, num_rows);
  const bool is_device = limits.is_device || backend.has_own_memory();
  const ModelInfo& info = model.info();
  const KvSplit split = drafter == nullptr ? info.kv_split : with_drafter(info.kv_split, drafter->info().kv_layout);
  const KvLayout layout = drafter == nullptr ? info.kv_layout : with_drafter(info.kv_layout, drafter->info().kv_layout);
  KvLayout kept = layout;
  kept.dtype = options.dtype;
  require_cache(kept, backend);
  const bool splits = split.window > 0 && split.window < model_len;  // a longer one frees nothing
  const std::size_t part_bytes = splits ? block_bytes(split.windowed) : 0;
  const std::size_t whole_bytes = splits ? block_bytes(split.full) + part_bytes : block_bytes(layout);
  const std::size_t drafter_weights = drafter == nullptr ? 0 : drafter->weight_bytes(backend, num_ranks);
  const std::size_t drafter_rows =
      drafter == nullptr
          ? 0
          : drafter->activation_bytes(kMostDraftRows, std::min(num_logit_rows, kMostDraftedSequences), num_ranks);
  const DeviceStepBytes steps = device_step_bytes(model.step_bounds({.rows = num_rows,
                                                                     .logit_rows = num_logit_rows,
                                                                     .sequences = limits.max_num_seqs,
                                                                     .tokens = model_len,
                                                                     .block_size = options.block_size,
                                                                     .draws = max_step_draws(limits.max_num_seqs)}));
  return {.weight_bytes = model.weight_bytes(backend, num_ranks) + drafter_weights,
          .activation_bytes = model.activation_bytes(num_rows, num_logit_rows, num_ranks) + drafter_rows,
          // A model with recurrent layers only keeps nothing in blocks.
          .kv_block_bytes = std::max<std::size_t>(1, whole_bytes),
          .useful_kv_tokens = is_causal ? limits.max_num_seqs * model_len
                                        : num_rows + model_len + 2 * limits.max_num_seqs * options.block_size,
          .keeps_kv = is_causal,
          .window_part_bytes = part_bytes,
          .window_tokens = splits ? split.window : 0,
          .limits = {limits.max_num_seqs, num_rows, model_len},
          .state_bytes = static_cast<std::uint64_t>(model.info().state_floats) * sizeof(float),
          .useful_states = kStatesPerSequence * limits.max_num_seqs,
          .adapter_bytes = limits.adapter_bytes,
          .num_ranks = num_ranks,
          .beside_bytes = is_device ? steps.on_device : kProcessBytes,
          .host_bytes = is_device ? kProcessBytes + steps.pinned : 0};
}

}  // namespace quire
