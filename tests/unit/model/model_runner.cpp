#include "tests/unit/model/model_runner.h"

#include <algorithm>
#include <numeric>

#include "kernels/registry.h"

namespace quire::test {

namespace {

constexpr std::int32_t kBlockSize = 16;
constexpr std::int32_t kNumBlocks = 256;

}  // namespace

ModelRunner::ModelRunner(const LoadedModel& model, const std::string& isa, KvDType kv_dtype, int threads)
    : backend_(create_backend({.device = "cpu", .cpu = {.isa = isa, .threads = threads, .pin = false}})),
      model_(model.build(backend_, {})),
      block_table_(kNumBlocks) {
  KvLayout layout = model_->kv_layout();
  layout.num_blocks = kNumBlocks;
  layout.block_size = kBlockSize;
  layout.dtype = kv_dtype;
  kv_ = backend_.allocate_kv(layout);
  // An order that no arithmetic on block ids would hit by chance: 37 and 256 have no common divisor.
  for (std::int32_t i = 0; i < kNumBlocks; ++i)
    block_table_[static_cast<std::size_t>(i)] = (i * 37 + 11) % kNumBlocks;
}

ModelRunner::~ModelRunner() = default;

void ModelRunner::reset() {
  context_ = 0;
}

Logits ModelRunner::append(std::span<const std::int32_t> ids) {
  const auto rows = static_cast<std::int32_t>(ids.size());
  std::vector<std::int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), context_);
  std::vector<std::int32_t> slots;
  for (const std::int32_t position : positions) {
    slots.push_back(block_table_.at(static_cast<std::size_t>(position / kBlockSize)) * kBlockSize +
                    position % kBlockSize);
  }
  std::vector<std::int32_t> logit_rows(ids.size());
  std::iota(logit_rows.begin(), logit_rows.end(), 0);
  context_ += rows;
  const std::vector<std::int32_t> query_start{0, rows};
  const std::vector<std::int32_t> context_len{context_};
  const std::vector<std::int32_t> table_start{0, kNumBlocks};
  const ModelInput input{.token_ids = ids,
                         .positions = positions,
                         .attention = {.query_start = query_start,
                                       .context_len = context_len,
                                       .block_table_start = table_start,
                                       .block_tables = block_table_,
                                       .slots = slots},
                         .logit_rows = logit_rows};
  const MatrixView logits = model_->forward(input, *kv_);
  Logits out;
  for (std::int64_t row = 0; row < logits.rows; ++row) {
    const float* values = logits.data + row * logits.stride;
    out.emplace_back(values, values + logits.cols);
  }
  return out;
}

Logits ModelRunner::append_chunked(std::span<const std::int32_t> ids, std::size_t chunk) {
  Logits out;
  for (std::size_t begin = 0; begin < ids.size(); begin += chunk) {
    for (auto& row : append(ids.subspan(begin, std::min(chunk, ids.size() - begin))))
      out.push_back(std::move(row));
  }
  return out;
}

std::vector<std::int32_t> ModelRunner::greedy(std::span<const std::int32_t> prompt, std::size_t count) {
  reset();
  std::vector<std::int32_t> out{argmax(append(prompt).back())};
  while (out.size() < count)
    out.push_back(argmax(append({&out.back(), 1}).back()));
  return out;
}

std::vector<std::string> supported_isa_levels() {
  std::vector<std::string> names;
  for (const IsaLevel& level : cpu_isa_levels()) {
    if (level.supported) names.push_back(level.name);
  }
  return names;
}

std::int32_t argmax(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
}

}  // namespace quire::test
