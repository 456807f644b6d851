#include "tests/parallel/backend_runner.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace quire::test {
namespace {

constexpr std::int32_t kBlockSize = 16;
constexpr std::int32_t kNumBlocks = 32;
constexpr std::int32_t kBlocksPerSequence = 6;

}  // namespace

BackendRunner::BackendRunner(const LoadedModel& model, std::unique_ptr<Backend> backend, KvDType dtype)
    : backend_(std::move(backend)), model_(model.build(*backend_, {})) {
  KvLayout layout = model_->kv_layout();
  layout.num_blocks = kNumBlocks;
  layout.block_size = kBlockSize;
  layout.dtype = dtype;
  kv_ = backend_->allocate_kv(layout);
}

Logits BackendRunner::step(const std::vector<Tokens>& sequences, std::int32_t context) {
  Tokens ids;
  Tokens positions;
  Tokens slots;
  Tokens query_start{0};
  Tokens context_len;
  Tokens table_start{0};
  Tokens tables;
  for (const Tokens& sequence : sequences) {
    const std::size_t first_block = tables.size();
    for (std::int32_t i = 0; i < kBlocksPerSequence; ++i)
      tables.push_back(static_cast<std::int32_t>(tables.size()) * 7 % kNumBlocks);
    for (const std::int32_t id : sequence) {
      const std::int32_t position = context + static_cast<std::int32_t>(ids.size()) - query_start.back();
      slots.push_back(tables.at(first_block + static_cast<std::size_t>(position / kBlockSize)) * kBlockSize +
                      position % kBlockSize);
      ids.push_back(id);
      positions.push_back(position);
    }
    query_start.push_back(static_cast<std::int32_t>(ids.size()));
    context_len.push_back(context + static_cast<std::int32_t>(sequence.size()));
    table_start.push_back(static_cast<std::int32_t>(tables.size()));
  }
  Tokens rows(ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  StepArrays arrays{.token_ids = ids,
                    .positions = positions,
                    .attention = {.query_start = query_start,
                                  .context_len = context_len,
                                  .block_table_start = table_start,
                                  .block_tables = tables,
                                  .slots = slots},
                    .logit_rows = rows};
  if (edit) edit(arrays);
  model_->reserve(std::ssize(ids), std::ssize(rows));
  const ModelOutput output = model_->forward(arrays, *kv_);
  num_computed = output.num_rows;
  const MatrixView result = backend_->on_host(output.logits, HostResult::kLogits);
  backend_->synchronize();
  Logits out;
  for (std::int64_t row = 0; row < result.rows; ++row) {
    const float* values = result.data + row * result.stride;
    out.emplace_back(values, values + result.cols);
  }
  return out;
}

Logits BackendRunner::chunked(const Tokens& ids, std::size_t chunk) {
  Logits out;
  for (std::size_t begin = 0; begin < ids.size(); begin += chunk) {
    const std::size_t end = std::min(begin + chunk, ids.size());
    const Tokens part(ids.begin() + static_cast<std::ptrdiff_t>(begin), ids.begin() + static_cast<std::ptrdiff_t>(end));
    for (auto& row : step({part}, static_cast<std::int32_t>(begin)))
      out.push_back(std::move(row));
  }
  return out;
}

double difference(const Logits& logits, const Logits& expected) {
  if (logits.size() != expected.size()) return 1e9;
  double worst = 0.0;
  for (std::size_t row = 0; row < logits.size(); ++row) {
    double scale = 1e-9;
    double most = logits[row].size() == expected[row].size() ? 0.0 : 1e9;
    for (std::size_t i = 0; i < std::min(logits[row].size(), expected[row].size()); ++i) {
      const double d = std::fabs(static_cast<double>(logits[row][i]) - static_cast<double>(expected[row][i]));
      scale = std::max(scale, std::fabs(static_cast<double>(expected[row][i])));
      most = d >= 0.0 ? std::max(most, d) : 1e9;  // a NaN is the worst
    }
    worst = std::max(worst, most / scale);
  }
  return worst;
}

Tokens some_tokens(std::int32_t count, std::int32_t first) {
  Tokens ids;
  for (std::int32_t i = 0; i < count; ++i)
    ids.push_back((i * 101 + first) % 380);
  return ids;
}

}  // namespace quire::test
