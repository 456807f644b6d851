// PromptMedia: the media of prompts. It names their rows, chooses the next piece to encode and its time beside a step,
// and gives the encoded rows to sequences. Engine thread only. Invariants: a piece is encoded once for all sequences
// that share it; a step and the encoder's slice beside it stay within the bound of a step. Without an encoder it
// refuses media and does nothing else.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/thread_role.h"
#include "core/engine/figures/engine_stats.h"
#include "core/engine/generation.h"
#include "core/engine/media_encoding.h"
#include "core/kv/kv_cache.h"
#include "core/sched/policy/media_choice.h"
#include "core/sched/scheduler.h"

namespace quire {

class PromptMedia {
 public:
  // A piece that a sequence waits for.
  struct Wanted {
    Generation* generation;
    const MediaRun* run;
  };
  // A request that waits for the piece that could not be encoded; null: none.
  struct Failed {
    LiveRequest* request = nullptr;
    SharedError error{};
  };

  // encoder: null for a model that takes no media. All others must outlive it.
  PromptMedia(Backend* encoder, std::int64_t max_bytes, Executor& executor, KvCache& kv, Scheduler& scheduler,
              const SchedulerOptions& options);

  Result<void> check(const Request& request) const;
  // Replaces the placeholders of media rows in the generation's tokens by names, which are released with the
  // generation.
  void name_rows(Generation& generation);

  // Gives sequences the rows that are encoded. Returns the next piece to encode: see MediaChoice.
  std::optional<Wanted> place(bool is_step_in_flight);
  EncoderShare share() const { return {target_itl_s_, scheduler_.max_step_seconds()}; }
  // Continues the current piece, else begins `next`, the latest result of place(), for a slice that an `interrupt` ends
  // early. After a failure, further requests that wait for the piece try it again.
  Failed encode(const std::optional<Wanted>& next, const EncoderSlice& slice, const std::atomic<bool>& interrupt,
                const SharedError& no_memory) QUIRE_REQUIRES(kEngineThread);

  void report(EngineStats& stats) const;

 private:
  LiveRequest* waits_for_current() const;

  KvCache& kv_;
  Scheduler& scheduler_;
  const std::int64_t max_rows_;  // most rows that a step can compute together, for rows that attend to each other
  const double target_itl_s_;    // 0: none
  const std::int64_t hidden_size_;
  std::optional<MediaEncoding> encoding_;
  std::vector<Generation*> users_;  // generations whose prompts have media
  std::string last_key_;            // API key whose media was encoded last
};

}  // namespace quire
