#include "tests/kernels/attention_scene.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/half.h"

namespace quire::test {
namespace {

constexpr std::int64_t kLayers = 2;
constexpr std::int64_t kLayer = 1;

float softmax_scale(Heads heads) {
  return 1.0f / std::sqrt(static_cast<float>(heads.head_dim));
}

// One head's vector as the cache keeps it.
std::vector<double> rounded(const float* x, std::int64_t count, KvDType dtype) {
  std::vector<double> out(x, x + count);
  float bound = 0.0f;
  for (std::int64_t i = 0; i < count; ++i)
    bound = std::max(bound, std::fabs(x[i]));
  const float scale = bound / 127.0f;
  for (double& value : out) {
    const auto single = static_cast<float>(value);
    if (dtype == KvDType::kF16) value = static_cast<double>(f16_to_float(float_to_f16(single)));
    if (dtype == KvDType::kBF16) value = static_cast<double>(bf16_to_float(float_to_bf16(single)));
    if (dtype == KvDType::kI8) value = std::nearbyint(single * (1.0f / scale)) * static_cast<double>(scale);
  }
  return out;
}

}  // namespace

AttentionScene::AttentionScene(std::uint32_t seed, Heads heads, KvDType dtype, std::vector<std::int64_t> lengths,
                               std::int64_t block_size)
    : heads_(heads) {
  std::mt19937 random(seed);
  std::int64_t num_blocks = 3;
  for (const std::int64_t length : lengths)
    num_blocks += (length + block_size - 1) / block_size;
  layout_ = {kLayers, num_blocks, block_size, heads.num_kv_heads, heads.head_dim, dtype};
  std::vector<std::int32_t> ids(static_cast<std::size_t>(num_blocks));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  for (const std::int64_t length : lengths) {
    const std::int64_t kv_width = heads.num_kv_heads * heads.head_dim;
    Stored stored{random_matrix(random, length, width(), 2.0f),
                  random_matrix(random, length, kv_width),
                  random_matrix(random, length, kv_width),
                  {}};
    const auto count = static_cast<std::ptrdiff_t>((length + block_size - 1) / block_size);
    stored.blocks.assign(ids.end() - count, ids.end());
    ids.resize(ids.size() - static_cast<std::size_t>(count));
    sequences_.push_back(std::move(stored));
  }
}

std::unique_ptr<KvStorage> AttentionScene::make_cache(Backend& backend) const {
  auto kv = backend.allocate_kv(layout_);
  const std::vector<std::byte> stale(kv->block_bytes(), std::byte{0xff});
  for (std::int32_t block = 0; block < layout_.num_blocks; ++block)
    kv->write_block(block, stale);
  return kv;
}

std::vector<Chunk> AttentionScene::everything() const {
  std::vector<Chunk> out;
  for (std::size_t i = 0; i < sequences_.size(); ++i)
    out.push_back({i, 0, sequences_[i].q.rows});
  return out;
}

std::int64_t AttentionScene::num_rows(const std::vector<Chunk>& chunks) const {
  std::int64_t rows = 0;
  for (const Chunk& chunk : chunks)
    rows += chunk.end - chunk.begin;
  return rows;
}

void AttentionScene::run(Backend& backend, KvStorage& kv, const std::vector<Chunk>& chunks, MatrixView out) {
  const std::int64_t kv_width = heads_.num_kv_heads * heads_.head_dim;
  const std::int64_t rows = num_rows(chunks);
  Matrix q(rows, width());
  Matrix k(rows, kv_width);
  Matrix v(rows, kv_width);
  std::vector<std::int32_t> starts{0}, contexts, table_starts{0}, tables, slots;
  std::int64_t row = 0;
  for (const Chunk& chunk : chunks) {
    Stored& from = sequences_[chunk.sequence];
    for (std::int64_t at = chunk.begin; at < chunk.end; ++at, ++row) {
      std::copy_n(&from.q.at(at, 0), width(), &q.at(row, 0));
      std::copy_n(&from.k.at(at, 0), kv_width, &k.at(row, 0));
      std::copy_n(&from.v.at(at, 0), kv_width, &v.at(row, 0));
      const std::int32_t block = from.blocks[static_cast<std::size_t>(at / layout_.block_size)];
      slots.push_back(static_cast<std::int32_t>(block * layout_.block_size + at % layout_.block_size));
    }
    starts.push_back(static_cast<std::int32_t>(row));
    contexts.push_back(static_cast<std::int32_t>(chunk.end));
    tables.insert(tables.end(), from.blocks.begin(), from.blocks.end());
    table_starts.push_back(static_cast<std::int32_t>(tables.size()));
  }
  const AttentionBatch batch{starts, contexts, table_starts, tables, slots, {}, causal};
  backend.store_kv(kv, kLayer, batch, k.view(), v.view());
  backend.attention(kv, kLayer, batch, q.view(), heads_.num_heads, softmax_scale(heads_), out);
}

std::vector<double> AttentionScene::expected(std::size_t sequence, std::int64_t position) {
  Stored& from = sequences_[sequence];
  const std::int64_t dim = heads_.head_dim;
  const std::int64_t end = causal ? position + 1 : from.q.rows;
  std::vector<double> out(static_cast<std::size_t>(width()), 0.0);
  for (std::int64_t head = 0; head < heads_.num_heads; ++head) {
    const std::int64_t kv_head = head / (heads_.num_heads / heads_.num_kv_heads);
    std::vector<double> scores;
    for (std::int64_t t = 0; t < end; ++t) {
      const std::vector<double> key = rounded(&from.k.at(t, kv_head * dim), dim, layout_.dtype);
      double score = 0.0;
      for (std::int64_t d = 0; d < dim; ++d) {
        score += key[static_cast<std::size_t>(d)] * static_cast<double>(from.q.at(position, head * dim + d));
      }
      scores.push_back(score * static_cast<double>(softmax_scale(heads_)));
    }
    const double top = *std::max_element(scores.begin(), scores.end());
    double sum = 0.0;
    for (double& score : scores)
      sum += score = std::exp(score - top);
    for (std::int64_t t = 0; t < end; ++t) {
      const std::vector<double> value = rounded(&from.v.at(t, kv_head * dim), dim, layout_.dtype);
      for (std::int64_t d = 0; d < dim; ++d) {
        out[static_cast<std::size_t>(head * dim + d)] +=
            scores[static_cast<std::size_t>(t)] / sum * value[static_cast<std::size_t>(d)];
      }
    }
  }
  return out;
}

}  // namespace quire::test
