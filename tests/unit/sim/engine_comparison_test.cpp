// The simulator and the engine on one trace: the same batches, step by step. The engine is the real one over a fake
// model; its device takes the time that the price says, and the trace's requests arrive by that clock.
#include <catch2/catch.hpp>
#include <random>
#include <sstream>

#include "core/sim/simulation.h"
#include "tests/unit/engine/harness.h"
#include "tests/unit/engine/kv/state_memory.h"

using namespace quire;
using namespace quire::sim;
using namespace quire::test;

namespace {

// Prices of a CPU, so that prompts' steps reach the bound of a step's time.
constexpr StepPrice kPrice{
    .fixed = 0.02, .stream = 0.002, .prompt_token = 0.001, .stream_ktoken = 0.0005, .prompt_ktoken = 0.0001};

Clock::time_point at(double seconds) {
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
}

class ListSource final : public TraceSource {
 public:
  explicit ListSource(const std::vector<TraceRequest>& requests) : requests_(requests) {}
  bool next(TraceRequest& request) override {
    if (position_ == requests_.size()) return false;
    request = requests_[position_++];
    return true;
  }

 private:
  const std::vector<TraceRequest>& requests_;
  std::size_t position_ = 0;
};

// Bursts and pauses; most prompts are short, some long, and many share a beginning.
std::vector<TraceRequest> made_trace(std::uint32_t seed, int num_requests) {
  std::mt19937 random(seed);
  std::vector<TraceRequest> trace;
  double now_s = 0.0;
  for (int i = 0; i < num_requests; ++i) {
    now_s += random() % 4 == 0 ? 0.2 * static_cast<double>(random() % 20) : 0.001 * static_cast<double>(random() % 50);
    TraceRequest request;
    request.arrival_s = now_s;
    request.num_prompt_tokens =
        static_cast<std::int32_t>(random() % 5 == 0 ? 600 + random() % 2500 : 1 + random() % 200);
    request.num_output_tokens = static_cast<std::int32_t>(random() % 4 == 0 ? 150 + random() % 200 : 1 + random() % 60);
    for (std::int32_t block = 0; random() % 3 != 0 && block < 3; ++block) {
      request.hash_ids.push_back(static_cast<std::int32_t>(random() % 2) + 2 * block);
      request.num_prompt_tokens += kHashBlockSize;
    }
    request.key = "key-" + std::to_string(random() % 3);
    trace.push_back(request);
  }
  return trace;
}

// Submits a trace's requests as the device's clock advances.
class Arrivals {
 public:
  Arrivals(const std::vector<TraceRequest>& trace, RequestQueue& queue) : trace_(trace), queue_(queue) {}

  void submit_until(double now_s) {
    while (next_ < trace_.size() && trace_[next_].arrival_s <= now_s) {
      const TraceRequest& from = trace_[next_];
      Request request = request_of(prompt_tokens(from, static_cast<std::int64_t>(next_)), from.num_output_tokens);
      request.id = std::to_string(next_++);
      request.key_name = from.key;
      request.arrival = at(from.arrival_s);
      sinks.push_back(std::make_shared<KeepingSink>(1));
      const auto sent = queue_.submit({std::make_shared<const Request>(std::move(request)), sinks.back()});
      REQUIRE(sent.has_value());
    }
  }
  bool all_sent() const { return next_ == trace_.size(); }
  double next_s() const { return trace_[next_].arrival_s; }

  std::vector<std::shared_ptr<KeepingSink>> sinks;

 private:
  const std::vector<TraceRequest>& trace_;
  RequestQueue& queue_;
  std::size_t next_ = 0;
};

// A device whose steps take the price's time; requests that arrive meanwhile are seen between two slices.
class PricedExecutor final : public Executor, private Ticket {
 public:
  PricedExecutor(FakeModel& model, std::unique_ptr<Executor> device, std::int64_t num_states)
      : device_(std::move(device)), states_(num_states) {
    model.before_slice = [this] { begin_slice(); };
  }

