// PreparedMemory: limits the memory of tables that the lexers and grammars of one compiler prepare during generation:
// rows, profiles and masks, all of which can be computed again. Requires the mutex of these grammars (Program::mutex).
// Invariant: after trim() the tables fit the bound.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace quire::grammar {

// Bytes that a lexer or grammar has prepared; counted in its compiler's total once it is watched.
class PreparedBytes {
 public:
  void add(std::size_t num_bytes) {
    own_ += num_bytes;
    if (total_ != nullptr) *total_ += num_bytes;
  }
  void clear() { own_ = 0; }
  std::size_t own() const { return own_; }

 private:
  friend class PreparedMemory;
  std::size_t own_ = 0;
  std::shared_ptr<std::size_t> total_;
};

class PreparedMemory {
 public:
  explicit PreparedMemory(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  // `holder` has a PreparedBytes `prepared` and a drop_prepared(), which clears it. Watching it again has no
  // effect.
  template <class Holder>
  void watch(const std::shared_ptr<Holder>& holder);
  // Call only while no prepared table is in use.
  void trim() {
    if (*total_ > most_bytes_) trim_all();
  }
  std::size_t num_bytes() const { return *total_; }

 private:
  struct Watched {
    std::weak_ptr<void> holder;
    const PreparedBytes* prepared;  // valid while the holder lives
    void (*drop)(void* holder);
  };
  void trim_all();
  void forget_gone();

  const std::size_t most_bytes_;
  std::shared_ptr<std::size_t> total_ = std::make_shared<std::size_t>(0);
  std::vector<Watched> watched_;
  std::size_t looked_at_ = 0;  // number watched when expired holders were last removed
};

template <class Holder>
void PreparedMemory::watch(const std::shared_ptr<Holder>& holder) {
  if (holder->prepared.total_ != nullptr) return;
  if (watched_.size() >= 2 * looked_at_ + 64) forget_gone();
  watched_.push_back({holder, &holder->prepared, [](void* held) { static_cast<Holder*>(held)->drop_prepared(); }});
  holder->prepared.total_ = total_;
  *total_ += holder->prepared.own();
}

inline void PreparedMemory::forget_gone() {
  std::erase_if(watched_, [](const Watched& each) { return each.holder.expired(); });
  looked_at_ = watched_.size();
}

// Recounts first, since the total still includes expired holders.
inline void PreparedMemory::trim_all() {
  forget_gone();
  const auto sum_up = [this] {
    *total_ = 0;
    for (const Watched& each : watched_) {
      if (const auto holder = each.holder.lock()) *total_ += each.prepared->own();
    }
  };
  sum_up();
  if (*total_ <= most_bytes_) return;
  for (const Watched& each : watched_) {
    if (const auto holder = each.holder.lock()) each.drop(holder.get());
  }
  sum_up();
}

}  // namespace quire::grammar
