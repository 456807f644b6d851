// MadeMedia: a piece of media whose rows are given, and whose encoding takes as much work as the test says. Prompts
// with such pieces. One thread at a time.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/content/prepared_media.h"
#include "core/request/request.h"

namespace quire::test {

class MadeMedia final : public PreparedMedia {
 public:
  MadeMedia(std::vector<float> rows, std::int64_t row_width, std::int64_t work = 1)
      : rows_(std::move(rows)), row_width_(row_width), work_(work) {}

  std::int64_t num_rows() const override { return std::ssize(rows_) / row_width_; }
  std::int64_t row_width() const override { return row_width_; }
  std::size_t num_bytes() const override { return rows_.size() * sizeof(float); }
  std::unique_ptr<EncoderRun> start() const override {
    ++num_started;
    return std::make_unique<Run>(*this);
  }

  mutable int num_started = 0;

 private:
  struct Run final : EncoderRun {
    explicit Run(const MadeMedia& media) : made(media), left(media.work_) {}
    std::int64_t work_left() const override { return left; }
    void advance(std::int64_t work, Backend& /*backend*/) override { left = std::max<std::int64_t>(left - work, 0); }
    std::size_t bytes() const override { return 0; }
    std::span<const float> rows() const override { return made.rows_; }

    const MadeMedia& made;
    std::int64_t left;
  };

  std::vector<float> rows_;
  std::int64_t row_width_;
  std::int64_t work_;
};

// Adds all rows of the piece to the prompt's end, as a raster of `grid_width` columns.
inline void add_media(Request& request, std::uint64_t number, const std::shared_ptr<const MadeMedia>& media,
                      std::int32_t grid_width = 0, bool is_bidirectional = false) {
  const std::int64_t num_rows = media->num_rows();
  const std::int64_t height = grid_width > 0 ? num_rows / grid_width : 0;
  request.media.push_back({.begin = std::ssize(request.prompt),
                           .num_rows = num_rows,
                           .grid_width = grid_width,
                           .grid_height = static_cast<std::int32_t>(height),
                           .num_positions = grid_width > 0 ? std::max<std::int64_t>(grid_width, height) : num_rows,
                           .is_bidirectional = is_bidirectional,
                           .key = {number, 1},
                           .media = media});
  for (std::int64_t row = 0; row < num_rows; ++row)
    request.prompt.push_back(media_placeholder(row));
}

}  // namespace quire::test
