// StepDraws: the tokens that a step draws and scores, with the masks of their grammars. EntryDraws: the rows and draws
// of one entry. Engine thread only. Both are reused, so that a steady step allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/executor/executor.h"

namespace quire {

struct EntryDraws {
  std::int64_t begin = 0;                           // position of the entry's first row
  std::int64_t end = 0;                             // position after the last row of a known token
  std::int64_t num_drafts = 0;                      // drafts, whose rows follow
  std::int64_t num_accepted = 0;                    // accepted drafts
  std::optional<std::size_t> first = std::nullopt;  // its first draw
  std::size_t num_draws = 0;                        // draws of the last known token and of drafts
};

class StepDraws {
 public:
  StepDraws(std::size_t max_draws, std::int64_t vocab_size) : mask_words_((vocab_size + 31) / 32) {
    rows.reserve(max_draws);
  }

  void clear() {
    rows.clear();
    scores.clear();
    num_masks_ = 0;
  }
  // A mask to fill in, valid until clear().
  std::span<std::uint32_t> next_mask() {
    const std::size_t place = num_masks_++;
    if (masks_.size() <= place) masks_.resize(place + 1);
    masks_[place].resize(static_cast<std::size_t>(mask_words_));
    return masks_[place];
  }
  DrawBatch batch() const { return {rows, scores}; }

  std::vector<DrawRow> rows;
  std::vector<ScoreRow> scores;

 private:
  std::int64_t mask_words_;
  std::vector<std::vector<std::uint32_t>> masks_;  // kept from step to step: the most that a step used
  std::size_t num_masks_ = 0;                      // used by this step's draws
};

}  // namespace quire
