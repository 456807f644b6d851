// Scene: a scheduler and its sequences over a cache of blocks of four tokens, whose steps a test compares entry by
// entry. One thread at a time.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "core/sched/scheduler.h"
#include "tests/unit/engine/harness.h"

namespace quire::test {

struct Planned {
  std::int64_t id;
  std::int64_t num_tokens;
  bool operator==(const Planned&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const Planned& planned) {
  return out << planned.id << ":" << planned.num_tokens;
}

// A scheduler and its sequences, with an oracle that appends a token whenever one is due.
class Scene {
 public:
  Scene(const SchedulerOptions& options, std::int64_t num_blocks, bool prefix_caching = false)
      : kv(num_blocks, 4, prefix_caching), scheduler(options, kv) {}

  Sequence& add(std::vector<TokenId> prompt, std::string key = "", int priority = 0, int max_tokens = 1000) {
    auto request = std::make_shared<Request>(request_of(std::move(prompt), max_tokens));
    request->key_name = std::move(key);
    request->priority = priority;
    request->arrival = Clock::time_point(std::chrono::milliseconds(1000 * num_added_++));
    return add(std::move(request));
  }
  Sequence& add(std::shared_ptr<const Request> request, bool continues_list = false) {
    Sequence& sequence = sequences.emplace_back();
    sequence.continues_list = continues_list;
    sequence.id = SequenceId{static_cast<std::int64_t>(sequences.size()) - 1};
    sequence.tokens = request->prompt;
    sequence.num_prompt_tokens = static_cast<std::int64_t>(request->prompt.size());
    sequence.request = std::move(request);
    scheduler.add(sequence);
    return sequence;
  }
  Sequence& add(int num_tokens, std::string key = "", int priority = 0) {
    return add(made_tokens(num_tokens, 1000 + num_added_), std::move(key), priority);
  }

  Sequence& add_short(int num_tokens, int max_tokens) {
    return add(made_tokens(num_tokens, 1000 + num_added_), "", 0, max_tokens);
  }

  Sequence& add_of_list(int num_tokens) {
    Request request = request_of(made_tokens(num_tokens, 1000 + num_added_), 1000);
    request.arrival = Clock::time_point(std::chrono::milliseconds(1000 * num_added_++));
    return add(std::make_shared<const Request>(std::move(request)), true);
  }

  // Adds a sequence with the request and arrival of another.
  Sequence& add_beside(const Sequence& other, int num_tokens) {
    Request request = *other.request;
    request.prompt = made_tokens(num_tokens, 5000);
    return add(std::make_shared<const Request>(std::move(request)));
  }
  // Adds another choice of a sequence that just drew its first token.
  Sequence& fork(Sequence& parent) {
    Sequence& child = sequences.emplace_back();
    child.id = SequenceId{static_cast<std::int64_t>(sequences.size()) - 1};
    child.request = parent.request;
    child.tokens = parent.request->prompt;
    child.num_prompt_tokens = parent.num_prompt_tokens;
    scheduler.fork(parent, child);
    child.tokens.push_back(TokenId{500 + static_cast<int>(sequences.size())});
    return child;
  }
  void pass(int seconds) { num_added_ += seconds; }

  std::vector<Planned> step() {
    scheduler.schedule(plan, limits);
    std::vector<Planned> planned;
    for (const StepEntry& entry : plan.entries)
      planned.push_back({entry.sequence->id.value, entry.num_tokens});
    scheduler.commit(plan, {.seconds = 0.001 * static_cast<double>(1 + plan.num_prompt_tokens)});
    for (const StepEntry& entry : plan.entries) {
      Sequence& sequence = *entry.sequence;
      if (sequence.num_remaining() > 0) continue;
      sequence.tokens.push_back(TokenId{static_cast<int>(sequence.num_tokens())});
      if (sequence.num_generated() == sequence.request->sampling.max_tokens) scheduler.finish(sequence);
    }
    return planned;
  }

  KvCache kv;
  Scheduler scheduler;
  StepLimits limits;
  StepPlan plan;
  std::deque<Sequence> sequences;

 private:
  int num_added_ = 0;
};

using Plan = std::vector<Planned>;

}  // namespace quire::test
