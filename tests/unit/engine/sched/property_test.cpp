// Drives pool, cache and scheduler with random operations against a model that only knows tokens, and checks every
// invariant after each. QUIRE_PROPERTY_OPERATIONS sets how many (millions take a minute); the seed of a failure is
// printed.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "core/kv/moves/lower_tier.h"
#include "core/kv/tiers/host_tier.h"
#include "core/sched/scheduler.h"
#include "tests/unit/engine/harness.h"
#include "tests/unit/engine/kv/state_memory.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr int kWorldBlockSize = 4;
constexpr std::int64_t kMostTierBytes = 1 << 20;

ChainKey weak_hash(const ChainKey&, std::span<const TokenId> tokens) {
  return {static_cast<std::uint64_t>(tokens[0].value % 2), 0};
}

struct World {
  SchedulerOptions options;
  std::int64_t num_blocks;
  bool prefix_caching;
  BlockHash hash;
  std::int64_t tier_bytes = 0;  // size of a host tier below the pool
  std::int64_t num_states = 0;  // states of a model with recurrent layers
  KvWindow window{};            // window of layers that see no more
};

class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  int below(int bound) { return static_cast<int>(engine_() % static_cast<std::uint32_t>(bound)); }
  bool one_in(int n) { return below(n) == 0; }

 private:
  std::mt19937 engine_;
};

// The sequences, a record of each block's real content, and the checks.
class Shadow {
 public:
  Shadow(const World& world, std::uint32_t seed)
      : random_(seed),
        options_(world.options),
        kv_(world.num_blocks, kWorldBlockSize, world.prefix_caching, world.hash, "", world.num_states, world.window),
        storage_({.num_layers = 1, .num_blocks = world.num_blocks, .block_size = kWorldBlockSize}),
        states_(world.num_states),
        window_(world.window.num_tokens),
        window_storage_({.num_layers = 1, .num_blocks = world.window.num_parts, .block_size = kWorldBlockSize}),
        host_(world.tier_bytes),
        scheduler_(world.options, kv_) {
    kv_.set_snapshot_interval(16);
    const KvBytes bytes{.block = static_cast<std::int64_t>(storage_.block_bytes()),
                        .part = static_cast<std::int64_t>(window_storage_.block_bytes()),
                        .state = static_cast<std::int64_t>(states_.state_bytes())};
    if (world.tier_bytes > 0) lower_tier_.emplace(kv_, bytes, &host_, nullptr);
  }

  void operate() {
    switch (random_.below(8)) {
      case 0: add(); break;
      case 1:
        if (random_.one_in(4)) abort_one();
        break;
      default: step(); break;
    }
    check_state();
  }

