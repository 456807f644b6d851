// Encoder: the tower and projector of an mmproj file, which turn a picture into embedding rows of a text model.
// Immutable after construction. layout() and prepare() run on any thread; a started run belongs to the engine thread.
// Invariant: rows are the same bits however a run is cut into slices and whatever the number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/content/picture.h"
#include "core/content/prepared_media.h"
#include "core/model/encode/media_layout.h"
#include "core/model/encode/towers/families.h"
#include "kernels/backend.h"

namespace quire {

struct EncoderOptions {
  Backend* backend = nullptr;  // weights are packed for it
  PictureForm form = PictureForm::kTrained;
  std::optional<std::int64_t> min_pixels = {};  // replaces the family's limits
  std::optional<std::int64_t> max_pixels = {};
  std::int64_t text_width = 0;                // width of the text model's embeddings; 0: not checked
  bool text_has_grid_positions = true;        // M-RoPE
  std::optional<bool> is_bidirectional = {};  // replaces the family's setting
  bool ignores_unknown_keys = false;          // of a directory's tower: a warning in place of a refusal
};

struct PicturePlan;
struct TowerWeights;

// The pixels of one picture, resized and cut for the tower. Immutable; any thread.
class PreparedPicture final : public PreparedMedia, public std::enable_shared_from_this<PreparedPicture> {
 public:
  PreparedPicture(const std::shared_ptr<const TowerWeights>& weights, std::shared_ptr<const PicturePlan> plan,
                  std::vector<Picture> tiles);
  const PicturePlan& plan() const { return *plan_; }
  std::span<const Picture> tiles() const { return tiles_; }

  std::int64_t num_rows() const override;
  std::int64_t row_width() const override;
  std::size_t num_bytes() const override;
  // Throws std::runtime_error where its encoder is gone.
  std::unique_ptr<EncoderRun> start() const override;

 private:
  std::weak_ptr<const TowerWeights> weights_;  // a remembered picture keeps no tower in memory
  std::int64_t row_width_;
  std::shared_ptr<const PicturePlan> plan_;
  std::vector<Picture> tiles_;
};

class Encoder {
 public:
  // Throws StartupError where the file is no tower that Quire computes or does not fit the text model.
  static std::unique_ptr<Encoder> open(const std::string& path, const EncoderOptions& options);
  // The same for a spec that was read from `file`.
  Encoder(MmprojFile& file, TowerSpec spec, const EncoderOptions& options);
  ~Encoder();

  MediaLayout layout(std::int32_t width, std::int32_t height, const PictureSettings& settings) const;
  std::shared_ptr<const PreparedPicture> prepare(const Picture& picture, const PictureSettings& settings) const;

  // Floats of a row: the embedding, then an addition for each deepstack level.
  std::int64_t row_width() const;
  std::int64_t num_deepstack() const;
  const TowerSpec& spec() const;
  std::size_t bytes() const;  // size of packed weights

 private:
  std::shared_ptr<const TowerWeights> weights_;
};

}  // namespace quire
