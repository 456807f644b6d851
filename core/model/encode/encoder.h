// Encoder: an mmproj file opened for one text model: how many rows a picture has, and what is computed for them.
// Immutable; any thread. EncoderRun: one picture's rows, computed in slices; one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/content/picture.h"

namespace quire {

class Backend;

// What stands in the prompt for one picture: texts (control tokens are read as tokens) and runs of rows, in order.
struct LayoutPart {
  std::string text;
  std::int64_t num_rows = 0;
  std::int32_t grid_width = 0;
  std::int32_t grid_height = 0;
  std::int64_t num_positions = 0;
  bool is_bidirectional = false;
};

struct MediaLayout {
  std::vector<LayoutPart> parts;
  std::int64_t num_rows = 0;
};

struct PictureSettings {
  enum class Detail { kAuto, kLow, kHigh, kOriginal };
  std::optional<std::int64_t> min_pixels;
  std::optional<std::int64_t> max_pixels;
  Detail detail = Detail::kAuto;
};

// Tiles of 8-bit pixels, ready for the tower. Immutable.
class PreparedMedia {
 public:
  std::size_t num_bytes() const { return 0; }
};

struct EncoderOptions {};

class EncoderRun {
 public:
  std::int64_t work_left() const;  // multiply-adds
  void advance(std::int64_t work, Backend& backend);
  bool is_done() const;
  std::span<const float> rows() const;
};

class Encoder {
 public:
  // Throws StartupError.
  static std::unique_ptr<Encoder> open(const std::string& path, const EncoderOptions& options);
  MediaLayout layout(std::int32_t width, std::int32_t height, const PictureSettings& settings) const;
  std::shared_ptr<const PreparedMedia> prepare(const Picture& picture, const PictureSettings& settings) const;
  std::unique_ptr<EncoderRun> start(std::shared_ptr<const PreparedMedia> media) const;
  std::int64_t row_width() const;
  std::int64_t num_deepstack() const;
};

}  // namespace quire
