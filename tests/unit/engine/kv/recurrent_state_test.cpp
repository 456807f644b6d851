// Tokens that a model with recurrent layers computes again, and the places of its states: scheduler and cache alone.
#include <catch2/catch.hpp>
#include <deque>

#include "core/sched/scheduler.h"
#include "tests/unit/engine/harness.h"
#include "tests/unit/engine/kv/state_memory.h"

using namespace quire;
using namespace quire::test;

namespace {

struct Served {
  std::int64_t num_computed = 0;     // tokens, the answer's among them
  std::vector<std::int64_t> chunks;  // chunks of the prompt
};

// Serves one request after another with a cache that has room for all of them.
class Server {
 public:
  Sequence& add(std::vector<TokenId> prompt, int num_new, std::vector<std::int64_t> message_ends = {}) {
    Sequence& sequence = sequences_.emplace_back();
    sequence.id = SequenceId{static_cast<std::int64_t>(sequences_.size())};
    sequence.request = std::make_shared<const Request>(request_of(prompt, num_new));
    sequence.num_prompt_tokens = static_cast<std::int64_t>(prompt.size());
    sequence.tokens = std::move(prompt);
    sequence.message_ends = std::move(message_ends);
    scheduler_.add(sequence);
    return sequence;
  }

  Served serve(std::vector<TokenId> prompt, const std::vector<TokenId>& answer,
               std::vector<std::int64_t> message_ends = {}) {
    Sequence& sequence = add(std::move(prompt), static_cast<int>(answer.size()) + 1, std::move(message_ends));
    Served served;
    for (std::size_t next = 0; true;) {
      scheduler_.schedule(plan_);
      REQUIRE(plan_.entries.size() == 1);
      served.num_computed += plan_.num_tokens;
      if (plan_.num_prompt_tokens > 0) served.chunks.push_back(plan_.num_prompt_tokens);
      scheduler_.commit(plan_, {.seconds = 0.001});
      if (sequence.num_remaining() > 0) continue;
      if (next == answer.size()) break;
      sequence.tokens.push_back(answer[next++]);
    }
    scheduler_.finish(sequence);
    kv_.check_integrity();
    return served;
  }

  // Serves the prompts at once and without answers; returns the number of computed tokens.
  std::int64_t serve_together(const std::vector<std::vector<TokenId>>& prompts) {
    std::vector<Sequence*> left;
    for (const auto& prompt : prompts)
      left.push_back(&add(prompt, 1));
    std::int64_t num_computed = 0;
    while (!left.empty()) {
      scheduler_.schedule(plan_);
      REQUIRE(!plan_.empty());
      num_computed += plan_.num_tokens;
      scheduler_.commit(plan_, {.seconds = 0.001});
      std::erase_if(left, [&](Sequence* sequence) {
        if (sequence->num_remaining() > 0) return false;
        scheduler_.finish(*sequence);
        return true;
      });
    }
    kv_.check_integrity();
    return num_computed;
  }

