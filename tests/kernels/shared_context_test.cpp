// Sequences that begin with the same blocks attend to them together, with the bits of each alone.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <tuple>
#include <utility>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/shared_context.h"
#include "tests/kernels/attention/attention_scene.h"
#include "tests/kernels/levels/level_backends.h"

namespace quire::test {
namespace {

bool same_bits(const Matrix& a, const Matrix& b) {
  return std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(float)) == 0;
}

std::int64_t pick(std::mt19937& random, std::int64_t first, std::int64_t last) {
  return std::uniform_int_distribution<std::int64_t>(first, last)(random);
}

struct SharedScene {
  Heads heads;
  KvDType dtype;
  std::int64_t block_size;
  AttentionOptions options;
};

// A tree of sequences, each with the beginning of an earlier one, and the rows of each that the last call computes.
struct Tree {
  AttentionScene scene;
  std::vector<Chunk> beginnings;
  std::vector<Chunk> rows;
};

Tree random_tree(std::uint32_t seed, const SharedScene& shape) {
  std::mt19937 random(seed);
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = pick(random, 3, 8); i > 0; --i)
    lengths.push_back(pick(random, 1, 1400));
  Tree out{AttentionScene(seed, shape.heads, shape.dtype, lengths, shape.block_size, shape.options), {}, {}};
  std::vector<std::int64_t> shared(lengths.size(), 0);
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    const std::int64_t rows = pick(random, 0, 2) == 0 ? pick(random, 1, 40) : 1;
    out.rows.push_back({s, std::max<std::int64_t>(0, lengths[s] - rows), lengths[s]});
    if (s == 0 || pick(random, 0, 4) == 0) continue;
    const auto earlier = static_cast<std::size_t>(pick(random, 0, static_cast<std::int64_t>(s) - 1));
    const std::int64_t known = std::min(out.rows[earlier].begin, out.rows[s].begin);
    shared[s] = out.scene.share(s, earlier, std::min(known, pick(random, 200, 1500)));
  }
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    if (out.rows[s].begin > shared[s]) out.beginnings.push_back({s, shared[s], out.rows[s].begin});
  }
  std::shuffle(out.rows.begin(), out.rows.end(), random);
  return out;
}

// Results of each sequence's last rows, computed in calls with the given sequences.
std::vector<Matrix> results(Tree& tree, Backend& backend, const std::vector<std::vector<Chunk>>& calls) {
  const auto kv = tree.scene.make_cache(backend);
  tree.scene.run(backend, *kv, tree.beginnings, {});
  std::vector<Matrix> out(tree.rows.size(), Matrix(0, 0));
  for (const std::vector<Chunk>& call : calls) {
    Matrix all(tree.scene.num_rows(call), tree.scene.width());
    tree.scene.run(backend, *kv, call, all.view());
    std::int64_t row = 0;
    for (const Chunk& chunk : call) {
      out[chunk.sequence] = Matrix(chunk.end - chunk.begin, tree.scene.width());
      Matrix& own = out[chunk.sequence];
      for (std::int64_t i = 0; i < own.rows; ++i, ++row)
        std::copy_n(&all.at(row, 0), own.cols, &own.at(i, 0));
    }
  }
  return out;
}

// Computes the last rows in one call, and in one call per sequence.
bool together_as_alone(std::uint32_t seed, const SharedScene& shape, Backend& backend) {
  Tree tree = random_tree(seed, shape);
  std::vector<std::vector<Chunk>> alone;
  for (const Chunk& chunk : tree.rows)
    alone.push_back({chunk});
  return std::ranges::equal(results(tree, backend, alone), results(tree, backend, {tree.rows}), same_bits);
}

