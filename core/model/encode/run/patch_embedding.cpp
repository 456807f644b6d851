#include "core/model/encode/run/patch_embedding.h"

#include <algorithm>
#include <array>
#include <span>

#include "core/model/encode/run/tower_ops.h"

namespace quire {

PatchEmbedding::PatchEmbedding(const TowerWeights& weights, const Picture& pixels, const TileRows& rows)
    : weights_(weights), pixels_(pixels), rows_(rows), positions_(weights.spec, weights.positions, rows.grid) {}

void PatchEmbedding::add_stages(RowStages& stages) const {
  const TowerSpec& spec = weights_.spec;
  const std::int64_t inputs = kChannels * spec.patch_size * spec.patch_size;
  stages.add(rows_.grid.size(), inputs * spec.width,
             [this](TowerOps& ops, std::int64_t begin, std::int64_t end) { embed(ops, begin, end); });
  if (spec.class_token != ClassToken::kNone)
    stages.add(1, 1, [this](TowerOps& ops, std::int64_t, std::int64_t) { put_class_row(ops); });
}

void PatchEmbedding::embed(TowerOps& ops, std::int64_t begin, std::int64_t end) const {
  const TowerSpec& spec = weights_.spec;
  const MatrixView pixels = ops.room(TowerOps::kInput, end - begin, kChannels * spec.patch_size * spec.patch_size);
  put_pixels(ops, begin, pixels);
  const MatrixView out = rows_.at(begin, end);
  ops.multiply(weights_.patches, ops.run_steps(weights_.before_patches, pixels), out);
  ops.run_in_place(weights_.after_patches, out);
  if (spec.positions != LearnedPositions::kNone) add_positions(ops, begin, out);
  ops.run_in_place(weights_.before_blocks, out);
}

// Each patch as [channel][row][column], normalised.
void PatchEmbedding::put_pixels(TowerOps& ops, std::int64_t first_patch, MatrixView out) const {
  const PictureSpec& rules = weights_.spec.picture;
  std::array<std::array<float, 256>, kChannels> values{};
  for (std::size_t c = 0; c < kChannels; ++c) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const float unit = static_cast<float>(byte) / 255.0F;
      values[c][byte] = ((rules.is_signed ? 2.0F * unit - 1.0F : unit) - rules.mean[c]) / rules.deviation[c];
    }
  }
  const std::int64_t side = weights_.spec.patch_size;
  const std::span<float> made = ops.host_values(out.rows * out.cols);
  ops.for_rows(out.rows, out.cols, [&](std::int64_t row) {
    const PatchGrid::Place place = rows_.grid.places[static_cast<std::size_t>(first_patch + row)];
    float* const to = made.data() + row * out.cols;
    for (std::int64_t y = 0; y < side; ++y) {
      const std::uint8_t* const line =
          pixels_.rgb.data() + ((place.row * side + y) * pixels_.width + place.column * side) * kChannels;
      for (std::int64_t c = 0; c < kChannels; ++c) {
        float* const at = to + (c * side + y) * side;
        for (std::int64_t i = 0; i < side; ++i)
          at[i] = values[static_cast<std::size_t>(c)][line[i * kChannels + c]];
      }
    }
  });
  ops.put(made, out);
}

void PatchEmbedding::add_positions(TowerOps& ops, std::int64_t first_patch, MatrixView out) const {
  const MatrixView patches = ops.on_host(out);
  const std::span<float> made = ops.host_values(out.rows * out.cols);
  ops.for_rows(out.rows, 4 * out.cols, [&](std::int64_t row) {
    float* const to = made.data() + row * out.cols;
    std::copy_n(patches.data + row * patches.stride, out.cols, to);
    positions_.add(rows_.grid.places[static_cast<std::size_t>(first_patch + row)], out.cols, to);
  });
  ops.put(made, out);
}

// The row behind the patches, whatever its learned position.
void PatchEmbedding::put_class_row(TowerOps& ops) const {
  const TowerSpec& spec = weights_.spec;
  const std::int64_t index = rows_.grid.size();
  const MatrixView out = rows_.at(index, index + 1);
  const std::int64_t position = spec.class_token == ClassToken::kFirst ? 0 : index;
  const float* const learned = weights_.positions.values.data() + position * spec.width;
  const std::span<float> made = ops.host_values(spec.width);
  for (std::size_t i = 0; i < made.size(); ++i)
    made[i] = weights_.class_row[i] + learned[i];
  ops.put(made, out);
  ops.run_in_place(weights_.before_blocks, out);
}

}  // namespace quire