  // No starvation: without new requests, all running ones end.
  void finish_all() {
    for (int i = 0; i < 20'000 && !scheduler_.idle(); ++i)
      step();
    if (!scheduler_.idle()) FAIL("sequences are left that never end");
    check_state();
    if (kv_.pool().num_referenced() != 0) FAIL("blocks are held without a holder");
    if (kv_.window().num_pinned() + kv_.window().num_promised() != 0) FAIL("parts are held without a holder");
  }

  std::uint64_t num_preemptions() const { return scheduler_.num_preemptions(); }
  std::uint64_t num_hits() const { return scheduler_.prefix_hits(); }
  std::int64_t num_done() const { return num_done_; }
  std::uint64_t num_swaps() const { return scheduler_.num_swaps(); }
  std::int64_t num_restored() const { return num_restored_; }

 private:
  void add() {
    const std::int64_t longest = scheduler_.max_model_len();
    const int num_prompt = 1 + random_.below(static_cast<int>(longest * 3 / 4));
    std::vector<TokenId> prompt =
        made_tokens(num_prompt, random_.below(3), 3);  // few beginnings, so that many are shared
    if (random_.one_in(2)) prompt[static_cast<std::size_t>(random_.below(num_prompt))] = TokenId{random_.below(3)};
    Request request = request_of(std::move(prompt), 1 + random_.below(static_cast<int>(longest) - num_prompt + 1) % 12);
    if (num_prompt + request.sampling.max_tokens > longest) request.sampling.max_tokens = 1;
    if (num_prompt + 1 > longest) return;
    request.key_name = std::string(1, static_cast<char>('a' + random_.below(3)));
    request.priority = random_.below(2);
    request.is_background = random_.one_in(3);
    request.num_choices = random_.one_in(4) ? 1 + random_.below(std::min(3, options_.max_num_seqs)) : 1;
    request.arrival = Clock::time_point(std::chrono::milliseconds(num_added_ / 2));  // some arrive together
    if (!scheduler_.check(request)) FAIL("a request that fits is refused");
    Sequence& sequence = make(std::make_shared<const Request>(std::move(request)));
    sequence.cache_salt = random_.one_in(5) ? "salt" : "";
    sequence.continues_list = random_.one_in(4);
    scheduler_.add(sequence);
  }

  Sequence& make(std::shared_ptr<const Request> request) {
    Sequence& sequence = sequences_.emplace_back();
    sequence.id = SequenceId{num_added_++};
    sequence.tokens = request->prompt;
    sequence.num_prompt_tokens = static_cast<std::int64_t>(request->prompt.size());
    sequence.request = std::move(request);
    for (std::int64_t end = 1 + random_.below(40); end < sequence.num_prompt_tokens; end += 1 + random_.below(40))
      sequence.message_ends.push_back(end);
    return sequence;
  }

  void abort_one() {
    if (sequences_.empty()) return;
    const auto victim = std::next(sequences_.begin(), random_.below(static_cast<int>(sequences_.size())));
    scheduler_.finish(*victim);
    sequences_.erase(victim);
  }

  void step() {
    if (lower_tier_) restore();
    StepLimits limits;
    if (lower_tier_) limits.swap_block_s = random_.one_in(3) ? 1.0 : 1e-9;  // whether swapping is worth it
    scheduler_.schedule(plan_, limits);
    check_plan();
    compute();
    scheduler_.commit(plan_, {.seconds = 0.001 * static_cast<double>(plan_.num_tokens)});
    for (const StepEntry& entry : plan_.entries)
      continue_sequence(*entry.sequence);
    sequences_.remove_if([](const Sequence& sequence) { return sequence.state == Sequence::State::kDone; });
  }

  // Restores like the engine before each step.
  void restore() {
    for (Sequence* sequence : scheduler_.next_to_start()) {
      lower_tier_->restore(sequence->table, sequence->tokens, sequence->prefix_limit(),
                           random_.one_in(5) ? 1e-12 : 0.0);
    }
    do {
      lower_tier_->begin_step();
    } while (lower_tier_->is_moving() && random_.one_in(2));
    num_restored_ = static_cast<std::int64_t>(lower_tier_->num_restored());
    if (host_.num_bytes() > kMostTierBytes) FAIL("the tier is beyond its bound");
  }

  void check_plan() {
    if (plan_.empty() && !scheduler_.idle()) FAIL("a step without progress");
    if (plan_.num_tokens > options_.max_num_batched_tokens) FAIL("more tokens than the budget");
    if (std::cmp_greater(plan_.entries.size(), options_.max_num_seqs)) FAIL("more sequences than allowed");
    for (const Sequence* preempted : plan_.preempted) {
      // A choice or a list's prompt may also give its place to a request that has none.
      const bool for_another =
          preempted->is_one_of_many() || std::any_of(sequences_.begin(), sequences_.end(), [&](const Sequence& other) {
            return other.state == Sequence::State::kRunning && importance(other) <= importance(*preempted);
          });
      if (!for_another) FAIL("a sequence was preempted for less important ones");
    }
    std::int64_t num_checked = 0;
    for (const StepEntry& entry : plan_.entries) {
      if (num_checked++ < plan_.num_streaming && !entry.sequence->prompt_computed())
        FAIL("a prompt goes before a stream");
      if (entry.num_tokens <= 0 || entry.num_tokens > entry.sequence->num_remaining()) FAIL("a wrong number of tokens");
    }
  }

  static std::pair<std::int64_t, Clock::time_point> importance(const Sequence& sequence) {
    return {sequence.level, sequence.request->arrival};
  }

  void compute() {
    if (lower_tier_) do_moves(*lower_tier_, storage_, &states_, window_ > 0 ? &window_storage_ : nullptr);
    for (const BlockCopy& copy : plan_.transfers.copies) {
      if (copy.of == BlockCopy::Of::kState) {
        states_.copy_state(copy.source.value, copy.destination.value);
        continue;
      }
      std::vector<std::int32_t>& memory = copy.of == BlockCopy::Of::kPart ? window_memory_ : memory_;
      for (int i = 0; i < kWorldBlockSize; ++i)
        memory.at(at(copy.destination, i)) = memory.at(at(copy.source, i));
    }
    for (const StepEntry& entry : plan_.entries) {
      const Sequence& sequence = *entry.sequence;
      if (kv_.states().num_states() > 0) recur(sequence, entry.num_tokens);
      for (std::int64_t p = sequence.num_computed; p < sequence.num_computed + entry.num_tokens; ++p) {
        const BlockId block = sequence.table.blocks.at(static_cast<std::size_t>(p / kWorldBlockSize));
        if (kv_.pool().num_references(block) != 1) FAIL("a shared block is written");
        if (p / kWorldBlockSize < sequence.table.num_entered) FAIL("a finished block is written");
        memory_[at(block, static_cast<int>(p % kWorldBlockSize))] = sequence.tokens[static_cast<std::size_t>(p)].value;
        if (kv_.window().num_parts() > 0) in_window(sequence, p) = sequence.tokens[static_cast<std::size_t>(p)].value;
      }
    }
    for (const StepEntry& entry : plan_.entries)
      check_window(*entry.sequence, entry.sequence->num_computed + entry.num_tokens);
  }

  std::int32_t& in_window(const Sequence& sequence, std::int64_t position) {
    const BlockId block = sequence.table.blocks.at(static_cast<std::size_t>(position / kWorldBlockSize));
    const PartId part = kv_.window().part_of(block);
    if (part == kNoPart) FAIL("a block that is seen through a window has no part");
    return window_memory_.at(static_cast<std::size_t>(part.value * kWorldBlockSize + position % kWorldBlockSize));
  }

  // Checks the window that rows from num_computed to `end` see, and the next row's; other tokens read are computed too.
  void check_window(const Sequence& sequence, std::int64_t end) {
    if (kv_.window().num_parts() == 0) return;
    const std::int64_t known = std::min(end, sequence.num_tokens());
    for (std::int64_t p = std::max<std::int64_t>(0, sequence.num_computed - window_ + 1); p < known; ++p) {
      if (in_window(sequence, p) != sequence.tokens[static_cast<std::size_t>(p)].value)
        FAIL("a window does not hold its sequence's tokens");
    }
    const std::int64_t first = sequence.table.pinned_begin;
    if (first > 0 && (first + 1) * kWorldBlockSize > sequence.num_computed) FAIL("no full block is kept");
    const std::int64_t most =
        WindowPool::parts_per_sequence(window_, kWorldBlockSize) + kv_.blocks_for(end - sequence.num_computed) + 1;
    if (sequence.table.pinned_end - first > most) FAIL("more is kept than the window and what is computed");
  }

  // A state belongs to exactly the tokens that were computed; a new sequence begins with an empty one.
  void recur(const Sequence& sequence, std::int64_t num_tokens) {
    std::vector<TokenId>& state = states_.of(sequence.table.state.value);
    if (sequence.num_computed == 0) state.clear();
    const auto begin = sequence.tokens.begin();
    if (!std::equal(state.begin(), state.end(), begin, begin + sequence.num_computed)) {
      FAIL("a state is not that of its sequence");
    }
    state.insert(state.end(), begin + sequence.num_computed, begin + sequence.num_computed + num_tokens);
  }

  void continue_sequence(Sequence& sequence) {
    if (sequence.num_remaining() > 0) return;
    std::vector<Sequence*> grown{&sequence};
    const bool is_first = sequence.num_generated() == 0 && !sequence.is_choice;
    for (int choice = 1; is_first && choice < sequence.request->num_choices; ++choice) {
      Sequence& child = make(sequence.request);
      child.cache_salt = sequence.cache_salt;
      scheduler_.fork(sequence, child);
      grown.push_back(&child);
    }
    for (Sequence* each : grown) {
      const int num_new = random_.one_in(10) ? 1 + random_.below(40) : 1;  // sometimes a grammar forces many
      for (int i = 0; i < num_new; ++i) {
        if (each->num_generated() == each->request->sampling.max_tokens) break;
        // Forced tokens are the same for many, so that one finds a block computed by another.
        each->tokens.push_back(TokenId{num_new > 1 ? i % 3 : random_.below(3)});
      }
      if (each->num_generated() == each->request->sampling.max_tokens) {
        scheduler_.finish(*each);
        ++num_done_;
      }
    }
  }

  void check_state() {
    kv_.check_integrity();
    std::map<BlockId, int> references;
    std::set<BlockId> pinned;
    std::int64_t num_promised = 0;
    std::int64_t num_running = 0;
    std::int64_t num_waiting = 0;
    for (const Sequence& sequence : sequences_) {
      if (sequence.state == Sequence::State::kWaiting) {
        ++num_waiting;
        if (!sequence.table.blocks.empty()) FAIL("a waiting sequence holds blocks");
        continue;
      }
      ++num_running;
      for (const BlockId block : sequence.table.blocks)
        ++references[block];
      check_window(sequence, sequence.num_computed);
      num_promised += sequence.table.num_promised;
      for (std::int32_t i = sequence.table.pinned_begin; i < sequence.table.pinned_end; ++i)
        pinned.insert(sequence.table.blocks.at(static_cast<std::size_t>(i)));
      for (std::int64_t p = 0; p < sequence.num_computed; ++p) {
        const BlockId block = sequence.table.blocks.at(static_cast<std::size_t>(p / kWorldBlockSize));
        if (memory_[at(block, static_cast<int>(p % kWorldBlockSize))] !=
            sequence.tokens[static_cast<std::size_t>(p)].value) {
          FAIL("a block does not hold its sequence's tokens");
        }
      }
    }
    if (std::cmp_not_equal(pinned.size(), kv_.window().num_pinned())) FAIL("parts are pinned without a holder");
    if (num_promised != kv_.window().num_promised()) FAIL("parts are promised without a holder");
    if (num_running != scheduler_.num_running() || num_waiting != scheduler_.num_waiting()) FAIL("sequences were lost");
    if (kv_.states().num_states() > 0 && kv_.states().num_live() != num_running)
      FAIL("a running sequence has one state");
    if (num_running > options_.max_num_seqs) FAIL("more places taken than there are");
    if (std::cmp_not_equal(references.size(), kv_.pool().num_referenced())) FAIL("blocks are held without a holder");
    for (const auto& [block, count] : references) {
      if (kv_.pool().num_references(block) != count) FAIL("a wrong number of references");
    }
  }

  static std::size_t at(BlockId block, int offset) {
    return static_cast<std::size_t>(block.value * kWorldBlockSize + offset);
  }

  Random random_;
  SchedulerOptions options_;
  KvCache kv_;
  FakeStorage storage_;
  std::vector<std::int32_t>& memory_ = storage_.tokens;  // by slot: the token whose keys and values it holds
  StateMemory states_;
  const std::int64_t window_;
  FakeStorage window_storage_;
  std::vector<std::int32_t>& window_memory_ = window_storage_.tokens;  // by slot of a part: content of windows
  HostTier host_;
  std::optional<LowerTier> lower_tier_;
  Scheduler scheduler_;
  StepPlan plan_;
  std::int64_t num_restored_ = 0;
  std::list<Sequence> sequences_;
  std::int64_t num_added_ = 0;
  std::int64_t num_done_ = 0;
};

int num_operations() {
  const char* asked = std::getenv("QUIRE_PROPERTY_OPERATIONS");
  return asked != nullptr ? std::atoi(asked) : 500'000;
}

}  // namespace

