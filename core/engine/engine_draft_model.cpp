// Rows that a drafting model lacks: selection of sequences, and the time to compute the rows in. A step computes rows
// of the large model alone.
#include <algorithm>
#include <chrono>

#include "core/engine/engine_impl.h"

namespace quire {

namespace {

constexpr std::int64_t kMostInFirstRound = 8;  // rows of a sequence; more are computed before, without its drafts
constexpr double kMostOfRest = 0.5;  // most time, as a share of the generation's remaining time without drafts

}  // namespace

// Blocks that the step moves, copies or writes lose their draft-model rows, unless those move along.
void Engine::Impl::note_drafted_rows(const StepPlan& plan) {
  for (const BlockMove& move : plan.transfers.moves) {
    if (move.kind == BlockMove::Kind::kLoad && move.block != kNoBlock) drafted_rows_->note_replaced(move.block);
  }
  for (const BlockCopy& copy : plan.transfers.copies) {
    if (copy.of == BlockCopy::Of::kBlock) drafted_rows_->note_copied(copy.source, copy.destination);
  }
  for (const StepEntry& entry : plan.entries) {
    const Sequence& sequence = *entry.sequence;
    drafted_rows_->note_written(sequence.table.blocks, sequence.num_computed, sequence.num_computed + entry.num_tokens);
  }
}

// Rows of the last rounds whose tokens were accepted become the drafting model's rows of the sequence, except rows in a
// full block that was replaced by an equal cached block.
void Engine::Impl::settle_rows(Generation& generation) {
  Drafting& drafting = generation.drafting;
  if (drafting.rows.empty()) return;
  const std::vector<BlockId>& blocks = generation.table.blocks;
  const std::int64_t most = generation.num_known_computed();
  std::int64_t end = drafting.rows_begin;
  if (drafting.rows_preemptions == generation.num_preemptions && drafted_rows_->count(blocks, most) == end) {
    const std::int64_t first_block = end / kv_.block_size();
    for (const TokenId token : drafting.rows) {
      const std::int64_t block = end / kv_.block_size();
      const bool is_right = end < most && generation.tokens[static_cast<std::size_t>(end)] == token;
      if (!is_right || drafting.rows_blocks[static_cast<std::size_t>(block - first_block)] !=
                           blocks[static_cast<std::size_t>(block)])
        break;
      ++end;
    }
    drafted_rows_->add(blocks, drafting.rows_begin, end);
  }
  drafting.rows.clear();
}

// Keeps in drafted_ the sequences whose missing rows fit into a first round. For others, if a round over all would be
// worth its time, computes some of the missing rows: about as many as take as long as a step.
void Engine::Impl::catch_up(const DraftBudget& budget, Step& step, Turn& turn) {
  double seconds = budget.seconds();
  const bool is_bounded = seconds > 0.0;
  const auto num_sequences = static_cast<std::int64_t>(drafted_.size());
  double num_expected = 0.0;
  for (const Generation* generation : drafted_)
    num_expected += generation->reach();
  const bool is_worth = budget.is_worth(num_expected, num_sequences, draft_price_.seconds(num_sequences));
  std::erase_if(drafted_, [&](Generation* generation) QUIRE_REQUIRES(kEngineThread) {
    Drafting& drafting = generation->drafting;
    drafting.rows_begin = drafted_rows_->count(generation->table.blocks, generation->num_known_computed());
    if (!lacks_rows(*generation)) return false;
    if (!is_worth || (is_bounded && seconds <= 0.0) || !may_catch_up(*generation, budget)) return true;
    if (!turn) take_turn(step, turn);
    seconds -= compute_lacking(*generation, seconds);
    drafting.is_catching_up = lacks_rows(*generation);
    return drafting.is_catching_up;
  });
  if (!is_worth && drafted_.empty()) draft_price_.note_refused(num_sequences);
}

// True if the first round cannot compute all missing rows, or would write to a block that another sequence shares.
bool Engine::Impl::lacks_rows(const Generation& generation) const {
  const std::int64_t begin = generation.drafting.rows_begin;
  const std::int64_t num_lacking = generation.num_known_computed() - begin;
  if (generation.num_tokens() - begin > kMostInFirstRound) return true;
  const auto block = static_cast<std::size_t>(begin / kv_.block_size());
  return num_lacking > 0 && kv_.pool().num_references(generation.table.blocks[block]) > 1;
}

bool Engine::Impl::may_catch_up(const Generation& generation, const DraftBudget& budget) const {
  if (!generation.drafting.is_catching_up && !catch_up_.may_begin()) return false;
  const auto num_lacking = static_cast<double>(generation.num_tokens() - generation.drafting.rows_begin);
  const auto num_left = static_cast<double>(generation.request->sampling.max_tokens - generation.num_generated);
  const double rest = num_left * budget.token_seconds();
  return rest == 0.0 || num_lacking * catch_up_.row_seconds() <= kMostOfRest * rest;
}

// Computes as many rows as fit into `seconds`; returns the time that they took.
double Engine::Impl::compute_lacking(Generation& generation, double seconds) {
  Drafting& drafting = generation.drafting;
  const std::int64_t end =
      std::min(generation.num_known_computed(), drafting.rows_begin + catch_up_.rows_within(seconds));
  if (end <= drafting.rows_begin) return 0.0;
  const Clock::time_point began = Clock::now();
  draft_input_.clear(true);
  DraftOutput output{.has_failed = true};
  const SharedError error = attempt(no_memory_, [&]() QUIRE_REQUIRES(kEngineThread) -> Result<void> {
    draft_input_.add_unpredicted(generation, drafting.rows_begin, end);
    output = executor_->draft(draft_input_.arrays(), {});
    return {};
  });
  if (output.has_failed || error != nullptr) return 0.0;
  drafted_rows_->add(generation.table.blocks, drafting.rows_begin, end);
  const double measured = std::chrono::duration<double>(Clock::now() - began).count();
  const double taken = output.seconds > 0.0 ? output.seconds : measured;
  catch_up_.note_rows(end - drafting.rows_begin, taken);
  drafting.rows_begin = drafted_rows_->count(generation.table.blocks, generation.num_known_computed());
  return taken;
}

}  // namespace quire
