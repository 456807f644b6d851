// MemoryPlan: the memory that serving a model takes, computed before anything is allocated. Value types; any thread.
// Invariant: a plan that plan_memory returns fits what the machine or the cgroup has left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/kv/kv_options.h"
#include "core/model/layers/loaded_model.h"
#include "kernels/registry.h"

namespace quire {

// What this process may still take: the machine's, that of the control group it runs in, or of its address space.
struct MachineMemory {
  std::uint64_t available = 0;  // bytes, page cache that can be given up included
  std::string limited_by;       // "the machine", or "the cgroup /system.slice/quire.service"
};

// The smallest of /proc/meminfo's MemAvailable, what each enclosing group leaves below its limits (memory.max and
// memory.high of cgroup v2, memory.limit_in_bytes of v1), and what RLIMIT_AS leaves. Throws StartupError where
// /proc/meminfo cannot be read. `root`: where /proc and /sys are found, for tests.
MachineMemory machine_memory(const std::filesystem::path& root = "/");
// The same of what create_backend would make: a GPU's memory where it has its own.
MachineMemory device_memory(const BackendOptions& options);

// The configured sizes do not fit into memory; the line says how much each takes.
class MemoryShortage : public StartupError {
 public:
  using StartupError::StartupError;
};

// How much work there can be at once (the scheduler's options).
struct ServingLimits {
  std::int64_t max_num_seqs = 256;
  std::int64_t max_num_batched_tokens = 2048;
  std::int64_t max_model_len = 0;   // 0: the model's own context
  std::uint64_t adapter_bytes = 0;  // that the model's adapters may take; 0: it takes none
  int num_ranks = 1;                // devices that compute the model together, where the backend is one of them
  bool is_device = false;           // the plan is for a GPU, whatever the backend is
};

// What the process takes beside weights, activations and KV: tokenizer, requests, buffers, code.
inline constexpr std::uint64_t kProcessBytes = std::uint64_t{192} << 20;

// The plan's inputs in bytes, whatever they were measured from.
struct MemoryNeeds {
  std::uint64_t weight_bytes = 0;
  std::uint64_t activation_bytes = 0;
  std::uint64_t kv_block_bytes = 0;
  std::int64_t useful_kv_tokens = 0;    // more than these can never be in use
  bool keeps_kv = true;                 // false: K and V are of the step alone, and the pool holds just what is useful
  std::uint64_t window_part_bytes = 0;  // of kv_block_bytes, those of layers with a window
  std::int64_t window_tokens = 0;       // that those see; 0: all layers keep all tokens
  ServingLimits limits{};               // with the model's own context where max_model_len was 0
  std::uint64_t state_bytes = 0;        // what recurrent layers keep of one sequence; 0: the model has none
  std::int64_t useful_states = 0;       // of sequences that run, and snapshots of what they computed
  std::uint64_t adapter_bytes = 0;      // that the model's adapters may take; 0: it takes none
  int num_ranks = 1;                    // devices that compute the model together; all of the above is on each
  std::uint64_t beside_bytes = kProcessBytes;  // of the process; on a GPU, of its kernels and steps
  std::uint64_t host_bytes = 0;                // of the machine's memory, where the rest is on a GPU

  // Before any state or block.
  std::uint64_t fixed_bytes() const { return weight_bytes + activation_bytes + adapter_bytes + beside_bytes; }
};

struct MemoryPlan {
  MemoryNeeds needs;
  std::int32_t block_size = 0;
  std::int64_t num_blocks = 0;
  std::int64_t num_window_parts = 0;  // of blocks, for layers with a window; 0: all layers keep all tokens
  std::int64_t num_states = 0;        // 0: the model has none
  MachineMemory machine;
  std::optional<MachineMemory> host;  // beside a GPU, where it is known

  std::uint64_t kv_bytes() const { return kv_bytes(num_blocks, num_window_parts > 0 ? num_window_parts : num_blocks); }
  std::uint64_t kv_bytes(std::int64_t blocks, std::int64_t parts) const {
    return static_cast<std::uint64_t>(blocks) * (needs.kv_block_bytes - needs.window_part_bytes) +
           static_cast<std::uint64_t>(parts) * needs.window_part_bytes;
  }
  std::uint64_t states_bytes() const { return static_cast<std::uint64_t>(num_states) * needs.state_bytes; }
  std::int64_t kv_tokens() const { return num_blocks * block_size; }
  // Requests of `tokens` tokens (prompt and answer) that fit the pool at once.
  std::int64_t num_requests_of(std::int64_t tokens) const;
  std::uint64_t total_bytes() const;
  // Lines for the log and for `quire inspect`: weights, KV pool in bytes, blocks and tokens, requests of 2048 tokens.
  std::string describe() const;
};

// Default size of the KV pool, in percent of what the weights leave.
inline constexpr std::uint64_t kDefaultKvShare = 40;

// The same for recurrent states, which are allocated beside it.
inline constexpr std::uint64_t kStateShare = 20;

// Throws StartupError, one line that says what is needed, what there is, and what to change, where the options cannot
// be met; MemoryShortage where memory is what lacks. By default the pool holds useful_kv_tokens, but takes at most
// kDefaultKvShare. host: what the machine has left beside a GPU; empty: not known.
MemoryPlan plan_memory(const MemoryNeeds& needs, const KvCacheOptions& options, const MachineMemory& machine,
                       const std::optional<MachineMemory>& host = {});

// Where several devices compute the model together, what the one needs that needs the most.
// drafter: a model that drafts for it, whose K and V are in the same blocks; null: none.
MemoryNeeds memory_needs(const LoadedModel& model, const Backend& backend, const KvCacheOptions& options,
                         const ServingLimits& limits, const LoadedModel* drafter = nullptr);

// "1.5 GiB", "640 KiB".
std::string format_bytes(std::uint64_t bytes);

}  // namespace quire
