// Walker: runs a Machine over the texts of a Trie to find which of them it can read. One thread at a time. Its cost is
// that of the trie's live nodes; afterwards the machine's stack is as before. Its levels outlive it, so that walking
// allocates nothing in the long run.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "core/grammar/machine/machine.h"
#include "core/grammar/mask/trie.h"

namespace quire::grammar {

// Working memory of a depth of the walk. The levels grow without moving those in use.
struct WalkLevel {
  Threads threads;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> open;  // inside a string: nodes, with the lexer's state at each
};
using WalkLevels = std::deque<WalkLevel>;

class Walker {
 public:
  // on_live(node): the text of the node can be read. on_base(node, depth, passed): reading it finished the value on
  // kBaseFrame; `passed`: the value had ended at depth, before the node's own byte.
  using OnLive = std::function<void(std::uint32_t node)>;
  using OnBase = std::function<void(std::uint32_t node, std::size_t depth, bool passed)>;

  Walker(Machine& machine, const Trie& trie, WalkLevels& levels) : machine_(machine), trie_(trie), levels_(levels) {}
  // Unwanted nodes are skipped, with all nodes below them.
  using Wanted = std::function<bool(std::uint32_t node)>;
  void want_only(Wanted wanted) { wanted_ = std::move(wanted); }
  // Reads the texts below `node`, where `threads` stand; `depth` is the node's.
  void below(std::uint32_t node, const Threads& threads, std::size_t depth, const OnLive& on_live,
             const OnBase& on_base);

 private:
  void descend(std::uint32_t node, std::size_t level, std::size_t depth);
  void string_below(std::uint32_t node, const Thread& thread, std::size_t level, std::size_t depth);
  void arrive(std::uint32_t node, bool alive, std::size_t level, std::size_t depth);
  WalkLevel& level(std::size_t index);

  Machine& machine_;
  const Trie& trie_;
  WalkLevels& levels_;
  const OnLive* on_live_ = nullptr;
  const OnBase* on_base_ = nullptr;
  Wanted wanted_;
};

}  // namespace quire::grammar