// Tables of equal length, and one row of each sequence.
struct Tables {
  explicit Tables(const std::vector<std::vector<std::int32_t>>& blocks, std::int32_t block_size) {
    for (const auto& of : blocks) {
      tables.insert(tables.end(), of.begin(), of.end());
      starts.push_back(static_cast<std::int32_t>(tables.size()));
      contexts.push_back(static_cast<std::int32_t>(of.size()) * block_size);
      query_start.push_back(static_cast<std::int32_t>(query_start.size()));
    }
  }
  AttentionBatch batch() const { return {query_start, contexts, starts, tables, {}}; }
  std::vector<std::int32_t> query_start{0}, contexts, starts{0}, tables;
};

// --- what attention reads --------------------------------------------------------------------------------------------

KernelTable counting_kernels;
decltype(AttendKernel::run) counted_run = nullptr;
// Tokens of K and V that threads read after a tile of another partition.
std::atomic<std::int64_t> num_read{0};

void run_counted(const KvHeadView* kv, const std::int32_t* block_table, const QueryTile* tiles, std::int64_t num_heads,
                 std::int64_t num_tiles, std::int64_t partition, float* scratch, const SoftmaxState* out) {
  using Place = std::tuple<const void*, const std::int32_t*, std::int64_t>;
  thread_local Place before;
  const QueryTile& last = tiles[std::max(num_heads, num_tiles) - 1];
  const auto num_tokens = std::min<std::int64_t>(last.visible[last.count - 1] - partition * kPartition, kPartition);
  const Place here{kv->base, block_table, partition};
  if (here != std::exchange(before, here)) num_read += num_heads * num_tokens;
  counted_run(kv, block_table, tiles, num_heads, num_tiles, partition, scratch, out);
}

// A backend of this machine's best level that counts.
LevelBackend counting_backend() {
  std::string name;
  for (const CpuLevel& level : cpu_levels()) {
    if (!level.supported()) continue;
    counting_kernels = *level.table();
    name = level.name;
  }
  counted_run = std::exchange(counting_kernels.attend.run, run_counted);
  return {name, make_cpu_backend({.kernels = &counting_kernels, .threads = 2, .pin = false})};
}

constexpr std::int64_t kCountedKvHeads = 2;

// Counts for one decode step of 32 streams after 4,096 tokens, shared or each its own; heads like a model of 0.5B.
std::int64_t tokens_read(Backend& backend, bool shares) {
  constexpr std::int64_t kStreams = 32;
  constexpr std::int32_t kShared = 4096 / 16;
  constexpr std::int32_t kEach = kShared + 4;
  constexpr std::int64_t kWidth = 14 * 64;
  std::vector<std::vector<std::int32_t>> blocks(kStreams);
  for (std::int32_t s = 0; s < kStreams; ++s) {
    for (std::int32_t i = 0; i < kEach; ++i)
      blocks[static_cast<std::size_t>(s)].push_back(shares && i < kShared ? i : s * kEach + i);
  }
  const Tables tables(blocks, 16);
  const auto kv = backend.allocate_kv({.num_layers = 1,
                                       .num_blocks = kStreams * kEach,
                                       .block_size = 16,
                                       .num_kv_heads = kCountedKvHeads,
                                       .head_dim = 64,
                                       .dtype = KvDType::kF16});
  Matrix q(kStreams, kWidth);
  Matrix out(kStreams, kWidth);
  num_read = 0;
  backend.attention(*kv, 0, tables.batch(), q.view(), 14, 0.125F, out.view());
  return num_read;
}

}  // namespace

