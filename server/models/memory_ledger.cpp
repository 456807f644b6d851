#include "server/models/memory_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

namespace quire {

namespace {

std::uint64_t fixed_bytes(const KvClaim& claim) {
  return claim.needs ? claim.needs->fixed_bytes() : 0;
}

std::uint64_t saturated_sum(std::uint64_t a, std::uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

[[noreturn]] void refuse_plan(const std::vector<KvClaim>& claims, const std::vector<std::int64_t>& sizes,
                              std::int64_t budget, const MachineMemory& machine) {
  std::string all;
  for (std::size_t i = 0; i < claims.size(); ++i) {
    const std::string pool = sizes[i] > 0 ? format_bytes(static_cast<std::uint64_t>(sizes[i])) : "nothing left";
    all += fmt::format("{}{}: KV pool {}", all.empty() ? "" : "; ", claims[i].name, pool);
    if (claims[i].needs) {
      all += fmt::format(", weights {}, activations {}, process {}", format_bytes(claims[i].needs->weight_bytes),
                         format_bytes(claims[i].needs->activation_bytes), format_bytes(claims[i].needs->beside_bytes));
    }
  }
  const std::string limit =
      budget > 0 ? fmt::format(" under a kv_cache.memory of {}", format_bytes(static_cast<std::uint64_t>(budget))) : "";
  throw MemoryShortage(fmt::format("the models do not fit together{}: {}; {} has {} left", limit, all,
                                   machine.limited_by, format_bytes(machine.available)));
}

}  // namespace

struct MemoryLedger::Book {
  std::mutex mutex;
  std::uint64_t capacity = 0;
  std::uint64_t promised = 0;
};

MemoryLedger::MemoryLedger(std::function<MachineMemory()> measure)
    : measure_(std::move(measure)), book_(std::make_shared<Book>()) {
  book_->capacity = measure_().available;
}

MachineMemory MemoryLedger::left() const {
  return left_without(0);
}

MachineMemory MemoryLedger::left_without(std::uint64_t bytes) const {
  MachineMemory left = measure_();
  const std::lock_guard lock(book_->mutex);
  const std::uint64_t promised = book_->promised - std::min(book_->promised, bytes);
  const std::uint64_t unpromised = book_->capacity - std::min(book_->capacity, promised);
  left.available += bytes;
  if (unpromised < left.available) {
    left.available = unpromised;
    left.limited_by += " beside the loaded models";
  }
  return left;
}

std::shared_ptr<const std::uint64_t> MemoryLedger::promise(std::uint64_t bytes) {
  {
    const std::lock_guard lock(book_->mutex);
    book_->promised += bytes;
  }
  return {new std::uint64_t(bytes), [book = book_](const std::uint64_t* promised) {
            const std::lock_guard lock(book->mutex);
            book->promised -= *promised;
            delete promised;
          }};
}

std::int64_t useful_kv_bytes(const MemoryNeeds& needs, std::int32_t block_size, std::int64_t bytes) {
  const std::int64_t blocks = (needs.useful_kv_tokens + block_size - 1) / block_size;
  const auto block_bytes = static_cast<std::int64_t>(needs.kv_block_bytes);
  return blocks > bytes / block_bytes ? bytes : blocks * block_bytes;
}

std::vector<std::int64_t> share_kv(const std::vector<KvClaim>& claims, std::int64_t budget, std::int32_t block_size,
                                   const MachineMemory& machine) {
  std::uint64_t at_once = 0;  // weights and fixed pools of models loaded together
  std::uint64_t own = 0;
  double shares = 0.0;
  for (const KvClaim& claim : claims) {
    const auto memory = static_cast<std::uint64_t>(claim.memory);
    own = saturated_sum(own, memory);
    shares += claim.memory > 0 ? 0.0 : claim.share;
    if (claim.needs) at_once = saturated_sum(at_once, fixed_bytes(claim) + memory);
  }
  const std::uint64_t given = static_cast<std::uint64_t>(budget);
  const std::uint64_t to_share =
      budget > 0 ? given - std::min(given, own)
                 : (machine.available - std::min(machine.available, at_once)) / 100 * kDefaultKvShare;
  bool fits = budget == 0 || own <= given;
  std::vector<std::int64_t> sizes;
  for (const KvClaim& claim : claims) {
    const auto part = static_cast<std::int64_t>(static_cast<double>(to_share) * claim.share / shares);
    sizes.push_back(claim.memory > 0 ? claim.memory : part);
    if (claim.memory == 0 && claim.needs) sizes.back() = useful_kv_bytes(*claim.needs, block_size, part);
    const auto least = claim.needs ? static_cast<std::int64_t>(claim.needs->kv_block_bytes) : 1;
    fits = fits && sizes.back() >= least;
    if (claim.needs && claim.memory == 0) at_once = saturated_sum(at_once, static_cast<std::uint64_t>(sizes.back()));
  }
  if (!fits || at_once > machine.available) refuse_plan(claims, sizes, budget, machine);
  return sizes;
}

}  // namespace quire
