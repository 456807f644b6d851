// MediaEncoding: turns pieces of media into rows of the model's input, a slice of work at a time, and caches rows by
// content within a byte budget. Sequences keep the rows that they use, which the budget does not count. Engine thread
// only. Invariants: one piece is encoded at a time; a piece is identified by its key and the salt of its requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/base/thread_role.h"
#include "core/content/kept_media.h"
#include "core/content/media_rows.h"
#include "core/content/prepared_media.h"
#include "core/executor/executor.h"
#include "core/sched/policy/media_choice.h"

namespace quire {

class MediaEncoding {
 public:
  // `encoder` computes, `executor` keeps the rows beside its model; both must outlive it.
  MediaEncoding(Backend& encoder, Executor& executor, std::int64_t max_bytes)
      : encoder_(encoder), executor_(executor), kept_(max_bytes) {}

  // The piece's rows if they are cached; null otherwise.
  std::shared_ptr<const MediaRows> find(const MediaNameView& name);

  bool is_encoding() const { return run_ != nullptr; }
  bool is_encoding(const MediaName& name) const { return is_encoding() && name == name_; }
  const MediaName& name() const { return name_; }  // the current or last piece
  void begin(MediaName name, const PreparedMedia& media);
  void give_up() { run_.reset(); }
  // Computes for about slice.most_s; from slice.least_s on it ends once `interrupt` is set. Returns the rows once the
  // whole piece is encoded; null before.
  std::shared_ptr<const MediaRows> advance(const EncoderSlice& slice, const std::atomic<bool>& interrupt)
      QUIRE_REQUIRES(kEngineThread);

  std::uint64_t num_encoded() const { return num_encoded_; }
  std::uint64_t num_found() const { return num_found_; }
  double seconds() const { return seconds_; }  // spent encoding

 private:
  void compute(const EncoderSlice& slice, const std::atomic<bool>& interrupt, Clock::time_point began);

  Backend& encoder_;
  Executor& executor_;
  KeptMedia<std::shared_ptr<const MediaRows>> kept_;  // by bytes
  MediaName name_;
  std::unique_ptr<EncoderRun> run_;
  std::int64_t num_rows_ = 0;
  std::int64_t row_width_ = 0;
  double work_per_second_ = 0.0;  // 0: not yet known
  std::uint64_t num_encoded_ = 0;
  std::uint64_t num_found_ = 0;
  double seconds_ = 0.0;
};

}  // namespace quire