TEST_CASE("random operations keep every invariant of pool, cache and scheduler", "[property]") {
  std::vector<World> worlds;
  for (const SchedulerPolicy policy : {SchedulerPolicy::kFcfs, SchedulerPolicy::kPriority, SchedulerPolicy::kFair}) {
    for (const std::int64_t num_blocks : {8, 20, 200}) {
      SchedulerOptions options;
      options.policy = policy;
      options.max_num_seqs = num_blocks == 8 ? 2 : 6;
      options.max_num_batched_tokens = num_blocks == 20 ? 7 : 40;
      options.target_itl_ms = num_blocks == 200 ? 10.0 : 0.0;
      options.max_model_len = num_blocks == 200 ? 100 : 0;
      worlds.push_back({options, num_blocks, true, content_hash});
      worlds.push_back({options, num_blocks, true, weak_hash});
      worlds.push_back({options, num_blocks, false, content_hash});
      worlds.push_back({options, num_blocks, true, weak_hash, 500});
      worlds.push_back({options, num_blocks, true, content_hash, kMostTierBytes});
      worlds.push_back({options, num_blocks, true, weak_hash, 0, options.max_num_seqs});
      worlds.push_back({options, num_blocks, true, content_hash, 0, options.max_num_seqs + 20});
      worlds.push_back({options, num_blocks, false, content_hash, 0, options.max_num_seqs + 2});
      for (const std::int64_t window : {1, 10}) {
        const std::int64_t least = std::min(num_blocks, WindowPool::least_parts(window, kWorldBlockSize));
        const KvWindow tight{window, least};
        const KvWindow wide{window, std::min(num_blocks, 3 * least)};
        worlds.push_back({options, num_blocks, true, content_hash, 0, 0, tight});
        worlds.push_back({options, num_blocks, true, weak_hash, 0, 0, wide});
        worlds.push_back({options, num_blocks, false, content_hash, 0, 0, tight});
        worlds.push_back({options, num_blocks, true, weak_hash, 500, 0, tight});
        worlds.push_back({options, num_blocks, true, content_hash, kMostTierBytes, 0, wide});
        worlds.push_back({options, num_blocks, true, content_hash, 0, options.max_num_seqs, tight});
        worlds.push_back({options, num_blocks, true, weak_hash, 0, options.max_num_seqs + 20, wide});
        worlds.push_back({options, num_blocks, true, weak_hash, 3000, options.max_num_seqs + 2, wide});
        worlds.push_back({options, num_blocks, true, content_hash, kMostTierBytes, options.max_num_seqs + 20, wide});
      }
      worlds.push_back({options, num_blocks, true, weak_hash, 3000, options.max_num_seqs + 1});
      worlds.push_back({options, num_blocks, true, content_hash, kMostTierBytes, options.max_num_seqs + 2});
    }
  }
  constexpr int kOperationsPerLife = 500;
  std::uint64_t num_preemptions = 0;
  std::uint64_t num_hits = 0;
  std::int64_t num_done = 0;
  std::uint64_t num_swaps = 0;
  std::int64_t num_restored = 0;
  std::uint32_t seed = 0;
  for (int done = 0; done < num_operations(); done += kOperationsPerLife, ++seed) {
    INFO("seed " << seed);
    Shadow shadow(worlds[seed % worlds.size()], seed);
    for (int i = 0; i < kOperationsPerLife; ++i)
      shadow.operate();
    shadow.finish_all();
    num_preemptions += shadow.num_preemptions();
    num_hits += shadow.num_hits();
    num_done += shadow.num_done();
    num_swaps += shadow.num_swaps();
    num_restored += shadow.num_restored();
  }
  CHECK(num_preemptions > 100);
  CHECK(num_hits > 1000);
  CHECK(num_done > 1000);
  CHECK(num_swaps > 100);
  CHECK(num_restored > 1000);
}