 private:
  KvCache kv_{1000, 16, true, content_hash, "", 16};
  Scheduler scheduler_{{.max_num_seqs = 4, .max_num_batched_tokens = 1024}, kv_};
  std::deque<Sequence> sequences_;
  StepPlan plan_;
};

std::vector<TokenId> operator+(std::vector<TokenId> tokens, const std::vector<TokenId>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

// Streams with drafts; a state's content is the tokens that it stands after.
class DraftedStates {
 public:
  DraftedStates(int num_streams, int num_states)
      : kv_(100, 4, true, content_hash, "", num_states),
        scheduler_({.max_num_seqs = num_streams, .max_num_batched_tokens = 64}, kv_),
        memory_(num_states) {
    for (int i = 0; i < num_streams; ++i) {
      Sequence& sequence = sequences_.emplace_back();
      sequence.id = SequenceId{i};
      sequence.request = std::make_shared<const Request>(request_of(made_tokens(6, i), 200));
      sequence.tokens = made_tokens(6, i);
      sequence.num_prompt_tokens = 6;
      scheduler_.add(sequence);
    }
  }

  // Gives each stream `num_drafts`, of which `num_right` are right; returns the number verified.
  std::int64_t step(int num_drafts, int num_right) {
    for (Sequence& sequence : sequences_) {
      sequence.drafts.clear();
      sequence.draft_rate = 1.0;
      for (int i = 0; i < num_drafts && sequence.num_remaining() == 1; ++i)
        sequence.drafts.push_back(TokenId{i < num_right ? 7 : 8});
    }
    scheduler_.schedule(plan_);
    for (const BlockCopy& copy : plan_.transfers.copies) {
      if (copy.of == BlockCopy::Of::kState) memory_.copy_state(copy.source.value, copy.destination.value);
    }
    StepOutput output;
    for (const StepEntry& entry : plan_.entries) {
      compute(entry);
      output.entries.push_back({entry.num_tokens, std::min<std::int64_t>(num_right, entry.num_drafts)});
    }
    const std::int64_t num_verified = plan_.num_drafts;
    scheduler_.commit(plan_, output);
    for (std::size_t i = 0; i < plan_.entries.size(); ++i) {
      Sequence& sequence = *plan_.entries[i].sequence;
      const std::int64_t num_known = plan_.entries[i].num_known();
      if (begins_[i] + num_known < sequence.num_tokens()) continue;
      for (std::int64_t k = 0; k <= output.entries[i].num_accepted; ++k)
        sequence.tokens.push_back(TokenId{7});
    }
    begins_.clear();
    kv_.check_integrity();
    return num_verified;
  }

  void finish() {
    for (Sequence& sequence : sequences_)
      scheduler_.finish(sequence);
    kv_.check_integrity();
  }

  const Sequence& sequence(std::size_t index) const { return sequences_[index]; }

 private:
  void compute(const StepEntry& entry) {
    const Sequence& sequence = *entry.sequence;
    begins_.push_back(sequence.num_computed);
    std::vector<TokenId>& state = memory_.of(sequence.table.state.value);
    if (sequence.num_computed == 0) state.clear();
    const auto begin = sequence.tokens.begin();
    REQUIRE(state == std::vector<TokenId>(begin, begin + sequence.num_computed));
    state.insert(state.end(), begin + sequence.num_computed, begin + sequence.num_computed + entry.num_known());
    state.insert(state.end(), sequence.drafts.begin(), sequence.drafts.begin() + entry.num_drafts);
  }

  KvCache kv_;
  Scheduler scheduler_;
  StateMemory memory_;
  std::deque<Sequence> sequences_;
  std::vector<std::int64_t> begins_;
  StepPlan plan_;
};

}  // namespace

TEST_CASE("a state that went over a wrong draft goes back, and what was right is computed again", "[state][draft]") {
  DraftedStates scene(2, 6);
  scene.step(0, 0);
  REQUIRE(scene.sequence(0).num_computed == 6);
  CHECK(scene.step(2, 2) == 4);
  CHECK(scene.sequence(0).num_tokens() == 10);
  CHECK(scene.sequence(0).num_computed == 9);
  CHECK(scene.step(2, 1) == 4);
  CHECK(scene.sequence(0).num_tokens() == 12);
  CHECK(scene.sequence(0).num_computed == 9);  // unchanged
  CHECK(scene.step(2, 2) == 0);
  CHECK(scene.sequence(0).num_tokens() == 13);
  CHECK(scene.sequence(0).num_computed == 12);
  for (int i = 0; i < 20; ++i)
    scene.step(1 + i % 2, i % 3);
  scene.finish();
}

TEST_CASE("drafts take no state that another sequence needs", "[state][draft]") {
  DraftedStates tight(2, 2);
  tight.step(0, 0);
  CHECK(tight.step(2, 2) == 0);
  DraftedStates one_left(2, 3);
  one_left.step(0, 0);
  CHECK(one_left.step(1, 1) == 1);
  one_left.finish();
}

TEST_CASE("the next turn of a conversation computes only what is new", "[state]") {
  Server server;
  const std::vector<TokenId> history = made_tokens(4000, 1);
  const std::vector<TokenId> opening = made_tokens(5, 2);  // text with which the template begins the answer
  const std::vector<TokenId> answer = made_tokens(40, 3);
  const std::vector<TokenId> question = made_tokens(30, 4);
  CHECK(server.serve(history + opening, answer).num_computed == 4045);
  SECTION("where the template repeats all of it") {
    CHECK(server.serve(history + opening + answer + question, {}).num_computed == 30);
  }
  SECTION("where it leaves the opening out") {
    CHECK(server.serve(history + answer + question, {}).num_computed <= 40 + 30 + 64);
  }
  SECTION("where the same is asked again") {
    CHECK(server.serve(history + opening, answer).num_computed <= 40 + 64);
  }
  SECTION("where the history continues from its middle") {  // a state is kept every 2048 tokens
    const std::vector<TokenId> half(history.begin(), history.begin() + 3000);
    CHECK(server.serve(half + question, {}).num_computed <= 3000 - 2048 + 30);
  }
}

TEST_CASE("a prompt's chunks end where a state is kept", "[state]") {
  Server server;
  CHECK(server.serve(made_tokens(2000, 1), {}).chunks == std::vector<std::int64_t>{1024, 944, 32});
  CHECK(server.serve(made_tokens(100, 2), {}).chunks == std::vector<std::int64_t>{64, 36});
  CHECK(server.serve(made_tokens(63, 3), {}).chunks == std::vector<std::int64_t>{63});
}

TEST_CASE("a state is kept after the first message and before the last one", "[state]") {
  Server server;
  const std::vector<TokenId> rules = made_tokens(800, 1);
  const std::vector<TokenId> history = made_tokens(1000, 2);
  const std::vector<TokenId> question = made_tokens(400, 3);
  const std::vector<TokenId> other = made_tokens(400, 4);
  CHECK(server.serve(rules + history + question, {}, {800, 1400, 1800, 2200}).chunks ==
        std::vector<std::int64_t>{800, 992, 368, 40});
  SECTION("the last message is asked again") {
    CHECK(server.serve(rules + history + other, {}, {800, 1400, 1800, 2200}).num_computed <= 400 + 64);
  }
  SECTION("another conversation begins with the same message") {
    CHECK(server.serve(rules + other, {}, {800, 1200}).num_computed == 400);
  }
}

TEST_CASE("equal prompts that come at once are computed once, up to the last border", "[state]") {
  Server server;
  const std::vector<TokenId> prompt = made_tokens(3000, 1);
  CHECK(server.serve_together({prompt, prompt, prompt, prompt}) <= 3000 + 3 * 64);
}

TEST_CASE("prompts that differ before a border are not kept waiting for each other", "[state]") {
  Server server;
  const std::vector<TokenId> shared = made_tokens(500, 1);
  CHECK(server.serve_together({shared + made_tokens(500, 2), shared + made_tokens(500, 3)}) == 2000);
}
