// The operations of other families' layers against a scalar reference in double precision, on every level.
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "tests/kernels/level_backends.h"
#include "tests/kernels/random_data.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr std::int64_t kBlock = 16;

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

void check_close(float got, double expected) {
  CHECK(std::fabs(static_cast<double>(got) - expected) <= 2e-4 * (1.0 + std::fabs(expected)));
}

// One sequence of `context` tokens, of which the last `rows` are computed, in blocks in falling order.
struct Scene {
  Scene(std::int64_t context, std::int64_t rows) {
    const std::int64_t blocks = (context + kBlock - 1) / kBlock;
    for (std::int64_t i = 0; i < blocks; ++i)
      tables.push_back(static_cast<std::int32_t>(blocks - 1 - i));
    for (std::int64_t position = context - rows; position < context; ++position)
      slots.push_back(
          static_cast<std::int32_t>(tables[static_cast<std::size_t>(position / kBlock)] * kBlock + position % kBlock));
    starts = {0, static_cast<std::int32_t>(rows)};
    contexts = {static_cast<std::int32_t>(context)};
    table_starts = {0, static_cast<std::int32_t>(blocks)};
  }
  AttentionBatch batch() const {
    return {.query_start = starts,
            .context_len = contexts,
            .block_table_start = table_starts,
            .block_tables = tables,
            .slots = slots};
  }

  std::vector<std::int32_t> starts, contexts, table_starts, tables, slots;
};

struct AttentionCase {
  std::int64_t value_dim = 16;
  AttentionOptions options;
};

// Softmax over the keys that a row sees, straight from the definitions.
std::vector<double> expected_attention(const AttentionCase& test, Matrix& q, Matrix& k, Matrix& v, std::int64_t row,
                                       std::int64_t head, std::int64_t key_dim, std::int64_t kv_heads,
                                       const std::vector<float>& sinks) {
  const AttentionOptions& options = test.options;
  const std::int64_t kv_head = head / (options.num_heads / kv_heads);
  std::vector<double> weights;
  std::vector<std::int64_t> tokens;
  for (std::int64_t t = 0; t < k.rows; ++t) {
    const std::int64_t distance = row - t;
    if (options.causal && distance < 0) continue;
    if (options.window > 0 && options.causal && distance >= options.window) continue;
    if (options.window > 0 && !options.causal && std::abs(distance) > options.window / 2) continue;
    double score = 0.0;
    for (std::int64_t d = 0; d < key_dim; ++d)
      score += static_cast<double>(q.at(row, head * key_dim + d)) * static_cast<double>(k.at(t, kv_head * key_dim + d));
    score *= static_cast<double>(options.scale);
    const auto cap = static_cast<double>(options.softcap);
    if (cap > 0.0) score = cap * std::tanh(score / cap);
    if (options.alibi > 0.0F) {
      const double slope = std::pow(2.0, -static_cast<double>(options.alibi) * static_cast<double>(head + 1) /
                                             static_cast<double>(options.num_heads));
      score -= slope * static_cast<double>(std::abs(distance));
    }
    weights.push_back(std::exp(score));
    tokens.push_back(t);
  }
  double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (options.sinks != nullptr) sum += std::exp(static_cast<double>(sinks[static_cast<std::size_t>(head)]));
  std::vector<double> out(static_cast<std::size_t>(test.value_dim));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    for (std::int64_t d = 0; d < test.value_dim; ++d) {
      const float value =
          options.value_in_key ? k.at(tokens[i], kv_head * key_dim + d) : v.at(tokens[i], kv_head * test.value_dim + d);
      out[static_cast<std::size_t>(d)] += weights[i] / sum * static_cast<double>(value);
    }
  }
  return out;
}

