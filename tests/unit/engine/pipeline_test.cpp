// The order of work around steps: what is in flight at once, which calls wait for which, and the end of a request whose
// own work fails.
#include <catch2/catch.hpp>
#include <new>
#include <stdexcept>
#include <string>

#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

// Notes each call of the engine, in order.
class NotingExecutor final : public Executor {
 public:
  NotingExecutor(std::unique_ptr<Executor> executor, std::vector<std::string>& notes)
      : executor_(std::move(executor)), notes_(notes) {}
  std::int64_t depth() const override { return executor_->depth(); }
  Ticket& submit(const StepPlan& plan, const StepArrays& arrays) override {
    Noted& noted = tickets_[num_submitted_ % 2];
    noted = {};
    noted.notes = &notes_;
    noted.number = std::to_string(num_submitted_++);
    notes_.push_back("submit " + noted.number);
    pending_ids.push_back(arrays.token_ids[0] < 0);
    noted.ticket = &executor_->submit(plan, arrays);
    return noted;
  }
  const Model& model() const override { return executor_->model(); }
  KvStorage& storage() override { return executor_->storage(); }
  KvStorage* window_storage() override { return executor_->window_storage(); }
  StateStorage* states() override { return executor_->states(); }
  std::string name() const override { return executor_->name(); }

  std::vector<bool> pending_ids;  // by step: whether its first row's token was unknown

 private:
  struct Noted final : Ticket {
    void draw(const DrawBatch& batch) override {
      notes->push_back("draw " + number);
      ticket->draw(batch);
    }
    StepOutput& wait() override {
      notes->push_back("wait " + number);
      return ticket->wait();
    }
    std::vector<std::string>* notes = nullptr;
    std::string number;
    Ticket* ticket = nullptr;
  };
  std::unique_ptr<Executor> executor_;
  std::vector<std::string>& notes_;
  std::array<Noted, 2> tickets_;
  std::uint64_t num_submitted_ = 0;
};

enum class Place { kStart, kFillMask, kAccept, kForcedTokens };

// Allows everything; fails at one place, the third time.
class FailingGrammar : public Grammar {
 public:
  FailingGrammar(Place place, std::function<void()> fail, std::vector<std::string>* notes = nullptr)
      : place_(place), fail_(std::move(fail)), notes_(notes) {}
  std::unique_ptr<GrammarState> start() const override {
    if (place_ == Place::kStart) fail_();
    return std::make_unique<State>(*this);
  }

 private:
  class State : public GrammarState {
   public:
    explicit State(const FailingGrammar& grammar) : grammar_(grammar) {}
    void assign(const GrammarState& other) override { num_calls_ = static_cast<const State&>(other).num_calls_; }
    void fill_mask(std::span<std::uint32_t> mask) override {
      if (grammar_.notes_ != nullptr) grammar_.notes_->push_back("mask");
      at(Place::kFillMask);
      std::fill(mask.begin(), mask.end(), ~0U);
    }
    bool accept(TokenId) override {
      at(Place::kAccept);
      return true;
    }
    bool finished() const override { return false; }
    std::span<const TokenId> forced_tokens() override {
      at(Place::kForcedTokens);
      return {};
    }

   private:
    void at(Place place) {
      if (place == grammar_.place_ && ++num_calls_ == 3) grammar_.fail_();
    }
    const FailingGrammar& grammar_;
    int num_calls_ = 0;
  };
  Place place_;
  std::function<void()> fail_;
  std::vector<std::string>* notes_;
};

// Allows everything, and notes when a request's grammar state is destroyed.
class NotedGrammar : public Grammar {
 public:
  explicit NotedGrammar(std::vector<std::string>& notes) : notes_(notes) {}
  std::unique_ptr<GrammarState> start() const override { return std::make_unique<State>(notes_); }

 private:
  class State : public GrammarState {
   public:
    explicit State(std::vector<std::string>& notes) : notes_(notes) {}
    ~State() override { notes_.push_back("destroyed"); }
    void assign(const GrammarState&) override {}
    void fill_mask(std::span<std::uint32_t> mask) override { std::fill(mask.begin(), mask.end(), ~0U); }
    bool accept(TokenId) override { return true; }
    bool finished() const override { return false; }
    std::span<const TokenId> forced_tokens() override { return {}; }

   private:
    std::vector<std::string>& notes_;
  };
  std::vector<std::string>& notes_;
};

struct NotedRun {
  std::vector<std::string> notes;
  std::vector<bool> pending_ids;
};

