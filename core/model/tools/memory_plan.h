// MemoryPlan: the memory needed to serve a model, computed before anything is allocated. Value types; any thread.
// Invariant: a plan returned by plan_memory fits the memory left to the machine or the cgroup.
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

// Memory left to this process: the machine's, its control group's, or its address space's.
struct MachineMemory {
  std::uint64_t available = 0;  // bytes, page cache that can be given up included
  std::string limited_by;       // "the machine", or "the cgroup /system.slice/quire.service"
};

// The smallest of /proc/meminfo's MemAvailable, the memory left below the limits of each enclosing group (memory.max
// and memory.high of cgroup v2, memory.limit_in_bytes of v1), and the rest of RLIMIT_AS. Throws StartupError if
// /proc/meminfo cannot be read. `root`: directory of /proc and /sys, for tests.
MachineMemory machine_memory(const std::filesystem::path& root = "/");
// Memory left to the backend that create_backend would make: a GPU's if it has its own.
MachineMemory device_memory(const BackendOptions& options);

// The configured sizes do not fit into memory; the message lists what takes how much.
class MemoryShortage : public StartupError {
 public:
  using StartupError::StartupError;
};

// Limits of concurrent work (the scheduler's options).
struct ServingLimits {
  std::int64_t max_num_seqs = 256;
  std::int64_t max_num_batched_tokens = 2048;
  std::int64_t max_model_len = 0;   // 0: the model's own context
  std::uint64_t adapter_bytes = 0;  // limit of the model's adapters; 0: none
  int num_ranks = 1;                // devices that compute the model together, if the backend is one of them
  bool is_device = false;           // the plan is for a GPU, with any backend
};

// Memory of the process besides weights, activations and KV: tokenizer, requests, buffers, code.
inline constexpr std::uint64_t kProcessBytes = std::uint64_t{192} << 20;

// The plan's inputs in bytes.
struct MemoryNeeds {
  std::uint64_t weight_bytes = 0;
  std::uint64_t activation_bytes = 0;
  std::uint64_t kv_block_bytes = 0;
  std::int64_t useful_kv_tokens = 0;    // no more can ever be in use
  bool keeps_kv = true;                 // false: K and V last for a step, and the pool has just the useful tokens
  std::uint64_t window_part_bytes = 0;  // part of kv_block_bytes in layers with a window
  std::int64_t window_tokens = 0;       // their window; 0: all layers keep all tokens
  ServingLimits limits{};               // includes the model's own context if max_model_len was 0
  std::uint64_t state_bytes = 0;        // recurrent layers' state of a sequence; 0: none
  std::int64_t useful_states = 0;       // states of running sequences, and their snapshots
  std::uint64_t adapter_bytes = 0;      // limit of the model's adapters; 0: none
  int num_ranks = 1;                    // devices that compute the model together; each has all of the above
  std::uint64_t beside_bytes = kProcessBytes;  // rest of the process; on a GPU: kernels and steps
  std::uint64_t host_bytes = 0;                // machine memory, if the rest is on a GPU

  // Bytes before any state or block.
  std::uint64_t fixed_bytes() const { return weight_bytes + activation_bytes + adapter_bytes + beside_bytes; }
};

struct MemoryPlan {
  MemoryNeeds needs;
  std::int32_t block_size = 0;
  std::int64_t num_blocks = 0;
  std::int64_t num_window_parts = 0;  // window parts; 0: all layers keep all tokens
  std::int64_t num_states = 0;        // 0: the model has none
  MachineMemory machine;
  std::optional<MachineMemory> host;  // the machine's memory beside a GPU, if known

  std::uint64_t kv_bytes() const { return kv_bytes(num_blocks, num_window_parts > 0 ? num_window_parts : num_blocks); }
  std::uint64_t kv_bytes(std::int64_t blocks, std::int64_t parts) const {
    return static_cast<std::uint64_t>(blocks) * (needs.kv_block_bytes - needs.window_part_bytes) +
           static_cast<std::uint64_t>(parts) * needs.window_part_bytes;
  }
  std::uint64_t states_bytes() const { return static_cast<std::uint64_t>(num_states) * needs.state_bytes; }
  std::int64_t kv_tokens() const { return num_blocks * block_size; }
  // Requests of `tokens` tokens (prompt and answer) that fit the pool at the same time.
  std::int64_t num_requests_of(std::int64_t tokens) const;
  std::uint64_t total_bytes() const;
  // Lines for the log and for `quire inspect`: weights, KV pool in bytes, blocks and tokens, requests of 2048 tokens.
  std::string describe() const;
};

// Default size of the KV pool, in percent of the memory left by the weights.
inline constexpr std::uint64_t kDefaultKvShare = 40;

// Default size of recurrent states, which are allocated beside the pool.
inline constexpr std::uint64_t kStateShare = 20;

// Throws StartupError, one line with the need, the memory left, and what to change, if the options cannot be met;
// MemoryShortage if memory is the reason. By default the pool holds useful_kv_tokens, but takes at most
// kDefaultKvShare. host: memory left to the machine beside a GPU; empty: not known.
MemoryPlan plan_memory(const MemoryNeeds& needs, const KvCacheOptions& options, const MachineMemory& machine,
                       const std::optional<MachineMemory>& host = {});

// If several devices compute the model together: the needs of the device that needs most. drafter: a model that drafts
// for it, with K and V in the same blocks; null: none.
MemoryNeeds memory_needs(const LoadedModel& model, const Backend& backend, const KvCacheOptions& options,
                         const ServingLimits& limits, const LoadedModel* drafter = nullptr);

// "1.5 GiB", "640 KiB".
std::string format_bytes(std::uint64_t bytes);

}  // namespace quire