TEST_CASE("sequences of random trees of beginnings attend together as they do alone", "[kernels][attention][.long]") {
  AttentionOptions capped;
  capped.softcap = 5.0f;
  AttentionOptions latent;
  latent.value_in_key = true;
  const float any_sink = 0.0f;
  AttentionOptions with_sinks;
  with_sinks.sinks = &any_sink;
  AttentionOptions sloped;
  sloped.alibi = 8.0f;
  const SharedScene shapes[] = {
      {{14, 2, 16}, KvDType::kF16, 16, {}},         {{4, 4, 8}, KvDType::kF32, 32, {}},
      {{6, 2, 32}, KvDType::kI8, 16, {}},           {{9, 1, 16}, KvDType::kBF16, 48, {}},
      {{8, 2, 16}, KvDType::kF16, 128, with_sinks}, {{8, 2, 16}, KvDType::kF16, 16, capped},
      {{16, 1, 48, 32}, KvDType::kF16, 16, latent}, {{8, 4, 16}, KvDType::kI8, 256, sloped},
      {{14, 2, 64}, KvDType::kI4, 16, {}},          {{6, 2, 24}, KvDType::kI4, 32, with_sinks},
  };
  for (const int threads : {1, 3}) {
    for (LevelBackend& level : level_backends(threads)) {
      std::uint32_t seed = 0;
      for (const SharedScene& shape : shapes) {
        for (int turn = 0; turn < 2; ++turn) {
          ++seed;
          INFO(level.level << ", " << threads << " threads, seed " << seed);
          CHECK(together_as_alone(seed, shape, *level.backend));
        }
      }
    }
  }
}

TEST_CASE("layers with a window keep to themselves what sequences share") {
  AttentionOptions window;
  window.window = 300;
  AttentionOptions chunk;
  chunk.chunk = 512;
  for (LevelBackend& level : level_backends(2)) {
    for (const AttentionOptions& options : {window, chunk}) {
      INFO(level.level);
      CHECK(together_as_alone(7, {{8, 2, 16}, KvDType::kF16, 16, options}, *level.backend));
    }
  }
}

TEST_CASE("groups are found of equal blocks, level by level") {
  // Blocks of a partition each; the last one holds the row.
  const Tables tables({{1, 2, 3, 4, 10}, {7, 8, 9, 6, 11}, {1, 2, 3, 5, 12}, {1, 2, 3, 4, 13}, {1, 2, 3, 4}, {7, 14}},
                      256);
  const AttentionBatch batch = tables.batch();
  SharedContext shared;
  shared.find(batch, 256);
  REQUIRE(shared.groups().size() == 1);  // two sequences with one partition more are not worth a level
  const SharedContext::Group& group = shared.groups()[0];
  CHECK(group.first_partition == 0);
  CHECK(group.end_partition == 3);
  auto members = std::vector<std::int32_t>(shared.members(group).begin(), shared.members(group).end());
  std::ranges::sort(members);
  CHECK(members == std::vector<std::int32_t>{0, 2, 3, 4});
  CHECK(shared.num_partitions(0) == 3);
  CHECK(shared.num_partitions(1) == 0);
}

TEST_CASE("32 streams behind the same 4,096 tokens read a sixth of their K and V at most") {
  const LevelBackend counted = counting_backend();
  INFO(counted.level);
  const std::int64_t apart = tokens_read(*counted.backend, false);
  CHECK(apart == 32 * kCountedKvHeads * (4096 + 64));  // each stream its own, and some behind them
  const std::int64_t together = tokens_read(*counted.backend, true);
  CHECK(6 * together <= apart);
}

TEST_CASE("a longer beginning of some is a group of the next level") {
  const Tables tables({{1, 2, 3, 4, 5, 20}, {1, 2, 3, 4, 5, 21}, {1, 2, 3, 4, 5, 22}, {1, 2, 30}, {1, 2, 31}}, 256);
  const AttentionBatch batch = tables.batch();
  SharedContext shared;
  shared.find(batch, 256);
  REQUIRE(shared.groups().size() == 2);
  CHECK(shared.groups()[0].num_members == 5);
  CHECK(shared.groups()[0].end_partition == 2);
  CHECK(shared.groups()[1].num_members == 3);
  CHECK(shared.groups()[1].level == 1);
  CHECK(shared.groups()[1].first_partition == 2);
  CHECK(shared.groups()[1].end_partition == 5);
}

}  // namespace quire::test