  std::int64_t depth() const override { return 1; }
  Ticket& submit(const StepPlan& plan, const StepArrays& arrays) override {
    plan_ = &plan;
    if (plan.empty()) {  // a step that only moves blocks takes no time
      ticket_ = &device_->submit(plan, arrays);
      return *this;
    }
    slice_rows_ = arrays.slice_rows > 0 ? arrays.slice_rows : arrays.num_rows();
    num_rows_ = 0;
    of_blocks_ = plan;  // the fake model has no states to copy
    std::erase_if(of_blocks_.transfers.copies, [](const BlockCopy& copy) { return copy.of == BlockCopy::Of::kState; });
    ticket_ = &device_->submit(of_blocks_, arrays);
    return *this;
  }
  const Model& model() const override { return device_->model(); }
  KvStorage& storage() override { return device_->storage(); }
  KvStorage* window_storage() override { return device_->window_storage(); }
  StateStorage* states() override { return states_.layout().num_states == 0 ? nullptr : &states_; }
  std::string name() const override { return device_->name(); }

  Arrivals* arrivals = nullptr;
  double now_s = 0.0;
  std::vector<SimStep> steps;

 private:
  void begin_slice() {
    num_rows_ += slice_rows_;
    StepOutput until;
    if (num_rows_ < plan_->num_tokens) until.end_early(*plan_, num_rows_);
    ends_s_ = now_s + kPrice.seconds(until.terms_of(*plan_));
    if (plan_->cuts_slices && !arrivals->all_sent()) ends_s_ = std::min(ends_s_, arrivals->next_s());
    arrivals->submit_until(ends_s_);
  }
  void draw(const DrawBatch& batch) override {
    kEngineThread.assume();
    ticket_->draw(batch);
  }
  StepOutput& wait() override {
    kEngineThread.assume();
    StepOutput& output = ticket_->wait();
    if (plan_->empty()) return output;
    output.seconds = output.cut_slice ? ends_s_ - now_s : kPrice.seconds(output.terms_of(*plan_));
    SimStep& step = steps.emplace_back(SimStep{.began_s = now_s, .seconds = output.seconds, .entries = {}});
    for (std::size_t i = 0; i < plan_->entries.size(); ++i) {
      const Request& request = *plan_->entries[i].sequence->request;
      step.entries.push_back({std::stoll(request.id), output.of(*plan_, i).num_computed});
    }
    now_s += output.seconds;
    return output;
  }

