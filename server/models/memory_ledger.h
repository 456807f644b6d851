// MemoryLedger: the process's memory promised to each model, so that plans made one after another fit together. Any
// thread. share_kv: divides one budget among the KV pools of several models. Invariant: the promised memory never
// exceeds what the machine or the control group had left when the ledger was opened.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/model/tools/memory_plan.h"

namespace quire {

class MemoryLedger {
 public:
  // `measure` returns the memory that is free now; called before each plan, because other processes take memory too.
  explicit MemoryLedger(std::function<MachineMemory()> measure);

  // Memory for one more model: the smaller of the unpromised and the free memory.
  MachineMemory left() const;
  // The result of left() if `bytes` more were free: the memory of a model being replaced.
  MachineMemory left_without(std::uint64_t bytes) const;
  // Promises this much until the returned object and its copies are gone.
  std::shared_ptr<const std::uint64_t> promise(std::uint64_t bytes);

 private:
  struct Book;
  std::function<MachineMemory()> measure_;
  std::shared_ptr<Book> book_;
};

// The KV memory that one model asks for.
struct KvClaim {
  std::string name;
  std::int64_t memory = 0;           // bytes; 0: by share
  double share = 1.0;                // relative share of memory without a fixed claim
  std::optional<MemoryNeeds> needs;  // set for models loaded at the start
};

// `bytes`, or less if all requests at once could not use so much.
std::int64_t useful_kv_bytes(const MemoryNeeds& needs, std::int32_t block_size, std::int64_t bytes);

// Bytes of each pool. `budget`: all pools together; 0: 40% of the memory left by the models loaded together. Throws
// MemoryShortage, naming every model and its numbers, if they do not fit together.
std::vector<std::int64_t> share_kv(const std::vector<KvClaim>& claims, std::int64_t budget, std::int32_t block_size,
                                   const MachineMemory& machine);

}  // namespace quire
