#include "tests/kernels/attention/attention_scene.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>

#include "kernels/formats/half.h"

namespace quire::test {
namespace {

constexpr std::int64_t kLayers = 2;
constexpr std::int64_t kLayer = 1;
constexpr std::size_t kInt4KeyGroup = 16;
constexpr std::size_t kInt4ValueGroup = 32;

float softmax_scale(Heads heads) {
  return 1.0f / std::sqrt(static_cast<float>(heads.head_dim));
}

// Rotates the power-of-two blocks of a head, in the cache's order of operations.
template <class T>
void rotate(std::vector<T>& x) {
  for (std::size_t begin = 0; begin < x.size();) {
    const std::size_t size = std::bit_floor(x.size() - begin);
    for (std::size_t half = 1; half < size; half *= 2) {
      for (std::size_t i = 0; i < size; ++i) {
        if ((i & half) != 0) continue;
        T& a = x[begin + i];
        T& b = x[begin + i + half];
        const T sum = a + b;
        b = a - b;
        a = sum;
      }
    }
    const T scale = T{1} / std::sqrt(static_cast<T>(size));
    for (std::size_t i = 0; i < size; ++i)
      x[begin + i] *= scale;
    begin += size;
  }
}

Int4Vector int4_of(std::vector<float> x, std::size_t group) {
  rotate(x);
  Int4Vector out;
  for (std::size_t begin = 0; begin < x.size(); begin += group) {
    const auto first = x.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = x.begin() + static_cast<std::ptrdiff_t>(std::min(begin + group, x.size()));
    const auto [low, high] = std::minmax_element(first, last);
    const float scale = f16_to_float(float_to_f16((*high - *low) / 15.0f));
    const float minimum = f16_to_float(float_to_f16(*low));
    out.scales.push_back(static_cast<double>(scale));
    out.minima.push_back(static_cast<double>(minimum));
    for (auto at = first; at != last; ++at) {
      const float code = std::clamp(std::floor((*at - minimum) * (1.0f / scale) + 0.5f), 0.0f, 15.0f);
      out.codes.push_back(static_cast<double>(code));
    }
  }
  return out;
}

std::vector<double> rounded_to_int4(const std::vector<float>& x) {
  const Int4Vector kept = int4_of(x, kInt4KeyGroup);
  std::vector<double> out;
  for (std::size_t i = 0; i < x.size(); ++i)
    out.push_back(kept.minima[i / kInt4KeyGroup] + kept.scales[i / kInt4KeyGroup] * kept.codes[i]);
  rotate(out);
  return out;
}

// The sum of V's vectors of one partition times probabilities, not yet turned back. A vector's weight in a group of
// features, its probability times its scale, is rounded to 15 bits of the largest.
std::vector<double> int4_sum(const std::vector<const Int4Vector*>& values, std::span<const double> probabilities) {
  constexpr double kMostWeight = 32767.0;
  std::vector<double> out(values.front()->codes.size(), 0.0);
  for (std::size_t g = 0; g * kInt4ValueGroup < out.size(); ++g) {
    double largest = 0.0;
    for (std::size_t t = 0; t < values.size(); ++t)
      largest = std::max(largest, probabilities[t] * values[t]->scales[g]);
    for (std::size_t t = 0; t < values.size(); ++t) {
      const double part = largest > 0.0 ? probabilities[t] * values[t]->scales[g] / largest : 0.0;
      const double weight = std::nearbyint(part * kMostWeight) / kMostWeight * largest;
      for (std::size_t d = g * kInt4ValueGroup; d < std::min((g + 1) * kInt4ValueGroup, out.size()); ++d)
        out[d] += weight * values[t]->codes[d] + probabilities[t] * values[t]->minima[g];
    }
  }
  return out;
}

// A head's vector as the cache stores it; for int4, a key's.
std::vector<double> rounded(const float* x, std::int64_t count, KvDType dtype) {
  if (dtype == KvDType::kI4) return rounded_to_int4({x, x + count});
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

// A head's query as attention uses it: over int4, rotated and rounded to eight bits with a scale for 32 features.
std::vector<double> rounded_query(const float* x, std::int64_t count, KvDType dtype) {
  std::vector<float> rotated(x, x + count);
  if (dtype != KvDType::kI4) return {rotated.begin(), rotated.end()};
  rotate(rotated);
  std::vector<double> out;
  for (std::size_t begin = 0; begin < rotated.size(); begin += 32) {
    const std::size_t end = std::min(begin + 32, rotated.size());
    float bound = 0.0f;
    for (std::size_t i = begin; i < end; ++i)
      bound = std::max(bound, std::fabs(rotated[i]));
    for (std::size_t i = begin; i < end; ++i)
      out.push_back(static_cast<double>(std::nearbyint(rotated[i] * (127.0f / bound)) * (bound / 127.0f)));
  }
  rotate(out);
  return out;
}

}  // namespace

AttentionScene::AttentionScene(std::uint32_t seed, Heads heads, KvDType dtype, std::vector<std::int64_t> lengths,
                               std::int64_t block_size, const AttentionOptions& options)
    : heads_(heads), options_(options) {
  std::mt19937 random(seed);
  std::int64_t num_blocks = 3;
  for (const std::int64_t length : lengths)
    num_blocks += (length + block_size - 1) / block_size;
  layout_ = {kLayers, num_blocks, block_size, heads.num_kv_heads, heads.head_dim, dtype, heads.values()};
  if (options.value_in_key) layout_.value_dim = 0;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(num_blocks));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), random);
  for (const std::int64_t length : lengths) {
    Stored stored{random_matrix(random, length, query_width(), 2.0f),
                  random_matrix(random, length, heads.num_kv_heads * heads.head_dim),
                  random_matrix(random, length, heads.num_kv_heads * heads.values()),
                  {}};
    const auto count = static_cast<std::ptrdiff_t>((length + block_size - 1) / block_size);
    stored.blocks.assign(ids.end() - count, ids.end());
    ids.resize(ids.size() - static_cast<std::size_t>(count));
    sequences_.push_back(std::move(stored));
  }
  stale_block_ = ids.front();
  options_.num_heads = heads.num_heads;
  options_.scale = softmax_scale(heads);
  if (options.sinks != nullptr) {
    sinks_ = random_floats(random, heads.num_heads);
    options_.sinks = sinks_.data();
  }
}

