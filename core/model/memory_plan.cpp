#include "core/model/memory_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "core/base/result.h"
#include "core/model/model.h"

namespace quire {

namespace {

constexpr std::int64_t kStatesPerSequence = 3;  // its own, and two snapshots

// Blocks that the options ask for, where they ask.
std::int64_t requested_blocks(const MemoryNeeds& needs, const KvCacheOptions& options) {
  if (options.num_blocks > 0) return options.num_blocks;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(options.memory) / needs.kv_block_bytes);
}

std::int64_t default_blocks(const MemoryNeeds& needs, std::int32_t block_size, std::uint64_t left) {
  const std::int64_t useful = (needs.useful_kv_tokens + block_size - 1) / block_size;
  const std::uint64_t affordable = left / 100 * kDefaultKvShare / needs.kv_block_bytes;
  return static_cast<std::int64_t>(std::min(affordable, static_cast<std::uint64_t>(useful)));
}

// One at least, so that a sequence can run.
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

// In the unit that was asked for.
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
  return needs.weight_bytes + needs.activation_bytes + kProcessBytes + kv_bytes() + states_bytes();
}

std::int64_t MemoryPlan::num_requests_of(std::int64_t tokens) const {
  return num_blocks / ((tokens + block_size - 1) / block_size);
}

std::string MemoryPlan::describe() const {
  const std::string states =
      num_states == 0 ? std::string()
                      : fmt::format("recurrent states {}: {} of {}, for running sequences and snapshots\n",
                                    format_bytes(states_bytes()), num_states, format_bytes(needs.state_bytes));
  return fmt::format(
      "weights {}, activations {}\n"
      "KV pool {}: {} blocks of {} tokens, {} tokens, room for {} requests of 2048 tokens\n"
      "{}in all {} of {} that {} has left",
      format_bytes(needs.weight_bytes), format_bytes(needs.activation_bytes), format_bytes(kv_bytes()), num_blocks,
      block_size, kv_tokens(), num_requests_of(2048), states, format_bytes(total_bytes()),
      format_bytes(machine.available), machine.limited_by);
}

MemoryPlan plan_memory(const MemoryNeeds& needs, const KvCacheOptions& options, const MachineMemory& machine) {
  check_options(options);
  const std::uint64_t fixed = needs.weight_bytes + needs.activation_bytes + kProcessBytes + needs.state_bytes;
  if (fixed + needs.kv_block_bytes > machine.available) {
    throw MemoryShortage(
        fmt::format("the model does not fit: it needs {} (weights {}, activations {}, process {}) before any "
                    "KV cache, and {} has {} left",
                    format_bytes(fixed), format_bytes(needs.weight_bytes), format_bytes(needs.activation_bytes),
                    format_bytes(kProcessBytes), machine.limited_by, format_bytes(machine.available)));
  }
  std::uint64_t left = machine.available - fixed + needs.state_bytes;
  MemoryPlan plan{.needs = needs,
                  .block_size = options.block_size,
                  .num_blocks = 0,
                  .num_states = affordable_states(needs, left),
                  .machine = machine};
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
  // Compared in blocks: the product in bytes might not fit 64 bits.
  if (static_cast<std::uint64_t>(plan.num_blocks) > left / needs.kv_block_bytes) {
    throw MemoryShortage(kv_shortage(plan, options, fixed, left));
  }
  return plan;
}

MemoryNeeds memory_needs(const LoadedModel& model, const Backend& backend, const KvCacheOptions& options,
                         const ServingLimits& limits) {
  KvLayout layout = model.info().kv_layout;
  layout.num_blocks = 1;
  layout.block_size = options.block_size;
  layout.dtype = options.dtype;
  const std::int64_t model_len =
      limits.max_model_len > 0 ? std::min(limits.max_model_len, model.info().max_context) : model.info().max_context;
  const bool is_causal = model.info().is_causal;
  const std::int64_t num_rows =
      is_causal ? limits.max_num_batched_tokens : std::max(limits.max_num_batched_tokens, model_len);
  const std::int64_t num_logit_rows = std::min(limits.max_num_seqs + kMaxPromptLogitRows, num_rows);
  return {.weight_bytes = model.weight_bytes(backend),
          .activation_bytes = model.activation_bytes(num_rows, num_logit_rows),
          // A model of recurrent layers alone keeps nothing in blocks.
          .kv_block_bytes = std::max<std::size_t>(1, backend.kv_block_bytes(layout)),
          .useful_kv_tokens = is_causal ? limits.max_num_seqs * model_len
                                        : num_rows + model_len + 2 * limits.max_num_seqs * options.block_size,
          .keeps_kv = is_causal,
          .state_bytes = static_cast<std::uint64_t>(model.info().state_floats) * sizeof(float),
          .useful_states = kStatesPerSequence * limits.max_num_seqs};
}

}  // namespace quire
