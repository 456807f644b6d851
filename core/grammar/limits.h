// Limits of a grammar's work: to compile it (GrammarLimits, Budget, Refusal) and while a generation follows it
// (Allowance, Exhausted). One thread at a time. Refusal is thrown inside the compiler only and becomes a Result at
// GrammarCompiler::compile; Exhausted ends a GrammarState. Invariant: every loop of the compiler that can grow with its
// input spends from a Budget.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/base/work_limit.h"

namespace quire {

struct GrammarLimits {
  std::size_t max_spaces = 512;                 // longest whitespace between two JSON tokens; at most 512
  std::size_t max_source_bytes = 4u << 20;      // text of a schema or grammar
  std::size_t max_depth = 256;                  // nesting of schemas, groups and JSON values
  std::size_t max_automaton_states = 60'000;    // states of an automaton over code points
  std::size_t max_automaton_cells = 8'000'000;  // states x character classes of an automaton
  std::size_t max_nodes = 60'000;               // value positions of a schema
  std::size_t max_alternatives = 256;           // shapes of a value position
  std::size_t max_steps = 40'000'000;           // units of work of a compilation
  std::chrono::milliseconds max_time{5'000};    // time of a compilation on its thread's own clock
  std::size_t max_trial_bytes = 128;         // length of the text that measures the price of following; 0: not measured
  std::size_t max_cached_grammars = 256;     // cached grammars; as many cached refusals
  std::size_t max_cached_bytes = 16u << 20;  // text of cached grammars, and of refusals
  // Tables of all cached or used grammars, and those compiled for one client. A grammar that would need more is
  // refused.
  std::size_t max_bytes = std::size_t{128} << 20;
  std::size_t max_client_bytes = std::size_t{64} << 20;
  std::size_t max_prepared_bytes = std::size_t{128} << 20;  // prepared masks; above it all are dropped
};

}  // namespace quire

namespace quire::grammar {

// A schema or grammar that cannot be compiled: `pointer` is the JSON pointer of the keyword ("#/properties/a/not"), or
// empty.
class Refusal : public std::runtime_error {
 public:
  explicit Refusal(const std::string& message, std::string at = {})
      : std::runtime_error(message), pointer(std::move(at)) {}
  std::string pointer;
};

// The compilation's WorkLimit was reached.
class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("the compilation was interrupted") {}
};

class Exhausted : public std::runtime_error {
 public:
  Exhausted() : std::runtime_error("the grammar is too ambiguous to follow") {}
};

// Steps of threads that a text may cost: an initial amount, and more with each token. A common grammar needs a few
// hundred steps for a token, and some hundred thousand to prepare masks that are then kept; an ambiguous one can
// multiply them without bound and would hold up all other requests.
class Allowance {
 public:
  void spend(std::uint64_t steps) {
    if (steps > left_) throw Exhausted();
    left_ -= steps;
  }
  void renew(std::uint64_t steps = kPerToken) { left_ = std::min(kMost, left_ + steps); }
  std::uint64_t left() const { return left_; }

 private:
  static constexpr std::uint64_t kMost = 1'500'000;
  static constexpr std::uint64_t kPerToken = 60'000;
  std::uint64_t left_ = kMost;
};

class Budget {
 public:
  explicit Budget(const GrammarLimits& limits, WorkLimit limit = {})
      : limits_(limits), limit_(std::move(limit)), deadline_(thread_time() + limits.max_time) {}
  const GrammarLimits& limits() const { return limits_; }
  std::size_t spent() const { return spent_; }
  // Accounts for `units` of work; throws Refusal once the work or the time is spent, Interrupted once the limit is
  // reached.
  void spend(std::size_t units) {
    spent_ += units;
    since_check_ += units;
    if (spent_ > limits_.max_steps) throw Refusal("the grammar is too complex to compile");
    if (since_check_ < kCheckEvery) return;
    since_check_ = 0;
    if (limit_.reached()) throw Interrupted();
    if (thread_time() > deadline_) throw Refusal("the grammar takes too long to compile");
  }
  // Characters and groups of all patterns and literals of a compilation: syntax tree nodes, some seventy bytes for each
  // character.
  static constexpr std::size_t kMostNodes = 1'000'000;
  // Accounts for nodes before they are made.
  void take_nodes(std::size_t count) {
    num_nodes_ += count;
    if (num_nodes_ > kMostNodes) throw Refusal("its patterns and texts are too large together");
  }

 private:
  static constexpr std::size_t kCheckEvery = 2'000;
  // CPU time of this thread: whether a grammar is accepted must not depend on the machine's other load.
  static std::chrono::nanoseconds thread_time() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  }

  GrammarLimits limits_;
  WorkLimit limit_;
  std::chrono::nanoseconds deadline_;
  std::size_t spent_ = 0;
  std::size_t since_check_ = 0;
  std::size_t num_nodes_ = 0;
};

}  // namespace quire::grammar
