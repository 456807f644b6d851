// Optional parts of an engine: without their options they do nothing, and the step asks none whether it is there.
#include <catch2/catch.hpp>

#include "core/engine/engine_parts.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

struct BareParts {
  explicit BareParts(const EngineOptions& options = {})
      : parts(make_executor(model, backend,
                            backend.allocate_kv(
                                {.num_layers = 1, .num_blocks = 16, .block_size = 4, .num_kv_heads = 1, .head_dim = 1}),
                            options),
              {}, options, queue, orders) {}

  FakeBackend backend;
  FakeModel model{64, 1000};
  RequestQueue queue{QueueOptions{}};
  SlotOrders orders;
  EngineParts parts;
};

// A sequence as it is when its request arrives.
DraftedSequence arrived(const std::shared_ptr<const Request>& request) {
  DraftedSequence sequence(SamplerState(request->sampling, request->prompt, {}, 64, 1, 0));
  sequence.request = request;
  sequence.tokens = request->prompt;
  sequence.num_prompt_tokens = std::ssize(request->prompt);
  return sequence;
}

std::shared_ptr<const Request> drafted_by(SpeculationMethod method) {
  Request request = request_of(tokens_of({1, 2, 3, 1, 2}), 8);
  request.speculation = {method};
  return std::make_shared<const Request>(std::move(request));
}

}  // namespace

TEST_CASE("tiers, slots and media that an engine does not have do nothing", "[engine]") {
  kEngineThread.assume();
  BareParts bare;
  EngineParts& parts = bare.parts;
  DraftedSequence sequence = arrived(drafted_by(SpeculationMethod::kNone));
  std::vector<BlockMove> moves;
  parts.tiers.restore(sequence, Clock::now());
  parts.tiers.begin_step(Clock::now());
  parts.tiers.take_moves(moves);
  parts.tiers.finish_moves(moves, {});
  CHECK(moves.empty());
  CHECK_FALSE(parts.tiers.swap_seconds());
  CHECK_FALSE(parts.tiers.next_deadline());
  CHECK_FALSE(parts.tiers.persist_some());
  CHECK_FALSE(parts.tiers.is_restoring());
  CHECK_FALSE(parts.slots.are_kept());
  CHECK_FALSE(parts.slots.has_order());
  parts.slots.receive();
  CHECK_FALSE(parts.media.place(false));
  CHECK(parts.media.encode({}, {.most_s = 1.0}, bare.queue.interrupt(), parts.no_memory).request == nullptr);
  EngineStats stats;
  parts.tiers.report(stats);
  parts.media.report(stats);
  CHECK(stats.num_media_encoded + stats.num_blocks_restored + stats.has_shared_store == 0);
}

TEST_CASE("slots and tiers exist where their options say so", "[engine]") {
  EngineOptions options;
  options.keeps_slots = true;
  options.scheduler.max_num_seqs = 2;
  CHECK(BareParts(options).parts.slots.are_kept());
  options.kv_cache.enable_prefix_caching = false;
  CHECK_FALSE(BareParts(options).parts.slots.are_kept());
  options.kv_cache.host_tier_bytes = 1 << 20;
  CHECK(BareParts(options).parts.tiers.lower() == nullptr);
  options.kv_cache.enable_prefix_caching = true;
  CHECK(BareParts(options).parts.tiers.swap_seconds().has_value());
}

TEST_CASE("drafting without a method drafts no sequence and takes no turn", "[engine][draft]") {
  kEngineThread.assume();
  BareParts bare;
  DraftedSequence plain = arrived(drafted_by(SpeculationMethod::kNone));
  bare.parts.drafting.begin(plain, 0);
  CHECK_FALSE(plain.drafting.is_on());
  DraftedSequence model_drafted = arrived(drafted_by(SpeculationMethod::kDraftModel));  // the model has no drafter
  bare.parts.drafting.begin(model_drafted, 0);
  CHECK_FALSE(model_drafted.drafting.is_on());
  DraftedSequence looked_up = arrived(drafted_by(SpeculationMethod::kPromptLookup));
  bare.parts.drafting.begin(looked_up, 0);
  CHECK(looked_up.drafting.is_on());
  int num_turns = 0;
  CHECK_FALSE(bare.parts.drafting.propose([&] { ++num_turns; }));
  CHECK_FALSE(bare.parts.drafting.pays_to_wait());
  CHECK(num_turns == 0);
}
