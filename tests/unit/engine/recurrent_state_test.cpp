// What a model with recurrent layers computes again, and where its states are kept, by scheduler and cache alone.
#include <catch2/catch.hpp>
#include <deque>

#include "core/sched/scheduler.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

struct Served {
  std::int64_t num_computed = 0;     // tokens, the answer's among them
  std::vector<std::int64_t> chunks;  // of the prompt
};

// Serves one request after another with a cache that has room for all of them.
class Server {
 public:
  Served serve(std::vector<TokenId> prompt, const std::vector<TokenId>& answer) {
    Sequence& sequence = sequences_.emplace_back();
    sequence.id = SequenceId{static_cast<std::int64_t>(sequences_.size())};
    sequence.request = std::make_shared<const Request>(request_of(prompt, static_cast<int>(answer.size()) + 1));
    sequence.num_prompt_tokens = static_cast<std::int64_t>(prompt.size());
    sequence.tokens = std::move(prompt);
    scheduler_.add(sequence);
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

}  // namespace

TEST_CASE("the next turn of a conversation computes only what is new", "[state]") {
  Server server;
  const std::vector<TokenId> history = made_tokens(4000, 1);
  const std::vector<TokenId> opening = made_tokens(5, 2);  // with which a template lets the answer begin
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
  SECTION("where the history goes on from its middle") {  // a state is kept every 2048 tokens
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
