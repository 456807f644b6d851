#include "core/draft/model_rows.h"

#include <algorithm>
#include <exception>

namespace quire {

namespace {

constexpr std::int64_t kMostInFirstRound = 8;  // rows of a sequence; more are computed before, without its drafts
constexpr double kMostOfRest = 0.5;  // most time, as a share of the generation's remaining time without drafts

}  // namespace

void DraftModelRows::note_plan(const StepPlan& plan) {
  for (const BlockMove& move : plan.transfers.moves) {
    if (move.kind == BlockMove::Kind::kLoad && move.block != kNoBlock) rows_.note_replaced(move.block);
  }
  for (const BlockCopy& copy : plan.transfers.copies) {
    if (copy.of == BlockCopy::Of::kBlock) rows_.note_copied(copy.source, copy.destination);
  }
  for (const StepEntry& entry : plan.entries) {
    const Sequence& sequence = *entry.sequence;
    rows_.note_written(sequence.table.blocks, sequence.num_computed, sequence.num_computed + entry.num_tokens);
  }
}

// Rows in a full block that was replaced by an equal cached block are not the sequence's.
void DraftModelRows::settle(DraftedSequence& sequence) {
  DraftState& drafting = sequence.drafting;
  if (drafting.rows.empty()) return;
  const std::vector<BlockId>& blocks = sequence.table.blocks;
  const std::int64_t most = sequence.num_known_computed();
  std::int64_t end = drafting.rows_begin;
  if (drafting.rows_preemptions == sequence.num_preemptions && rows_.count(blocks, most) == end) {
    const std::int64_t first_block = end / kv_.block_size();
    for (const TokenId token : drafting.rows) {
      const std::int64_t block = end / kv_.block_size();
      const bool is_right = end < most && sequence.tokens[static_cast<std::size_t>(end)] == token;
      if (!is_right || drafting.rows_blocks[static_cast<std::size_t>(block - first_block)] !=
                           blocks[static_cast<std::size_t>(block)])
        break;
      ++end;
    }
    rows_.add(blocks, drafting.rows_begin, end);
  }
  drafting.rows.clear();
}

void DraftModelRows::catch_up(std::vector<DraftedSequence*>& sequences, const DraftBudget& budget,
                              const MeanAcceptance& acceptance, const TakeTurn& take_turn) {
  double seconds = budget.seconds();
  const bool is_bounded = seconds > 0.0;
  const auto num_sequences = static_cast<std::int64_t>(sequences.size());
  double num_expected = 0.0;
  for (const DraftedSequence* sequence : sequences)
    num_expected += sequence->reach();
  const bool is_worth = budget.is_worth(num_expected, num_sequences, times_.round_seconds(num_sequences));
  std::erase_if(sequences, [&](DraftedSequence* sequence) QUIRE_REQUIRES(kEngineThread) {
    DraftState& drafting = sequence->drafting;
    drafting.rows_begin = rows_.count(sequence->table.blocks, sequence->num_known_computed());
    if (!lacks_rows(*sequence)) return false;
    if (!is_worth || (is_bounded && seconds <= 0.0) || !may_catch_up(*sequence, budget, acceptance)) return true;
    take_turn();
    seconds -= compute_lacking(*sequence, seconds);
    drafting.is_catching_up = lacks_rows(*sequence);
    return drafting.is_catching_up;
  });
  if (!is_worth && sequences.empty()) times_.note_refused(num_sequences);
}

// True if the first round cannot compute all lacking rows, or would write to a block that another sequence shares.
bool DraftModelRows::lacks_rows(const DraftedSequence& sequence) const {
  const std::int64_t begin = sequence.drafting.rows_begin;
  const std::int64_t num_lacking = sequence.num_known_computed() - begin;
  if (sequence.num_tokens() - begin > kMostInFirstRound) return true;
  const auto block = static_cast<std::size_t>(begin / kv_.block_size());
  return num_lacking > 0 && kv_.pool().num_references(sequence.table.blocks[block]) > 1;
}

bool DraftModelRows::may_catch_up(const DraftedSequence& sequence, const DraftBudget& budget,
                                  const MeanAcceptance& acceptance) const {
  if (!sequence.drafting.is_catching_up && !times_.may_catch_up(acceptance.is_high())) return false;
  const auto num_lacking = static_cast<double>(sequence.num_tokens() - sequence.drafting.rows_begin);
  const auto num_left = static_cast<double>(sequence.request->sampling.max_tokens - sequence.num_generated);
  const double rest = num_left * budget.token_seconds();
  return rest == 0.0 || num_lacking * times_.row_seconds() <= kMostOfRest * rest;
}

// Computes as many rows as fit into `seconds`; returns the time that they took.
double DraftModelRows::compute_lacking(DraftedSequence& sequence, double seconds) {
  DraftState& drafting = sequence.drafting;
  const std::int64_t end = std::min(sequence.num_known_computed(), drafting.rows_begin + times_.rows_within(seconds));
  if (end <= drafting.rows_begin) return 0.0;
  const Clock::time_point began = Clock::now();
  DraftOutput output;
  try {
    input_.clear(true);
    input_.add_unpredicted(sequence, drafting.rows_begin, end);
    output = executor_.draft(input_.arrays(), {});
  } catch (const std::exception&) {
    return 0.0;
  }
  if (output.has_failed) return 0.0;
  rows_.add(sequence.table.blocks, drafting.rows_begin, end);
  const double measured = std::chrono::duration<double>(Clock::now() - began).count();
  const double taken = output.seconds > 0.0 ? output.seconds : measured;
  times_.note_lacking(end - drafting.rows_begin, taken);
  drafting.rows_begin = rows_.count(sequence.table.blocks, sequence.num_known_computed());
  return taken;
}

}  // namespace quire