// Runs a constrained request of three tokens.
NotedRun noted_run(std::optional<std::uint32_t> deferred_seed) {
  NotedRun run;
  FakeBackend backend;
  FakeModel model;
  const EngineOptions options;
  auto storage = backend.allocate_kv({.num_layers = 1, .num_blocks = 64, .block_size = 4});
  auto noting = std::make_unique<NotingExecutor>(
      make_executor(model, backend, std::move(storage), options, deferred_seed), run.notes);
  const NotingExecutor& executor = *noting;
  Engine engine(std::move(noting), std::vector<TokenId>{}, options);
  Request request = request_of(made_tokens(6, 1), 3);
  request.grammar = std::make_shared<FailingGrammar>(
      Place::kStart, [] {}, &run.notes);
  const auto sink = std::make_shared<KeepingSink>(1);
  const auto accepted = engine.queue().submit({std::make_shared<const Request>(std::move(request)), sink});
  REQUIRE(accepted);
  kEngineThread.assume();
  while (engine.step(Clock::time_point())) {
  }
  CHECK(sink->choices[0].tokens.size() == 3);
  run.pending_ids = executor.pending_ids;
  return run;
}

}  // namespace

TEST_CASE("with one step in flight each is finished before the next is planned", "[engine]") {
  const NotedRun run = noted_run(std::nullopt);
  CHECK(run.notes == std::vector<std::string>{"submit 0", "mask", "draw 0", "wait 0", "submit 1", "mask", "draw 1",
                                              "wait 1", "submit 2", "mask", "draw 2", "wait 2"});
  CHECK(run.pending_ids == std::vector<bool>{false, false, false});
}

TEST_CASE("with two steps in flight masks are made while the next step computes", "[engine]") {
  const NotedRun run = noted_run(3);
  CHECK(run.notes == std::vector<std::string>{"submit 0", "mask", "draw 0", "submit 1", "wait 0", "mask", "draw 1",
                                              "submit 2", "wait 1", "mask", "draw 2", "wait 2"});
  CHECK(run.pending_ids == std::vector<bool>{false, true, true});
}

TEST_CASE("what a request keeps stays until each step in flight when it ended is done", "[engine]") {
  std::vector<std::string> notes;
  FakeBackend backend;
  FakeModel model;
  const EngineOptions options;
  auto storage = backend.allocate_kv({.num_layers = 1, .num_blocks = 64, .block_size = 4});
  Engine engine(std::make_unique<NotingExecutor>(make_executor(model, backend, std::move(storage), options, 3), notes),
                std::vector<TokenId>{}, options);
  // The first is named by steps 0 and 1 alone: when step 2 is planned, its last token is being drawn.
  std::vector<std::shared_ptr<KeepingSink>> sinks;
  for (const int max_tokens : {2, 4}) {
    Request request = request_of(made_tokens(6, max_tokens), max_tokens);
    request.id = std::to_string(max_tokens);
    if (max_tokens == 2) request.grammar = std::make_shared<NotedGrammar>(notes);
    sinks.push_back(std::make_shared<KeepingSink>(1));
    const auto accepted = engine.queue().submit({std::make_shared<const Request>(std::move(request)), sinks.back()});
    REQUIRE(accepted);
  }
  kEngineThread.assume();
  while (engine.step(Clock::time_point())) {
    if (notes.back() == "draw 2") CHECK(sinks[0]->finished());
  }
  CHECK(notes == std::vector<std::string>{"submit 0", "draw 0", "submit 1", "wait 0", "draw 1", "submit 2", "wait 1",
                                          "draw 2", "submit 3", "wait 2", "destroyed", "draw 3", "wait 3"});
}

TEST_CASE("prices of steps are learned with one step in flight and with two", "[engine]") {
  HarnessOptions options{.num_blocks = 1100};
  options.deferred_seed = GENERATE(std::optional<std::uint32_t>(), std::optional<std::uint32_t>(3));
  options.engine.scheduler.max_step_time_ms = SchedulerOptions::kAutoStepTime;
  Harness harness(options);
  const auto sink = harness.submit(request_of(made_tokens(4000, 1), 4));
  harness.step();
  CHECK(harness.engine.stats().predicted_step_s == 0.0);
  const int num_steps = harness.run();
  CHECK(sink->finished());
  CHECK(harness.engine.stats().predicted_step_s > 0.0);
  CHECK(num_steps < 50);  // without prices, 250 steps of 16 tokens each
}

