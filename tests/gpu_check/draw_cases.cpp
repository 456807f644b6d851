// Cases of tokens that a device draws and scores.
#include <algorithm>

#include "kernels/step_ops.h"
#include "tests/gpu_check/cases.h"
#include "tests/kernels/random_data.h"

namespace quire::test {
namespace {

constexpr std::int64_t kVocab = 1300;
constexpr std::int64_t kDrawnRows = 9;

// Each filter by itself and with others, over rows from flat to peaked.
std::vector<TokenDraw> made_draws(const std::vector<std::uint32_t>& mask, const std::vector<DrawEdit>& edits) {
  std::vector<TokenDraw> out(kDrawnRows);
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i].logit_row = static_cast<std::int64_t>(i);
    out[i].place = static_cast<std::int64_t>(i);
    out[i].u = 0.1 * static_cast<double>(i + 1);
    out[i].temperature = 0.7f;
  }
  out[0].greedy = true;
  out[1].mask = mask;
  out[2].edits = edits;
  out[2].repetition_penalty = 1.3f;
  out[2].frequency_penalty = 0.4f;
  out[2].presence_penalty = -0.2f;
  out[3].top_k = 40;
  out[4].top_p = 0.9f;
  out[5].min_p = 0.05f;
  out[5].min_p_log = -3.0f;
  out[6].top_k = 700;
  out[6].top_p = 0.8f;
  out[6].mask = mask;
  out[7].top_p = 0.99f;
  out[7].temperature_last = true;
  out[7].temperature = 1.5f;
  out[8].min_p = 0.01f;
  out[8].min_p_log = -4.6f;
  out[8].top_p = 0.95f;
  return out;
}

// Two steps; the second embeds the tokens that the first has drawn.
std::vector<float> run_draws(Backend& backend) {
  std::mt19937 random(71);
  std::vector<float> logits;
  for (std::int64_t row = 0; row < kDrawnRows; ++row) {
    const std::vector<float> each = random_floats(random, kVocab, row == 4 ? 0.01f : static_cast<float>(row));
    logits.insert(logits.end(), each.begin(), each.end());
  }
  const auto buffer = backend.upload(logits);
  std::vector<std::uint32_t> mask((kVocab + 31) / 32);
  for (std::uint32_t& word : mask)
    word = static_cast<std::uint32_t>(random());
  std::vector<DrawEdit> edits;
  for (std::int32_t token = 0; token < 900; token += 3) {
    if (token % 5 == 0) edits.push_back({.token = token, .kind = DrawEdit::Kind::kBan});
    if (token % 2 == 0) edits.push_back({.token = token, .kind = DrawEdit::Kind::kAdd, .value = 1.5f});
    edits.push_back({.token = token, .kind = DrawEdit::Kind::kPenalise, .count = token % 4});
  }
  std::vector<TokenScore> scores;
  for (std::int32_t row = 0; row < kDrawnRows; ++row)
    scores.push_back({row, row % 2 == 0 ? -1 - row : 100 + row, row < 6 ? 0 : 20});
  StepOps& steps = *backend.steps();
  steps.begin();
  steps.draw({buffer->data(), kDrawnRows, kVocab, kVocab}, kDrawnRows, made_draws(mask, edits), scores);
  steps.end();
  const Weights table = random_weights(random, DType::kF32, kVocab, 32);
  const auto embedding = backend.load_embedding(table.source());
  const auto embedded = backend.allocate(3 * 32);
  const std::int64_t step = steps.begin();
  backend.embed(*embedding, std::vector<std::int32_t>{-2, 7, -9}, {embedded->data(), 3, 32, 32});
  const MatrixView copy = backend.on_host({embedded->data(), 3, 32, 32}, HostResult::kHidden);
  steps.end();
  steps.wait(step);
  std::vector<float> out(copy.data, copy.data + 3 * 32);
  for (const TokenDrawn& drawn : steps.drawn(step - 1))
    out.push_back(static_cast<float>(drawn.token));
  for (const TokenScored& scored : steps.scored(step - 1)) {
    out.push_back(static_cast<float>(scored.sum));
    out.push_back(scored.logit);
    for (std::int32_t i = 0; i < scored.num_top; ++i)
      out.push_back(static_cast<float>(scored.top[i].token) + scored.top[i].logit);
  }
  backend.synchronize();
  return out;
}

}  // namespace

void add_draw_cases(std::vector<DeviceCase>& out) {
  out.push_back({"draws and scores", run_draws});
}

}  // namespace quire::test
