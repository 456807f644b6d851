// Request: a complete and validated request to the engine. Immutable after construction; any thread. OutputEvent and
// OutputSink: the door out. The engine thread sends; a sink never blocks and never fails: running out of memory ends
// only its own request.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/base/pooling.h"
#include "core/base/result.h"
#include "core/base/shared_prefix.h"
#include "core/base/thread_role.h"
#include "core/content/media.h"
#include "core/grammar/grammar.h"
#include "core/request/speculation_options.h"
#include "core/request/token_run.h"
#include "core/sampling/drawn_token.h"
#include "core/sampling/sampling_params.h"

namespace quire {

using Clock = std::chrono::steady_clock;
class Adapter;

struct Request {
  std::string id;                 // unique among live requests
  std::string key_name;           // the API key's name, "" without keys; fairness and limits count by it
  std::string cache_salt;         // prefix blocks are shared only within equal salts
  std::vector<TokenId> prompt;    // rows of media as placeholders
  std::vector<MediaRun> media{};  // in the order of the prompt
  std::int64_t second_text = 0;   // start of a pair's second text in the prompt; 0: one text
  SamplingParams sampling;
  std::optional<SpeculationOptions> speculation;  // absent: the server's
  std::int32_t num_choices = 1;                   // n: sequences that share the prompt's blocks
  std::int32_t slot = -1;                         // conversation slot; -1: the engine picks the best match
  std::int32_t priority = 0;                      // lower runs earlier
  bool is_background = false;                     // belongs to a batch: uses only capacity that other requests leave
  bool is_retained = false;                       // its blocks stay in the cache longer than those of other requests
  std::shared_ptr<const Grammar> grammar;         // may be null
  std::shared_ptr<const Adapter> adapter;         // an adapter of the engine's model; null: none
  Pooling pooling = Pooling::kNone;               // not kNone: no token is generated
  PooledOutput pooled_output = PooledOutput::kUnitVector;
  bool reports_progress = false;  // events report how much of the prompt is computed
  PrefixTransfer transfer;
  std::vector<TokenId> scored_tokens;  // used by PooledOutput::kTokenLogprobs
  std::optional<Clock::time_point> deadline;
  Clock::time_point arrival{};
};

enum class FinishReason { kStop, kLength, kAbort, kError };

// Sent with the last event of each choice.
struct FinishInfo {
  FinishReason reason = FinishReason::kStop;
  std::optional<TokenId> stop_token{};  // the end-of-sequence or stop token that ended it; in no event's tokens
  SharedError error{};                  // set with kError, and with kAbort by a deadline or a drain
  std::int32_t num_prompt_tokens = 0;
  std::int32_t num_cached_tokens = 0;     // prompt tokens served from the prefix cache
  std::int32_t num_generated_tokens = 0;  // stop_token included
  std::int32_t num_preemptions = 0;
  Clock::duration queue_time{};
  Clock::duration prefill_time{};
  Clock::duration decode_time{};
  std::shared_ptr<const SharedPrefix> published{};  // set if it was requested and at least tried
};

// Progress of choice 0, sent after a step that computed some of its prompt.
struct PromptProgress {
  std::int64_t num_computed = 0;  // prompt tokens, including those from the prefix cache
  Clock::duration time{};         // since the request was started
};

struct OutputEvent {
  std::int32_t choice = 0;
  TokenRun tokens{};                     // normally one token; several if a grammar forces text; none on a bare finish
  std::vector<TokenLogprob> logprobs{};  // per token, if requested
  std::vector<std::optional<TokenLogprob>> prompt_logprobs{};  // in the first event of choice 0, if requested
  std::vector<float> embedding{};                              // Request::pooled_output, if pooling was requested
  std::optional<PromptProgress> progress{};
  std::optional<FinishInfo> finish{};
  std::int32_t num_cached_tokens = 0;  // known from the first event on
};

class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void send(OutputEvent event) noexcept QUIRE_REQUIRES(kEngineThread) = 0;
};

}  // namespace quire
