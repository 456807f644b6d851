// GpuDraw: enqueues the drawing and scoring of tokens from rows of logits, some rows at a time. Engine thread only.
// Invariant: rows are independent of each other: how many there are at a time changes no result.
#pragma once

#include <vector>

#include "kernels/backend.h"
#include "kernels/gpu/kernels/draw.h"
#include "kernels/gpu/moves/step_uploads.h"

namespace quire::gpu {

class GpuDraw {
 public:
  GpuDraw(Device& device, StepUploads& uploads);

  void reserve(std::int64_t vocab_size);
  // Results go to `drawn` by place, and to `scored` in the order of the scores.
  void draw(MatrixView logits, std::span<const TokenDraw> draws, TokenDrawn* drawn);
  void score(MatrixView logits, std::span<const TokenScore> scores, TokenDrawn* drawn, TokenScored* scored);

 private:
  DrawRow row_of(MatrixView logits, const TokenDraw& draw, float* edited);
  void launch(const Kernel& pick, DrawArgs args);

  Device& device_;
  StepUploads& uploads_;
  const Kernel& rows_kernel_;
  const Kernel& sums_kernel_;
  const Kernel& draw_kernel_;
  const Kernel& score_kernel_;
  std::int64_t vocab_size_ = 0;  // the memory holds a group of rows of this size
  DeviceMemory memory_;
  std::vector<DrawRow> rows_;
};

}  // namespace quire::gpu
