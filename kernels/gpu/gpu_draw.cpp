#include "kernels/gpu/gpu_draw.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/device_step_bytes.h"

namespace quire::gpu {
namespace {

std::int64_t chunks_of(std::int64_t vocab_size) {
  return (vocab_size + kDrawChunk - 1) / kDrawChunk;
}

std::int64_t draw_blocks_of(std::int64_t num_chunks, std::int64_t each) {
  return (num_chunks + each - 1) / each;
}

// Memory for the results of a group's passes, one array behind the other, those of eight bytes first.
struct Room {
  explicit Room(std::int64_t vocab_size) : chunks(kDrawRows * chunks_of(vocab_size)), tokens(kDrawRows * vocab_size) {}
  std::size_t bytes() const {
    constexpr std::size_t kEachChunk = sizeof(RowMaximum) + sizeof(double) + sizeof(std::int32_t);
    constexpr std::size_t kEachToken = sizeof(std::uint64_t) + 2 * sizeof(float);
    return static_cast<std::size_t>(chunks) * kEachChunk + static_cast<std::size_t>(tokens) * kEachToken;
  }
  // Returns where the edited rows are.
  float* place(std::byte* memory, DrawArgs& args) const {
    args.keys = reinterpret_cast<std::uint64_t*>(memory);
    args.sums = reinterpret_cast<double*>(args.keys + tokens);
    args.maxima = reinterpret_cast<RowMaximum*>(args.sums + chunks);
    args.weights = reinterpret_cast<float*>(args.maxima + chunks);
    float* const edited = args.weights + tokens;
    args.counts = reinterpret_cast<std::int32_t*>(edited + tokens);
    return edited;
  }

  std::int64_t chunks;
  std::int64_t tokens;
};

bool truncates(const TokenDraw& draw, std::int64_t vocab_size) {
  return (draw.top_k > 0 && draw.top_k < vocab_size) || draw.top_p < 1.0f || draw.min_p > 0.0f;
}

}  // namespace

GpuDraw::GpuDraw(Device& device, StepUploads& uploads)
    : device_(device),
      uploads_(uploads),
      rows_kernel_(device.kernel("draw_rows")),
      sums_kernel_(device.kernel("draw_sums")),
      draw_kernel_(device.kernel("draw_pick")),
      score_kernel_(device.kernel("score_pick")) {}

void GpuDraw::reserve(std::int64_t vocab_size) {
  if (vocab_size <= vocab_size_) return;
  grow(device_, memory_, Room(vocab_size).bytes(), "drawing tokens");
  vocab_size_ = vocab_size;
}

DrawRow GpuDraw::row_of(MatrixView logits, const TokenDraw& draw, float* edited) {
  QUIRE_CHECK(draw.logit_row >= 0 && draw.logit_row < logits.rows, "a draw from a row that is not there");
  DrawRow row{.logits = logits.data + draw.logit_row * logits.stride, .edited = nullptr};
  const std::span<const std::uint32_t> masks[2] = {draw.mask, draw.mask2};
  for (std::size_t i = 0; i < 2; ++i) {
    if (masks[i].empty()) continue;
    row.masks[i] = uploads_.put(masks[i]);
    row.mask_words[i] = static_cast<std::int32_t>(masks[i].size());
    row.edited = edited;
  }
  if (!draw.edits.empty()) {
    row.edits = uploads_.put(draw.edits);
    row.num_edits = static_cast<std::int32_t>(draw.edits.size());
    row.edited = edited;
  }
  row.place = static_cast<std::int32_t>(draw.place);
  row.greedy = draw.greedy ? 1 : 0;
  row.truncates = truncates(draw, logits.cols) ? 1 : 0;
  row.needs_sums = !draw.greedy && (row.truncates == 0 || (draw.top_k <= 0 && draw.top_p < 1.0f)) ? 1 : 0;
  row.top_k = std::max(draw.top_k, 0);
  row.top_p = draw.top_p;
  row.min_p = draw.min_p;
  row.min_p_floor = draw.min_p > 0.0f ? std::max(kDrawFloor, draw.min_p_log) : kDrawFloor;
  row.temperature_last = draw.temperature_last ? 1 : 0;
  row.temperature = draw.temperature;
  row.scale = 1.0f / (row.truncates != 0 ? row.filter_temperature() : draw.temperature);
  row.repetition_penalty = draw.repetition_penalty;
  row.frequency_penalty = draw.frequency_penalty;
  row.presence_penalty = draw.presence_penalty;
  row.u = draw.u;
  return row;
}

void GpuDraw::launch(const Kernel& pick, DrawArgs args) {
  const auto num_rows = static_cast<std::int64_t>(rows_.size());
  args.rows = uploads_.put(std::span<const DrawRow>(rows_));
  device_.launch(rows_kernel_, {.x = draw_blocks_of(args.num_chunks, DrawRows::kChunks), .y = num_rows}, args);
  if (std::ranges::any_of(rows_, [](const DrawRow& row) { return row.needs_sums != 0; }))
    device_.launch(sums_kernel_, {.x = draw_blocks_of(args.num_chunks, DrawSums::kChunks), .y = num_rows}, args);
  device_.launch(pick, {.x = num_rows}, args);
}

void GpuDraw::draw(MatrixView logits, std::span<const TokenDraw> draws, TokenDrawn* drawn) {
  if (draws.empty()) return;
  reserve(logits.cols);
  DrawArgs args{.vocab = logits.cols, .num_chunks = chunks_of(logits.cols), .drawn = drawn};
  float* const edited = Room(logits.cols).place(memory_.data(), args);
  for (std::size_t begin = 0; begin < draws.size(); begin += kDrawRows) {
    rows_.clear();
    for (const TokenDraw& draw : draws.subspan(begin, std::min<std::size_t>(kDrawRows, draws.size() - begin)))
      rows_.push_back(row_of(logits, draw, edited + std::ssize(rows_) * logits.cols));
    launch(draw_kernel_, args);
  }
}

void GpuDraw::score(MatrixView logits, std::span<const TokenScore> scores, TokenDrawn* drawn, TokenScored* scored) {
  if (scores.empty()) return;
  reserve(logits.cols);
  DrawArgs args{.vocab = logits.cols, .num_chunks = chunks_of(logits.cols), .drawn = drawn, .scored = scored};
  Room(logits.cols).place(memory_.data(), args);
  for (std::size_t begin = 0; begin < scores.size(); begin += kDrawRows) {
    rows_.clear();
    for (const TokenScore& score : scores.subspan(begin, std::min<std::size_t>(kDrawRows, scores.size() - begin))) {
      QUIRE_CHECK(score.logit_row >= 0 && score.logit_row < logits.rows && score.num_top <= TokenScore::kMostTop &&
                      score.token < logits.cols,
                  "a score of a row or token that is not there");
      rows_.push_back({.logits = logits.data + score.logit_row * logits.stride,
                       .place = static_cast<std::int32_t>(begin + rows_.size()),
                       .token = score.token,
                       .top_k = std::max(score.num_top, 0),
                       .needs_sums = 1});
    }
    launch(score_kernel_, args);
  }
}

}  // namespace quire::gpu
