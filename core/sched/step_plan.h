// StepPlan: one step's decision: which sequences compute how many tokens, and which blocks move before. StepOutput:
// the step's result. Engine thread only. Both are reused from step to step, so that a steady step allocates nothing.
// Invariants: entries that continue a generation come first; moves are done before copies, and copies before the
// entries are computed. A plan may have moves and copies alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/kv/block_table.h"
#include "core/kv/moves/block_move.h"
#include "core/request/request.h"
#include "core/sched/sequence.h"
#include "core/sched/step_cost.h"

namespace quire {

struct StepEntry {
  Sequence* sequence;
  std::int64_t num_tokens;      // from sequence->num_computed on
  std::int64_t num_drafts = 0;  // drafts at their end, which this step verifies

  std::int64_t num_known() const { return num_tokens - num_drafts; }
};

// Blocks that move beside a step.
struct Transfers {
  std::vector<BlockMove> moves;   // from and to host memory, each bounded in bytes per step
  std::vector<BlockCopy> copies;  // within the pool

  void clear() {
    moves.clear();
    copies.clear();
  }
};

struct StepPlan {
  std::vector<StepEntry> entries;
  Transfers transfers;
  std::vector<Sequence*> preempted;
  std::vector<Sequence*> started;  // for the first time
  std::int64_t num_tokens = 0;
  std::int64_t num_streaming = 0;      // entries that continue a generation; they come first
  std::int64_t num_drafts = 0;         // drafts among num_tokens, in those entries
  std::int64_t num_prompt_tokens = 0;  // tokens of the other entries

  // An arrival may end the step early, between two slices of at most slice_tokens rows (0: the step is whole). Slices
  // are cut from the entries in order; an entry may be cut.
  bool interruptible = false;
  std::int64_t slice_tokens = 0;
  bool cuts_slices = false;  // an arrival ends it within a slice, whose rows are lost

  StepTerms terms;                 // the work to compute; after commit, the work done
  double predicted_seconds = 0.0;  // 0: nothing was measured yet

  bool empty() const { return entries.empty(); }
  // Copies may come alone, such as that of a shared block into which an admitted sequence writes in a later step.
  bool has_work() const { return !entries.empty() || !transfers.moves.empty() || !transfers.copies.empty(); }
  // Room for steps of so many sequences.
  void reserve(std::size_t num_sequences) {
    entries.reserve(num_sequences);
    preempted.reserve(2 * num_sequences);
    started.reserve(num_sequences);
    // Six copies of a sequence at most: a shared last block, its window part, a state, the state before drafts, two
    // snapshots.
    transfers.copies.reserve(6 * num_sequences);
  }
  void clear() {
    entries.clear();
    transfers.clear();
    preempted.clear();
    started.clear();
    num_tokens = 0;
    num_streaming = 0;
    num_drafts = 0;
    num_prompt_tokens = 0;
    interruptible = false;
    slice_tokens = 0;
    cuts_slices = false;
    terms = {};
    predicted_seconds = 0.0;
  }
};

// The computed tokens of an entry.
struct EntryOutput {
  std::int64_t num_computed;      // tokens; below num_tokens if the step ended early
  std::int64_t num_accepted = 0;  // drafts that were computed and found right

  std::int64_t num_kept(const StepEntry& entry) const {
    return std::min(num_computed, entry.num_known()) + num_accepted;
  }
};

struct StepOutput {
  std::vector<EntryOutput> entries{};  // for each entry; empty: all was computed, every draft accepted
  bool cut_slice = false;              // ended within a slice, whose rows do not count in `entries`
  double seconds = 0.0;                // without its moves; 0: not known, or not yet
  MoveTimes moved{};                   // times of its moves
  // Drawn tokens in the order of the plan's draws, without those of rows that were not computed.
  std::vector<DrawnToken> tokens{};
  std::vector<std::optional<TokenLogprob>> logprobs{};  // for known tokens; none if memory failed
  std::span<const float> hidden{};                      // the wanted hidden states, row after row
  std::span<const float> labels{};                      // the wanted scores of the model's classifier, row after row

  void clear() {
    entries.clear();
    cut_slice = false;
    seconds = 0.0;
    moved = {};
    tokens.clear();
    logprobs.clear();
    hidden = {};
    labels = {};
  }

  // Takes the logprob at `index`; nothing if memory failed.
  std::optional<TokenLogprob> take_logprob(std::size_t index) {
    return index < logprobs.size() ? std::move(logprobs[index]) : std::nullopt;
  }
  // Only the first `num_rows` of the plan's rows were computed.
  void end_early(const StepPlan& plan, std::int64_t num_rows);
  EntryOutput of(const StepPlan& plan, std::size_t index) const {
    const StepEntry& entry = plan.entries[index];
    return entries.empty() ? EntryOutput{entry.num_tokens, entry.num_drafts} : entries[index];
  }
  // The terms of the computed rows. Called before commit, which changes the sequences.
  StepTerms terms_of(const StepPlan& plan) const;
};

// Limits of a step from outside the scheduler.
struct StepLimits {
  std::optional<double> swap_block_s{};  // moves one block to the tier below and back; 0: not yet known; none: no tier
  bool is_awaited = false;               // another engine has work for the compute threads
  // An interruptible plan ends between two slices, or within one if it cuts_slices, when a request arrives or another
  // engine asks for its turn. It may be longer than max_step_time, and is made for the prompt of a sequence that is
  // alone in the scheduler, while is_awaited is false. A single stream is never interrupted: its step is one slice.
  bool can_end_early = false;
  // The time that other engines leave to this step; infinite if none has streams with a target. It bounds drafts and
  // prompt tokens beyond the first 16. Streams are bounded by max_step_time alone.
  double max_seconds = std::numeric_limits<double>::infinity();
  // False while a step in flight draws further tokens: the sequences' `drafts` do not follow their last tokens then.
  bool takes_drafts = true;
};

}  // namespace quire
