// SlotOrders: an admin's orders to save, restore or erase a slot, on their way to the engine. Any thread adds them; the
// engine's thread takes them. SlotRecords: the conversation of each slot: the tokens of the last request that ended in
// it; Engine thread only. Invariants: an order's callback is called once, on any thread, and does not block; there are
// as many slots as sequences may run; a slot is a name for tokens alone: it holds no blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/kv/moves/chain_file.h"

namespace quire {

struct SlotOrder {
  enum class What { kSave, kRestore, kErase };
  What what = What::kSave;
  std::int32_t slot = 0;
  std::int64_t max_bytes = 0;  // kSave: the most bytes that it may take
  KeptChain chain{};           // kRestore: the chain to restore
  // Called with the tokens that were saved or restored, and after kSave their bytes. Shared: calling it allocates
  // nothing.
  std::shared_ptr<const std::function<void(Result<KeptChain>)>> done = nullptr;
};

class SlotOrders {
 public:
  void add(SlotOrder order);
  bool has_any() const;
  std::optional<SlotOrder> take_first();
  // Refuses all present and future orders.
  void close(const Error& error);

 private:
  mutable std::mutex mutex_;
  std::vector<SlotOrder> orders_;
  std::optional<Error> closed_;
};

class SlotRecords {
 public:
  struct Record {
    std::string salt;
    std::vector<TokenId> tokens;
    std::uint64_t used = 0;  // time of last use; 0: never
  };

  // `media` must outlive it.
  SlotRecords(std::int32_t num_slots, MediaNames& media)
      : media_(media), records_(static_cast<std::size_t>(num_slots)) {}

  bool contains(std::int32_t slot) const { return slot >= 0 && slot < std::ssize(records_); }
  const Record& at(std::int32_t slot) const { return records_[static_cast<std::size_t>(slot)]; }
  // Notes that a request ended with these tokens: in the slot that it named, else in the slot whose conversation it
  // continued, else in the least recently used one.
  void note(std::int32_t wanted, const std::string& salt, std::span<const TokenId> tokens);
  void set(std::int32_t slot, std::string salt, std::vector<TokenId> tokens);
  void erase(std::int32_t slot);

 private:
  std::size_t slot_for(const std::string& salt, std::span<const TokenId> tokens) const;

  MediaNames& media_;
  std::vector<Record> records_;
  std::uint64_t now_ = 0;
};

}  // namespace quire