  std::unique_ptr<Executor> device_;
  StateMemory states_;
  const StepPlan* plan_ = nullptr;
  StepPlan of_blocks_;
  Ticket* ticket_ = nullptr;
  std::int64_t slice_rows_ = 0;
  std::int64_t num_rows_ = 0;  // end of the slice being computed
  double ends_s_ = 0.0;        // end of that slice, or the arrival that cuts it
};

struct EngineRun {
  std::vector<SimStep> steps;
  EngineStats stats;
};

EngineRun run_engine(const SimOptions& options, const std::vector<TraceRequest>& trace) {
  FakeBackend backend;
  FakeModel model(4096, 100'000, options.window_tokens);
  EngineOptions engine_options;
  engine_options.scheduler = options.scheduler;
  const std::int64_t block_bytes = options.block_size * static_cast<std::int64_t>(sizeof(TokenId));
  engine_options.kv_cache.host_tier_bytes = options.tier_blocks * 2 * block_bytes;  // a block holds its tokens
  engine_options.num_window_parts = options.num_window_parts;
  engine_options.queue.max_queued_requests = 1 << 20;
  engine_options.queue.max_queued_tokens = 1 << 30;
  auto storage =
      backend.allocate_kv({.num_layers = 1, .num_blocks = options.num_blocks, .block_size = options.block_size});
  auto priced = std::make_unique<PricedExecutor>(
      model, make_executor(model, backend, std::move(storage), engine_options, std::nullopt), options.num_states);
  PricedExecutor& device = *priced;
  Engine engine(std::move(priced), std::vector<TokenId>{}, engine_options);
  Arrivals arrivals(trace, engine.queue());
  device.arrivals = &arrivals;
  kEngineThread.assume();
  while (true) {
    arrivals.submit_until(device.now_s);
    if (engine.step(at(device.now_s))) continue;
    if (arrivals.all_sent()) break;
    device.now_s = arrivals.next_s();
  }
  for (const auto& sink : arrivals.sinks)
    CHECK(sink->finished());
  return {device.steps, engine.stats()};
}

std::string text_of(const SimStep& step) {
  std::ostringstream text;
  text << "at " << step.began_s << " for " << step.seconds << ":";
  for (const SimStep::Entry& entry : step.entries)
    text << " " << entry.request << "x" << entry.num_tokens;
  return text.str();
}

// Returns the number of steps, which both have in common.
std::size_t check_same_steps(SimOptions options, const std::vector<TraceRequest>& trace, SimReport& report) {
  options.price = kPrice;
  options.keeps_steps = true;
  ListSource source(trace);
  auto simulated = simulate(options, source);
  REQUIRE(simulated);
  report = *std::move(simulated);
  const EngineRun run = run_engine(options, trace);
  for (std::size_t i = 0; i < std::min(run.steps.size(), report.steps.size()); ++i) {
    INFO("step " << i << "\nengine    " << text_of(run.steps[i]) << "\nsimulator " << text_of(report.steps[i]));
    REQUIRE(run.steps[i].entries == report.steps[i].entries);
    REQUIRE(run.steps[i].began_s == report.steps[i].began_s);
    REQUIRE(run.steps[i].seconds == report.steps[i].seconds);
  }
  REQUIRE(run.steps.size() == report.steps.size());
  CHECK(run.stats.num_preemptions == static_cast<std::uint64_t>(report.num_preemptions));
  CHECK(run.stats.prefix_cache_hits == static_cast<std::uint64_t>(report.num_cached_tokens));
  return report.steps.size();
}

SimOptions small_machine() {
  SimOptions options;
  options.num_blocks = 340;  // a few of the long ones
  options.scheduler.max_num_seqs = 12;
  options.scheduler.max_num_batched_tokens = 512;
  options.scheduler.target_itl_ms = 150.0;
  return options;
}

}  // namespace

TEST_CASE("the simulator makes the engine's batches, step by step", "[sim][engine]") {
  SimOptions options = small_machine();
  options.scheduler.policy = GENERATE(SchedulerPolicy::kFcfs, SchedulerPolicy::kPriority, SchedulerPolicy::kFair);
  options.scheduler.max_step_time_ms = GENERATE(0.0, SchedulerOptions::kAutoStepTime);
  std::int64_t num_preemptions = 0;
  for (const std::uint32_t seed : {1U, 2U}) {
    SimReport report;
    CHECK(check_same_steps(options, made_trace(seed, 120), report) > 500);
    CHECK(report.num_cached_tokens > 1000);
    num_preemptions += report.num_preemptions;
  }
  CHECK(num_preemptions > 0);
}

TEST_CASE("with recurrent states too the simulator makes the engine's batches", "[sim][engine][state]") {
  SimOptions options = small_machine();
  std::int64_t num_preemptions = 0;
  for (const std::int64_t num_states : {8, 40}) {  // fewer than places, and with room for snapshots
    options.num_states = num_states;
    options.num_blocks = 180;
    SimReport report;
    CHECK(check_same_steps(options, made_trace(7, 120), report) > 500);
    CHECK(report.num_cached_tokens > 0);
    num_preemptions += report.num_preemptions;
  }
  CHECK(num_preemptions > 0);
}

TEST_CASE("with parts for windows too the simulator makes the engine's batches", "[sim][engine][window]") {
  SimOptions options = small_machine();
  options.window_tokens = 300;
  options.num_blocks = 220;
  std::int64_t num_preemptions = 0;
  for (const std::int64_t num_parts : {60, 160}) {
    options.num_window_parts = num_parts;
    SimReport report;
    CHECK(check_same_steps(options, made_trace(5, 120), report) > 500);
    CHECK(report.num_cached_tokens > 0);
    num_preemptions += report.num_preemptions;
  }
  CHECK(num_preemptions > 0);
}

TEST_CASE("with host memory below the pool too the simulator makes the engine's batches", "[sim][engine][tier]") {
  SimOptions options = small_machine();
  options.tier_blocks = 2000;
  options.tier_block_ms = 0.0;
  options.scheduler.preemption = Preemption::kSwap;  // regardless of the engine's measurements
  SimReport report;
  const std::size_t num_steps = check_same_steps(options, made_trace(GENERATE(1U, 9U), 120), report);
  CHECK(num_steps > 500);
  CHECK(report.num_swaps > 0);
  CHECK(report.num_restored_blocks > 100);
}