TEST_CASE("a request whose grammar fails ends alone, memory included", "[engine]") {
  const Place place = GENERATE(Place::kStart, Place::kFillMask, Place::kAccept, Place::kForcedTokens);
  const bool of_memory = GENERATE(true, false);
  HarnessOptions options;
  options.deferred_seed = GENERATE(std::optional<std::uint32_t>(), std::optional<std::uint32_t>(7));
  Harness harness(options);
  Request request = request_of(made_tokens(6, 1), 20);
  request.num_choices = GENERATE(1, 2);
  request.grammar = std::make_shared<FailingGrammar>(place, [of_memory] {
    if (of_memory) throw std::bad_alloc();
    throw std::runtime_error("broken grammar");
  });
  const auto failing = harness.submit(request);
  const auto neighbour = harness.submit(request_of(made_tokens(6, 2), 20));
  harness.run();
  for (const ChoiceOutput& choice : failing->choices) {
    REQUIRE(choice.finishes.size() == 1);
    CHECK(choice.finishes[0].reason == FinishReason::kError);
    REQUIRE(choice.finishes[0].error);
    CHECK(choice.finishes[0].error->code == (of_memory ? "out_of_memory" : "request_failed"));
    CHECK(choice.tokens.size() <= 3);
  }
  CHECK(neighbour->choices[0].tokens.size() == 20);
  CHECK(harness.engine.healthy());
  CHECK(harness.engine.stats().num_blocks_used == 0);
}

TEST_CASE("a step that is ended early commits what was computed, and the texts stay the same", "[engine]") {
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i)
    requests.push_back(request_of(made_tokens(30 + 9 * i, i), 12));
  requests[1].sampling.num_prompt_logprobs = 1;
  requests[2].num_choices = 3;
  requests[3].pooling = Pooling::kMean;
  const auto outputs_of = [&](const HarnessOptions& options) {
    Harness harness(options);
    std::vector<std::shared_ptr<KeepingSink>> sinks;
    for (const Request& request : requests)
      sinks.push_back(harness.submit(request));
    harness.run();
    CHECK(harness.engine.stats().num_blocks_used == 0);
    return std::pair(std::move(sinks), harness.engine.stats().num_steps);
  };
  HarnessOptions options{.num_blocks = 400};
  options.deferred_seed.reset();
  const auto [whole, num_whole] = outputs_of(options);
  options.interrupt_seed = 5;
  const auto [cut, num_cut] = outputs_of(options);
  CHECK(num_cut > num_whole);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (std::size_t choice = 0; choice < whole[i]->choices.size(); ++choice) {
      CHECK(cut[i]->choices[choice].tokens == whole[i]->choices[choice].tokens);
      CHECK(cut[i]->choices[choice].embedding == whole[i]->choices[choice].embedding);
      CHECK(cut[i]->choices[choice].finishes.size() == 1);
      CHECK(cut[i]->choices[choice].prompt_logprobs.size() == whole[i]->choices[choice].prompt_logprobs.size());
    }
  }
}

TEST_CASE("what fails on the host while a step is submitted ends that step's requests, and is no device's failure",
          "[engine]") {
  const bool of_memory = GENERATE(true, false);
  const auto fail = [of_memory] {
    if (of_memory) throw std::bad_alloc();
    throw std::logic_error("broken arrays");
  };
  enum class Where { kSubmit, kSubmitOfTwo, kModel };
  const Where where = GENERATE(Where::kSubmit, Where::kSubmitOfTwo, Where::kModel);
  int num_left = 3;
  const auto count_down = [&] {
    if (--num_left == 0) fail();
  };
  HarnessOptions options;
  options.deferred_seed.reset();
  if (where == Where::kSubmitOfTwo) options.deferred_seed = 7;
  if (where != Where::kModel) options.on_submit = [&](const StepPlan&, const StepArrays&) { count_down(); };
  Harness harness(options);
  if (where == Where::kModel) harness.model.before_slice = count_down;
  Request several = request_of(made_tokens(6, 1), 20);
  several.num_choices = GENERATE(1, 2);
  const auto failing = harness.submit(several);
  const auto next = harness.submit(request_of(made_tokens(7, 2), 20));
  while (num_left > 0)
    harness.step();
  const Request waiting = request_of(made_tokens(9, 3), 20);
  const auto neighbour = harness.submit(waiting);
  harness.run();
  for (const auto& sink : {failing, next}) {
    for (const ChoiceOutput& choice : sink->choices) {
      REQUIRE(choice.finishes.size() == 1);
      REQUIRE(choice.finishes[0].error);
      CHECK(choice.finishes[0].error->code == (of_memory ? "out_of_memory" : "request_failed"));
    }
  }
  CHECK_FALSE(neighbour->choices[0].finishes.at(0).error);
  Harness other;
  const auto alone = other.submit(waiting);
  other.run();
  CHECK(neighbour->choices[0].tokens == alone->choices[0].tokens);
  CHECK(harness.engine.healthy());
  CHECK(harness.engine.stats().num_blocks_used == 0);
}
