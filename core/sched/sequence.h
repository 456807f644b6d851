// Sequence: the progress of one generation, or of one prompt to embed. Engine thread only. Its owner (the engine, a
// simulation) derives from it and appends tokens; the Scheduler and the KvCache change the rest. Invariant: 0 <=
// num_computed <= tokens.size() + num_pending; the next steps compute the tokens in between. From a plan's commit until
// its accepted drafts are appended, num_computed counts them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/content/media_rows.h"
#include "core/kv/block_table.h"
#include "core/request/request.h"

namespace quire {

struct KeyQueue;
struct Sequence;
enum class Lane : std::uint8_t;

// The WaitingQueue's fields of a sequence.
struct WaitingState {
  KeyQueue* queue = nullptr;   // its key's queue, from add() to finish()
  std::int64_t length = 0;     // tokens when it was added
  bool lacks_room = false;     // when the scheduler looked at it last
  Lane lane{};                 // in which it waits, unless it is parked
  Sequence* behind = nullptr;  // parked until this one has computed enough
  Sequence* next = nullptr;    // parked behind the same one
  Sequence* previous = nullptr;
  Sequence* first_parked = nullptr;  // behind this sequence
  std::int64_t first_wakes_at = 0;   // when so many tokens are computed
};

struct Sequence {
  static constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t kMaxStreamingTokens = 32;
  enum class State : std::int8_t { kNew, kWaiting, kRunning, kDone };

  SequenceId id;  // in order of creation
  std::shared_ptr<const Request> request;
  std::string cache_salt;       // prefix blocks are shared only within equal salts
  std::vector<TokenId> tokens;  // the prompt, then generated tokens; rows of media by their names (MediaNames)
  std::vector<std::shared_ptr<const MediaRows>> media_rows;  // per run of the request's media; null: not encoded
  std::int64_t num_prompt_tokens = 0;
  std::int64_t num_computed = 0;  // tokens of submitted steps included
  std::int32_t num_pending = 0;   // 0 or 1: tokens that a step in flight draws, whose row the next step may compute
  BlockTable table;
  State state = State::kNew;

  // Proposed next tokens, of which the next plan verifies some; the sequence's owner sets them before each plan.
  std::vector<TokenId> drafts;
  double draft_rate = 0.0;  // chance that a draft is right if all before it are

  // message_ends: token positions at the end of each message of the prompt. borders: positions where recurrent states
  // are kept, or window parts for longer.
  std::vector<std::int64_t> message_ends;
  std::vector<std::int64_t> borders;

  std::int64_t max_chunk = kUnbounded;          // limit for a step's tokens of all sequences with such a bound together
  std::int64_t max_cached_tokens = kUnbounded;  // longest prefix taken from the cache
  std::int64_t num_cached_tokens = 0;           // prompt tokens found in the cache at its first start
  std::int32_t num_preemptions = 0;
  bool has_started = false;
  bool is_choice = false;       // forked from another sequence of its request
  bool continues_list = false;  // a prompt of a list, after the first
  bool awaits_media = false;    // waits: its next row is of media that are not encoded yet

  // The scheduler's fields.
  std::int64_t level = 0;               // lower is more important; then the older
  std::int64_t num_scheduled = 0;       // tokens in the plan being made
  std::int32_t num_bypassed = 0;        // times a later request was started first
  std::int64_t num_started_before = 0;  // Running::num_started() when it began to wait
  std::int64_t first_start = -1;        // Running::num_started() when its request first started; -1: it has not
  bool streams_now = false;             // continues its prompt in the plan being made
  bool keeps_blocks = false;            // started in the plan being made: it is not preempted
  std::int64_t turn_end = 0;            // step until which one of many keeps its place
  WaitingState waiting;

  std::int64_t num_tokens() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t num_remaining() const { return num_tokens() + num_pending - num_computed; }
  std::int64_t num_known_computed() const { return std::min(num_computed, num_tokens()); }
  std::int64_t num_generated() const { return num_tokens() - num_prompt_tokens; }
  // The most tokens that it can have.
  std::int64_t most_tokens() const { return num_prompt_tokens + std::max(request->sampling.max_tokens, 0); }
  bool prompt_computed() const { return num_computed >= num_prompt_tokens; }
  // Whether its prompt is computed and few tokens remain: one, or several that a grammar forced.
  bool streams() const { return prompt_computed() && num_remaining() <= kMaxStreamingTokens; }
  // Whether other sequences of its request or list may hold places.
  bool is_one_of_many() const { return is_choice || continues_list; }
  // The end of the tokens from `from` on that can be computed: the first media row that is not encoded yet.
  std::int64_t embedded_until(std::int64_t from) const;
  // The end of a chunk from `from` to at most `most`, which does not split rows that attend in both directions. If such
  // rows begin at `from`, their end, even beyond `most`.
  std::int64_t chunk_end(std::int64_t from, std::int64_t most) const;
  bool has_bound() const { return max_chunk != kUnbounded; }
  // The last token is always computed: the next token is drawn from its logits.
  std::int64_t prefix_limit() const { return std::min(num_tokens() - 1, max_cached_tokens); }
};

inline std::int64_t Sequence::embedded_until(std::int64_t from) const {
  for (std::size_t i = 0; i < media_rows.size(); ++i) {
    const MediaRun& run = request->media[i];
    if (run.end() > from && media_rows[i] == nullptr) return std::max(run.begin, from);
  }
  return kUnbounded;
}

inline std::int64_t Sequence::chunk_end(std::int64_t from, std::int64_t most) const {
  for (const MediaRun& run : request->media) {
    if (!run.is_bidirectional || most <= run.begin || most >= run.end()) continue;
    return run.begin > from ? run.begin : run.end();
  }
  return most;
}

}  // namespace quire
