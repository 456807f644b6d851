#include "core/sched/policy/streams.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace quire {

namespace {

// Groups rows by adapter, whose matrices are then read once.
void group_by_adapter(std::vector<StepEntry>& streams) {
  const auto adapter_of = [](const StepEntry& entry) { return entry.sequence->request->adapter.get(); };
  if (std::ranges::all_of(streams, [&](const StepEntry& entry) { return adapter_of(entry) == nullptr; })) return;
  std::ranges::sort(streams, std::less<>(),
                    [&](const StepEntry& entry) { return std::pair(adapter_of(entry), entry.sequence->id.value); });
}

}  // namespace

void Streams::fit(Pass& pass) {
  choose(pass);
  const std::size_t num_displaced = pass.plan.preempted.size();
  place(pass);
  pass.is_short_of_memory = pass.plan.preempted.size() > num_displaced;
  group_by_adapter(pass.plan.entries);
}

void Streams::choose(Pass& pass) {
  const std::span<Sequence* const> running = running_.sequences();
  for (Sequence* sequence : running)
    sequence->streams_now = sequence->streams() && sequence->num_remaining() > 0 && !sequence->keeps_blocks;
  background_.choose_streams(pass);
  StepTerms all;
  for (const Sequence* sequence : running) {
    if (sequence->streams_now) all.add_stream(sequence->num_computed, sequence->num_remaining());
  }
  const double limit = bounds_.for_streams(pass, bounds_.longest());
  const double list_limit =
      running_.num_of_lists() > 0 ? std::min(limit, bounds_.for_streams(pass, lists_.step_seconds())) : limit;
  if (!cost_.known() || cost_.seconds(all) <= list_limit) {
    last_turn_.reset();
    last_list_turn_.reset();
    return;
  }
  StepTerms terms;
  take_turns(pass, false, limit, terms, last_turn_);
  take_turns(pass, true, list_limit, terms, last_list_turn_);
}

// Continues the streams that fit, at least one, in the order of importance after the last one of the previous step.
void Streams::take_turns(const Pass& pass, bool of_lists, double limit, StepTerms& terms,
                         std::optional<Importance>& last) {
  const auto comes_after = [](const std::optional<Importance>& turn, const Sequence* each) {
    return turn < importance(*each);
  };
  const std::span<Sequence* const> running = running_.sequences();
  const auto first = std::upper_bound(running.begin(), running.end(), last, comes_after) - running.begin();
  StepTerms wanted = terms;
  bool is_first = true;
  for (std::size_t i = 0; i < running.size(); ++i) {
    Sequence& sequence = *running[(static_cast<std::size_t>(first) + i) % running.size()];
    if (pass.has_foreground && sequence.request->is_background) sequence.streams_now = false;
    if (!sequence.streams_now || sequence.continues_list != of_lists) continue;
    wanted.add_stream(sequence.num_computed, sequence.num_remaining());
    sequence.streams_now = is_first || cost_.seconds(wanted) <= limit;
    if (!sequence.streams_now) continue;
    is_first = false;
    terms = wanted;
    last = importance(sequence);
  }
}

void Streams::place(Pass& pass) {
  for (std::size_t i = 0; i < running_.sequences().size() && pass.num_rows > 0;) {
    Sequence& sequence = *running_.sequences()[i];
    if (sequence.streams_now) {
      const std::int64_t num_tokens = std::min(sequence.num_remaining(), pass.num_rows);
      if (!running_.make_room(pass, sequence, num_tokens)) {
        running_.preempt(pass, sequence);  // the next one takes its place in the list
        continue;
      }
      pass.place(sequence, num_tokens);
      pass.plan.terms.add_stream(sequence.num_computed, num_tokens);
      ++pass.plan.num_streaming;
    }
    ++i;
  }
}

}  // namespace quire
