// SimEncoder: the encoder of a simulated engine: pieces with a price in seconds, encoded in slices beside steps, and
// remembered by id within a budget of rows. One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/content/kept_media.h"
#include "core/kv/kv_cache.h"
#include "core/sched/policy/media_choice.h"
#include "core/sched/scheduler.h"
#include "core/sim/simulation.h"

namespace quire::sim {

// The trace's images as media of a request.
std::vector<MediaRun> media_of(const TraceRequest& request);

class SimEncoder {
 public:
  // All must outlive it.
  SimEncoder(const SimOptions& options, KvCache& kv, Scheduler& scheduler, SimReport& report)
      : options_(options), kv_(kv), scheduler_(scheduler), report_(report), kept_(options.media_rows) {}

  // `images`: the pieces of the sequence's request. It must be removed before it ends.
  void add(Sequence& sequence, const std::vector<TraceImage>& images);
  void remove(const Sequence& sequence) noexcept;

  // Before a step is planned: gives sequences the rows that are there, and chooses the piece to encode next; true if
  // there is one.
  bool choose();
  EncoderShare share() const;
  // Encodes for at most so many seconds, and returns those it took.
  double advance(double seconds);
  // Undoes the last `seconds` of the latest advance(); false, and nothing changed, where that completed a piece.
  bool take_back(double seconds);

 private:
  struct Seeing {
    Sequence* sequence;
    std::vector<TraceImage> images;
  };
  struct Wanted {
    MediaName name;
    std::string key;  // API key of its request
    std::int64_t num_rows = 0;
    double seconds = 0.0;
  };

  const SimOptions& options_;
  KvCache& kv_;
  Scheduler& scheduler_;
  SimReport& report_;
  KeptMedia<std::shared_ptr<const MediaRows>> kept_;
  const std::shared_ptr<const MediaRows> rows_ = std::make_shared<const MediaRows>();  // of any piece
  std::vector<Seeing> seeing_;  // sequences with media, in order of arrival
  std::optional<Wanted> next_;
  std::optional<Wanted> current_;  // `seconds` is what is left
  std::string last_key_;
};

}  // namespace quire::sim
