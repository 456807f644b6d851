// MediaChoice: looks once at all sequences with media, in order of arrival: gives them rows that are encoded, and
// chooses the piece to encode next: a running sequence's first, then one of another API key than the last piece's, then
// the first that waits. A local value of the engine's and the simulator's choice. EncoderShare: the encoder's share of
// the time of steps. One thread at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "core/content/kept_media.h"
#include "core/kv/kv_cache.h"
#include "core/sched/sequence.h"
#include "core/sched/step_plan.h"

namespace quire {

// Index of the next token to compute; for a waiting sequence, the number of its cached tokens.
std::int64_t next_position(Sequence& sequence, KvCache& kv);

// Gives the rows to every use of the piece in the sequence.
void give_media(Sequence& sequence, const MediaName& name, const std::shared_ptr<const MediaRows>& rows);

class MediaChoice {
 public:
  // current: the piece that is being encoded; null: none. Both must outlive it.
  MediaChoice(const std::string& last_key, const MediaName* current) : last_key_(last_key), current_(current) {}

  // find(MediaNameView): the rows of a piece; null if they are not encoded.
  template <class Find>
  void look(Sequence& sequence, std::int64_t position, const Find& find) {
    const MediaRun* missing = nullptr;
    const std::vector<MediaRun>& media = sequence.request->media;
    for (std::size_t i = 0; i < media.size() && missing == nullptr; ++i) {
      if (media[i].end() <= position || sequence.media_rows[i] != nullptr) continue;
      sequence.media_rows[i] = find(MediaNameView(sequence.cache_salt, media[i].key));
      if (sequence.media_rows[i] == nullptr) missing = &media[i];
    }
    note(sequence, position, missing);
  }
  // Passes over a sequence whose media are all computed.
  void pass(Sequence& sequence);

  // The next piece to encode and the sequence that waits for it; null: none waits.
  Sequence* sequence() const { return sequence_; }
  const MediaRun* run() const { return run_; }
  bool is_current_wanted() const { return is_wanted_; }
  bool has_arrived() const { return has_arrived_; }  // a sequence that waited may continue

 private:
  void note(Sequence& sequence, std::int64_t position, const MediaRun* missing);

  const std::string& last_key_;
  const MediaName* const current_;
  Sequence* sequence_ = nullptr;
  const MediaRun* run_ = nullptr;
  int best_ = 0;
  bool is_wanted_ = false;
  bool has_arrived_ = false;
};

// Seconds of the encoder beside one step. The slice ends early for an arrival, but not before least_s, so that arrivals
// without a pause do not stop the encoder.
struct EncoderSlice {
  double most_s = 0.0;
  double least_s = 0.0;
};

struct EncoderShare {
  double target_s = 0.0;                                       // target between tokens of streams; 0: none
  double longest_s = std::numeric_limits<double>::infinity();  // bound of a step

  // Most time for the model in a step while media are to be encoded.
  double most_of_model() const;
  EncoderSlice slice_beside(const StepPlan& plan) const;
};

}  // namespace quire