std::int64_t AttentionScene::share(std::size_t sequence, std::size_t earlier, std::int64_t tokens) {
  Stored& from = sequences_[earlier];
  Stored& to = sequences_[sequence];
  const std::int64_t num_blocks = std::min({tokens, from.k.rows, to.k.rows}) / layout_.block_size;
  wanted_.clear();
  std::copy_n(from.blocks.begin(), num_blocks, to.blocks.begin());
  for (std::int64_t at = 0; at < num_blocks * layout_.block_size; ++at) {
    std::copy_n(&from.q.at(at, 0), from.q.cols, &to.q.at(at, 0));
    std::copy_n(&from.k.at(at, 0), from.k.cols, &to.k.at(at, 0));
    std::copy_n(&from.v.at(at, 0), from.v.cols, &to.v.at(at, 0));
  }
  return num_blocks * layout_.block_size;
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

std::int64_t AttentionScene::first_seen(std::int64_t position) const {
  std::int64_t first = 0;
  while (!sees(position, first))
    ++first;
  return first;
}

bool AttentionScene::sees(std::int64_t position, std::int64_t token) const {
  const bool is_ahead = position >= span_.begin && position < span_.end && token < span_.end;
  if (options_.causal && token > position && !is_ahead) return false;
  if (options_.window > 0 && options_.causal && position - token >= options_.window) return false;
  if (options_.window > 0 && !options_.causal && std::abs(position - token) > options_.window / 2) return false;
  return options_.chunk == 0 || position / options_.chunk <= token / options_.chunk;
}

void AttentionScene::run(Backend& backend, KvStorage& kv, const std::vector<Chunk>& chunks, MatrixView out) {
  const std::int64_t key_width = heads_.num_kv_heads * heads_.head_dim;
  const std::int64_t value_width = heads_.num_kv_heads * heads_.values();
  const std::int64_t rows = num_rows(chunks);
  Matrix q(rows, query_width());
  Matrix k(rows, key_width);
  Matrix v(rows, value_width);
  std::vector<std::int32_t> starts{0}, contexts, table_starts{0}, tables, slots, seen_end;
  std::int64_t row = 0;
  for (const Chunk& chunk : chunks) {
    Stored& from = sequences_[chunk.sequence];
    for (std::int64_t at = chunk.begin; at < chunk.end; ++at, ++row) {
      std::copy_n(&from.q.at(at, 0), q.cols, &q.at(row, 0));
      std::copy_n(&from.k.at(at, 0), key_width, &k.at(row, 0));
      std::copy_n(&from.v.at(at, 0), value_width, &v.at(row, 0));
      const bool is_in_span = at >= span_.begin && at < span_.end;
      seen_end.push_back(is_in_span ? static_cast<std::int32_t>(std::min(span_.end, chunk.end)) : 0);
      const std::int32_t block = from.blocks[static_cast<std::size_t>(at / layout_.block_size)];
      slots.push_back(static_cast<std::int32_t>(block * layout_.block_size + at % layout_.block_size));
    }
    starts.push_back(static_cast<std::int32_t>(row));
    contexts.push_back(static_cast<std::int32_t>(chunk.end));
    const auto unseen = static_cast<std::size_t>(first_seen(chunk.begin) / layout_.block_size);
    tables.insert(tables.end(), unseen, stale_block_);
    tables.insert(tables.end(), from.blocks.begin() + static_cast<std::ptrdiff_t>(unseen), from.blocks.end());
    table_starts.push_back(static_cast<std::int32_t>(tables.size()));
  }
  AttentionBatch batch{starts, contexts, table_starts, tables, slots, {}, options_.causal};
  if (span_.end > 0) batch.seen_end = seen_end;
  const bool is_plain = options_.window == 0 && options_.chunk == 0 && options_.softcap == 0.0f &&
                        options_.sinks == nullptr && options_.alibi == 0.0f && heads_.values() == heads_.head_dim;
  backend.store_kv(kv, kLayer, batch, k.view(), options_.value_in_key ? MatrixView{} : v.view());
  if (out.data != nullptr && is_plain) {
    backend.attention(kv, kLayer, batch, q.view(), heads_.num_heads, options_.scale, out);
  } else if (out.data != nullptr) {
    backend.graph()->attention(kv, kLayer, batch, q.view(), options_, out);
  }
  backend.synchronize();  // q, k and v end here
}

Matrix AttentionScene::run_in_calls(Backend& backend, const std::vector<std::vector<Chunk>>& calls) {
  const std::vector<Chunk> all = everything();
  Matrix out(num_rows(all), width());
  const auto kv = make_cache(backend);
  for (const std::vector<Chunk>& call : calls) {
    Matrix part(num_rows(call), width());
    run(backend, *kv, call, part.view());
    std::int64_t from = 0;
    for (const Chunk& chunk : call) {
      std::int64_t first = 0;
      for (std::size_t s = 0; s < chunk.sequence; ++s)
        first += all[s].end;
      for (std::int64_t at = chunk.begin; at < chunk.end; ++at, ++from)
        std::copy_n(&part.at(from, 0), width(), &out.at(first + at, 0));
    }
  }
  return out;
}

AttentionScene::Kept AttentionScene::kept(const Stored& from) const {
  Kept out;
  const auto each_head = [](const Matrix& rows, std::int64_t dim, const auto& take) {
    for (std::int64_t row = 0; row < rows.rows; ++row) {
      for (std::int64_t begin = 0; begin < rows.cols; begin += dim)
        take(rows.data.data() + row * rows.stride + begin, dim);
    }
  };
  each_head(from.q, heads_.head_dim,
            [&](const float* x, std::int64_t dim) { out.queries.push_back(rounded_query(x, dim, layout_.dtype)); });
  each_head(from.k, heads_.head_dim,
            [&](const float* x, std::int64_t dim) { out.keys.push_back(rounded(x, dim, layout_.dtype)); });
  each_head(from.v, heads_.values(), [&](const float* x, std::int64_t dim) {
    if (layout_.dtype == KvDType::kI4) {
      out.codes.push_back(int4_of({x, x + dim}, kInt4ValueGroup));
    } else {
      out.values.push_back(rounded(x, dim, layout_.dtype));
    }
  });
  return out;
}

double AttentionScene::score(const Kept& from, std::int64_t position, std::int64_t token, std::int64_t head) const {
  const std::int64_t kv_head = head / (heads_.num_heads / heads_.num_kv_heads);
  const std::vector<double>& key = from.keys[static_cast<std::size_t>(token * heads_.num_kv_heads + kv_head)];
  const std::vector<double>& query = from.queries[static_cast<std::size_t>(position * heads_.num_heads + head)];
  double out = std::inner_product(key.begin(), key.end(), query.begin(), 0.0);
  out *= static_cast<double>(options_.scale);
  const auto cap = static_cast<double>(options_.softcap);
  if (cap > 0.0) out = cap * std::tanh(out / cap);
  if (options_.alibi > 0.0f) {  // number of heads is a power of two
    const double exponent =
        static_cast<double>(options_.alibi) * static_cast<double>(head + 1) / static_cast<double>(heads_.num_heads);
    out -= std::pow(2.0, -exponent) * static_cast<double>(std::abs(position - token));
  }
  return out;
}

std::vector<double> AttentionScene::expected_int4(const Kept& from, std::int64_t kv_head,
                                                  const std::vector<std::int64_t>& tokens,
                                                  const std::vector<double>& probabilities) const {
  constexpr std::int64_t kPartition = 256;
  std::vector<double> out(static_cast<std::size_t>(heads_.values()), 0.0);
  for (std::size_t begin = 0, end = 0; begin < tokens.size(); begin = end) {
    std::vector<const Int4Vector*> values;
    for (; end < tokens.size() && tokens[end] / kPartition == tokens[begin] / kPartition; ++end)
      values.push_back(&from.codes[static_cast<std::size_t>(tokens[end] * heads_.num_kv_heads + kv_head)]);
    const std::vector<double> part = int4_sum(values, std::span(probabilities).subspan(begin, end - begin));
    for (std::size_t d = 0; d < out.size(); ++d)
      out[d] += part[d];
  }
  rotate(out);
  return out;
}

std::vector<double> AttentionScene::attend(const Kept& from, std::int64_t length, std::int64_t position) const {
  const std::int64_t dim = heads_.values();
  std::vector<double> out(static_cast<std::size_t>(width()), 0.0);
  for (std::int64_t head = 0; head < heads_.num_heads; ++head) {
    const std::int64_t kv_head = head / (heads_.num_heads / heads_.num_kv_heads);
    std::vector<std::int64_t> tokens;
    std::vector<double> scores;
    for (std::int64_t t = 0; t < length; ++t) {
      if (!sees(position, t)) continue;
      tokens.push_back(t);
      scores.push_back(score(from, position, t, head));
    }
    const double top = *std::max_element(scores.begin(), scores.end());
    double sum = sinks_.empty() ? 0.0 : std::exp(static_cast<double>(sinks_[static_cast<std::size_t>(head)]) - top);
    for (double& score : scores)
      sum += score = std::exp(score - top);
    if (layout_.dtype == KvDType::kI4) {
      const std::vector<double> value = expected_int4(from, kv_head, tokens, scores);
      for (std::int64_t d = 0; d < dim; ++d)
        out[static_cast<std::size_t>(head * dim + d)] = value[static_cast<std::size_t>(d)] / sum;
      continue;
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto at = static_cast<std::size_t>(tokens[i] * heads_.num_kv_heads + kv_head);
      const std::vector<double>& value = options_.value_in_key ? from.keys[at] : from.values[at];
      for (std::int64_t d = 0; d < dim; ++d)
        out[static_cast<std::size_t>(head * dim + d)] += scores[i] / sum * value[static_cast<std::size_t>(d)];
    }
  }
  return out;
}

const AttentionScene::Wanted& AttentionScene::wanted() {
  if (!wanted_.empty()) return wanted_;
  for (const Stored& from : sequences_) {
    const Kept as_kept = kept(from);
    const std::int64_t length = from.q.rows;
    for (std::int64_t at = 0; at < length; ++at) {
      const bool is_checked = at <= 40 || at >= length - 3 || at % 61 == 0;  // the reference is slow
      wanted_.push_back(is_checked ? attend(as_kept, length, at) : std::vector<double>());
    }
  }
  return wanted_;
}

double AttentionScene::worst_error(Backend& backend) {
  const auto kv = make_cache(backend);
  const std::vector<Chunk> chunks = everything();
  Matrix out(num_rows(chunks), width());
  run(backend, *kv, chunks, out.view());
  double worst = out.padding_untouched() ? 0.0 : 1e9;
  const Wanted& rows = wanted();
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (std::size_t col = 0; col < rows[row].size(); ++col) {
      const float got = out.at(static_cast<std::int64_t>(row), static_cast<std::int64_t>(col));
      const double error = std::fabs(static_cast<double>(got) - rows[row][col]);
      worst = std::isnan(error) ? 1e9 : std::max(worst, error);
    }
  }
  return worst;
}

}  // namespace quire::test
