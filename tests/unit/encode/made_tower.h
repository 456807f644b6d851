// A small tower in the form of Qwen3-VL, made by tests, and its rows computed naively in double precision. One thread
// at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/content/picture.h"
#include "kernels/formats/dtype.h"

namespace quire::test {

struct MadeTower {
  static constexpr int kWidth = 64;
  static constexpr int kHeads = 4;
  static constexpr int kFfn = 96;
  static constexpr int kBlocks = 2;  // the first one has a deepstack branch
  static constexpr int kPatch = 4;
  static constexpr int kGrid = 6;  // side of the table of positions
  static constexpr int kTextWidth = 32;
  static constexpr float kEps = 1e-5F;

  struct Tensor {
    std::vector<std::int64_t> shape;  // outermost first
    std::vector<float> values;        // decoded values from the file
    DType type = DType::kF32;
  };

  // Random weights; matrices have the type `type`.
  explicit MadeTower(DType type);
  void write(const std::filesystem::path& path, const std::string& projector = "qwen3vl_merger",
             std::uint32_t said_ffn = kFfn) const;
  // Rows of a picture whose sides are multiples of two patches: the embedding, then the branch.
  std::vector<double> rows(const Picture& picture) const;

  std::map<std::string, Tensor> tensors;
};

// A picture of smooth colours.
Picture made_picture(std::int32_t width, std::int32_t height);

}  // namespace quire::test