void check_attention(Backend& backend, AttentionCase test, std::int64_t kv_heads) {
  constexpr std::int64_t kTokens = 75;
  constexpr std::int64_t kKeyDim = 24;
  std::mt19937 random(7);
  const std::int64_t heads = test.options.num_heads;
  Matrix q = random_matrix(random, kTokens, heads * kKeyDim);
  Matrix k = random_matrix(random, kTokens, kv_heads * kKeyDim);
  Matrix v = random_matrix(random, kTokens, kv_heads * test.value_dim);
  const std::vector<float> sinks = random_floats(random, heads);
  if (test.options.sinks != nullptr) test.options.sinks = sinks.data();
  test.options.scale = 0.2F;
  KvLayout layout{.num_layers = 1, .num_blocks = 5, .block_size = kBlock, .dtype = KvDType::kF32};
  layout.layers = {{kv_heads, kKeyDim, test.options.value_in_key ? 0 : test.value_dim}};
  const auto kv = backend.allocate_kv(layout);
  const Scene scene(kTokens, kTokens);
  backend.store_kv(*kv, 0, scene.batch(), k.view(), v.view());
  Matrix out(kTokens, heads * test.value_dim);
  backend.graph()->attention(*kv, 0, scene.batch(), q.view(), test.options, out.view());
  for (std::int64_t row = 0; row < kTokens; ++row) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const auto expected = expected_attention(test, q, k, v, row, head, kKeyDim, kv_heads, sinks);
      for (std::int64_t d = 0; d < test.value_dim; ++d)
        check_close(out.at(row, head * test.value_dim + d), expected[static_cast<std::size_t>(d)]);
    }
  }
  if (!test.options.causal) return;
  // The last row alone has the same bits.
  const Scene last(kTokens, 1);
  Matrix alone(1, out.cols);
  backend.graph()->attention(*kv, 0, last.batch(), q.rows_from(kTokens - 1, 1), test.options, alone.view());
  CHECK(same_rows(out, kTokens - 1, alone, 0, 1));
}

}  // namespace

TEST_CASE("Attention with windows, caps, sinks and biases is the softmax of its definition", "[kernels][graph]") {
  const float has_sinks = 0.0F;
  for (const LevelBackend& level : level_backends(2)) {
    INFO(level.level);
    check_attention(*level.backend, {.options = {.num_heads = 4}}, 2);
    check_attention(*level.backend, {.options = {.num_heads = 4, .window = 16}}, 2);
    check_attention(*level.backend, {.options = {.num_heads = 4, .window = 9, .softcap = 1.5F, .sinks = &has_sinks}},
                    1);
    check_attention(*level.backend, {.options = {.num_heads = 4, .causal = false, .window = 10}}, 4);
    check_attention(*level.backend, {.options = {.num_heads = 4, .causal = false, .alibi = 8.0F}}, 4);
    check_attention(*level.backend, {.value_dim = 16, .options = {.num_heads = 3, .value_in_key = true}}, 1);
  }
}

TEST_CASE("Routing chooses by biased scores and weighs by the scores themselves", "[kernels][graph]") {
  const auto backend = std::move(level_backends(1).front().backend);
  Matrix logits(1, 4);
  const float values[] = {0.5F, 2.0F, 2.0F, -1.0F};
  const float bias[] = {0.0F, 0.0F, 0.0F, 9.0F};
  std::copy(values, values + 4, &logits.at(0, 0));
  std::vector<std::int32_t> ids(2);
  std::vector<float> weights(2);
  RouteOptions options{.num_chosen = 2};
  backend->graph()->route(logits.view(), options, ids, weights);
  CHECK(ids == std::vector<std::int32_t>{1, 2});  // a tie goes to the lower index
  CHECK(weights[0] == weights[1]);
  options.choice_bias = bias;
  options.gate = RouteOptions::Gate::kSigmoid;
  options.normalise = true;
  options.scale = 2.0F;
  backend->graph()->route(logits.view(), options, ids, weights);
  CHECK(ids == std::vector<std::int32_t>{3, 1});
  const double sum = sigmoid(-1.0) + sigmoid(2.0);
  check_close(weights[0], 2.0 * sigmoid(-1.0) / sum);
  check_close(weights[1], 2.0 * sigmoid(2.0) / sum);
  options = {.gate = RouteOptions::Gate::kSigmoid, .num_chosen = 1, .num_groups = 2};
  const float group_bias[] = {0.9F, 0.0F, 0.0F, 0.0F};
  options.choice_bias = group_bias;
  backend->graph()->route(logits.view(), options, {ids.data(), 1}, {weights.data(), 1});
  CHECK(ids[0] == 0);
}
