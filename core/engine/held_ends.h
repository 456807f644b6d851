// HeldEnds: last events of requests that publish their prompts, held until the shared store has the blocks or a time
// limit has passed. Engine thread only. Invariant: each held event is sent once. Without a store, none is held.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/thread_role.h"
#include "core/engine/generation.h"
#include "core/kv/moves/lower_tier.h"

namespace quire {

class HeldEnds {
 public:
  // tier: null without a store; it must outlive this object.
  HeldEnds(LowerTier* tier, SharedError no_memory) : tier_(tier), no_memory_(std::move(no_memory)) {}

  // Holds the generation's last event if its request publishes the prompt; returns whether it did. Called before the
  // generation's blocks are released.
  bool hold(Generation& generation) noexcept QUIRE_REQUIRES(kEngineThread);
  // Sends the events whose publication has ended; without a time, all events.
  void send(std::optional<Clock::time_point> now) QUIRE_REQUIRES(kEngineThread);

  bool empty() const { return held_.empty(); }
  std::optional<Clock::time_point> next_deadline() const;

 private:
  struct Held {
    std::shared_ptr<OutputSink> sink;
    LowerTier::Publication publication;
    OutputEvent event;
  };

  LowerTier* const tier_;
  const SharedError no_memory_;
  std::list<Held> held_;
};

}  // namespace quire
