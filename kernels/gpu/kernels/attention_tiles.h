// attend_tiles: paged attention over caches of f16 and bf16 by mma.m16n8k16. A block computes 16 * kTiles query vectors
// (rows of one sequence times heads that share K and V) over one partition of 256 tokens; each of its four warps has 64
// of them and reads their K and V once for all vectors, 32 columns at a time, through a ring of its own.
// Queries and weights are sums of a high and a low float of 16 bits, which are multiplied one after the other; those of
// f16 are first multiplied by powers of two. A score is one chain over the head; 2^(score - the partition's maximum)
// weighs V in one chain over a warp's tokens; sums of the four warps are added in order.
// Invariant: a vector's arithmetic is the same whatever vectors come with it. What a row does not see weighs zero: in a
// tile of rows, values that another row of it sees must be finite.
#pragma once

#include "kernels/gpu/kernels/attention.h"
#include "kernels/gpu/kernels/linear_half.h"
#include "kernels/gpu/kernels/round_rows.h"

namespace quire::gpu {

// kDim: the longest key. Grid: x tiles, y K/V heads times groups of heads_together heads.
template <KvType kType, int kTiles, int kDim>
struct AttendTiles {
  using Args = AttentionArgs;
  static constexpr DType kHalf = kType == KvType::kF16 ? DType::kF16 : DType::kBF16;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = kWarps * kWarpLanes;
  static constexpr int kVectors = 16 * kTiles;
  static constexpr int kKeys = kPartitionTokens / kWarps;  // of a warp
  static constexpr int kKeyTiles = kKeys / 8;
  static constexpr int kSlice = 32;  // columns of K or V
  static constexpr int kSliceBytes = 2 * kSlice;
  static constexpr int kStages = 3;
  static constexpr int kValueTiles = kSlice / 8;
  static constexpr float kWeightScale = kType == KvType::kF16 ? 16384.0f : 1.0f;

  struct Shared {
    std::byte ring[kWarps][kStages][kKeys * kSliceBytes];
    // Queries in slices: [high, low][slice][vector]; then, once there are scores, what warps add up: [warp][tile]
    // [element][lane].
    std::byte queries[2][kDim / kSlice][kVectors][kSliceBytes];
    float maxima[kWarps][kVectors];
    float sums[kWarps][kVectors];
    float factors[kVectors];  // of scores
  };
  static constexpr int kSharedBytes = sizeof(Shared);
  static_assert(sizeof(Shared::queries) >= kWarps * kTiles * kLaneElements * kWarpLanes * sizeof(Words4));

  // Where a warp's tokens lie, sixteen by sixteen.
  struct WarpTokens {
    std::int64_t begin;  // of the context
    bool is_seen;        // some of them
    std::int64_t key_slices;
    std::int64_t value_slices;
    const std::byte* blocks[kKeys / 16];
    std::int64_t inside[kKeys / 16];
  };

  // One query vector, and what its row sees.
  struct Vector {
    std::int64_t row;
    std::int64_t head;
    bool is_used;
  };

  // The token of column `place` of eight scores. So placed, K and V are read without conflicts of banks.
  static QUIRE_DEVICE int key_of(int key_tile, int place) {
    return 8 * key_tile + 4 * (place % 2) + ((place / 2) ^ (place % 2));
  }
  // Sixteen bytes of a key in a stage.
  static QUIRE_DEVICE int chunk_at(int key, int chunk) { return key * kSliceBytes + 16 * (chunk ^ (key & 2)); }

  template <class Thread>
  static QUIRE_DEVICE Vector vector_of(Thread& t, const Args& args, const AttendTile& tile, int number) {
    const auto together = static_cast<int>(args.heads_together);
    const std::int64_t group = args.num_heads / args.num_kv_heads;
    const std::int64_t num_parts = (group + together - 1) / together;
    const std::int64_t in_group = t.block_y() % num_parts * together + number % together;
    return {tile.first_row + number / together, t.block_y() / num_parts * group + in_group,
            number / together < tile.num_rows && in_group < group};
  }

  template <class Thread>
  static QUIRE_DEVICE std::int64_t kv_head_of(Thread& t, const Args& args) {
    const std::int64_t group = args.num_heads / args.num_kv_heads;
    return t.block_y() / ((group + args.heads_together - 1) / args.heads_together);
  }

  template <class Thread>
  static QUIRE_DEVICE float widened(Thread& t, std::uint16_t half) {
    if constexpr (kType == KvType::kF16) return t.half_to_float(half);
    return float_of_bits(static_cast<std::uint32_t>(half) << 16);
  }

  template <class Thread>
  static QUIRE_DEVICE WarpTokens find_tokens(Thread& t, const Args& args, const AttendTile& tile) {
    WarpTokens out;
    out.begin = std::int64_t{tile.partition} * kPartitionTokens + t.warp() * kKeys;
    out.is_seen = out.begin < tile.end && out.begin + kKeys > tile.begin;
    out.key_slices = (args.kv.key_dim + kSlice - 1) / kSlice;
    out.value_slices = (args.value_dim + kSlice - 1) / kSlice;
    QUIRE_UNROLL
    for (int i = 0; i < kKeys / 16; ++i) {
      const auto token = static_cast<std::int32_t>(out.begin + 16 * i);
      const auto block_size = static_cast<std::int32_t>(args.kv.block_size);
      out.inside[i] = token % block_size;
      out.blocks[i] = nullptr;
      if (token < tile.end && token + 16 > tile.begin)
        out.blocks[i] = args.kv.base + args.block_tables[tile.first_block + token / block_size] * args.kv.block_stride;
    }
    return out;
  }

  template <class Thread>
  static QUIRE_DEVICE std::byte* stage_of(Thread& t, Shared& shared, std::int64_t turn) {
    return shared.ring[t.warp()][turn % kStages];
  }

  // A slice of the keys, then of the values; zeros for what lies outside.
  template <class Thread>
  static QUIRE_DEVICE void fetch(Thread& t, const Args& args, const AttendTile& tile, const WarpTokens& tokens,
                                 Shared& shared, std::int64_t turn) {
    const KvLayerView& kv = args.kv;
    const bool is_key = turn < tokens.key_slices;
    const std::int64_t slice = is_key ? turn : turn - tokens.key_slices;
    const bool from_keys = is_key || args.value_in_key;
    const std::int64_t head = kv_head_of(t, args);
    const std::int64_t offset = from_keys ? head * kv.key_bytes : kv.value_offset + head * kv.value_bytes;
    const std::int64_t stride = 2 * (from_keys ? kv.key_dim : kv.value_dim);
    const std::int64_t column = slice * kSlice + t.lane() % 4 * 8;
    const bool is_column = column < (is_key ? kv.key_dim : args.value_dim);
    std::byte* stage = stage_of(t, shared, turn);
    QUIRE_UNROLL
    for (int i = 0; i < kKeys / 8 && slice < (is_key ? tokens.key_slices : tokens.value_slices); ++i) {
      const int key = 8 * i + t.lane() / 4;
      const std::int64_t token = tokens.begin + key;
      std::byte* to = stage + chunk_at(key, t.lane() % 4);
      if (is_column && token >= tile.begin && token < tile.end) {
        const std::int64_t inside = tokens.inside[i / 2] + key % 16;
        t.copy_async(to, tokens.blocks[i / 2] + offset + inside * stride + 2 * column);
      } else {
        *reinterpret_cast<Words4*>(to) = Words4{};
      }
    }
    t.commit_copies();
  }

  template <class Thread>
  static QUIRE_DEVICE float largest_of(Thread& t, const float* query, std::int64_t count) {
    float bound = 0.0f;
    for (std::int64_t d = t.lane(); d < count; d += kWarpLanes) {
      const float magnitude = query[d] < 0.0f ? -query[d] : query[d];
      bound = bound > magnitude ? bound : magnitude;
    }
    for (int distance = 16; distance > 0; distance /= 2) {
      const float other = t.shuffle_xor(bound, distance);
      bound = bound > other ? bound : other;
    }
    return bound;
  }

  // A warp takes every fourth vector; those that there are not are zeros.
  template <class Thread>
  static QUIRE_DEVICE void split_queries(Thread& t, const Args& args, const AttendTile& tile, Shared& shared) {
    const auto dim = static_cast<int>(args.kv.key_dim);
    for (int v = t.warp(); v < kVectors; v += kWarps) {
      const Vector vector = vector_of(t, args, tile, v);
      const float* query = args.q + vector.row * args.q_stride + vector.head * dim;
      HalfScale scale{1.0f, 1.0f};
      if (kType == KvType::kF16 && vector.is_used) scale = half_scale_of(largest_of(t, query, dim));
      if (t.lane() == 0) shared.factors[v] = scale.inverse * (args.scale * kToBase2);
      for (int slice = 0; slice * kSlice < dim; ++slice) {
        const int d = slice * kSlice + t.lane();
        const float value = vector.is_used && d < dim ? query[d] * scale.factor : 0.0f;
        const std::uint16_t high = half_of<kHalf>(t, value);
        auto* to = &shared.queries[0][slice][v][2 * t.lane()];
        *reinterpret_cast<std::uint16_t*>(to) = high;
        *reinterpret_cast<std::uint16_t*>(to + sizeof(shared.queries[0])) = half_of<kHalf>(t, value - widened(t, high));
      }
    }
  }

  // Scores of a slice of the columns, added to what there is.
  template <class Thread>
  static QUIRE_DEVICE void score_slice(Thread& t, const Shared& shared, std::int64_t slice, const std::byte* stage,
                                       float (&scores)[kTiles][kKeyTiles][kLaneElements]) {
    QUIRE_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      LaneWeights parts[2];
      QUIRE_UNROLL
      for (int part = 0; part < 2; ++part) {
        const std::byte* from = shared.queries[part][slice][16 * tile] + 16 * t.lane();  // as far as another row
        parts[part] = {load_as<Words4>(from), load_as<Words4>(from + 8 * kSliceBytes)};
      }
      QUIRE_UNROLL
      for (int k = 0; k < kKeyTiles; ++k) {
        const auto key = load_as<Words4>(stage + chunk_at(key_of(k, t.lane() / 4), t.lane() % 4));
        multiply_block<kHalf>(t, parts[0], key, scores[tile][k]);
        multiply_block<kHalf>(t, parts[1], key, scores[tile][k]);
      }
    }
  }

  // What a lane has of two vectors of a tile: elements 2 * half and 2 * half + 1 of each eight scores.
  struct LaneVector {
    int number;
    std::int64_t head;
    MergeItem row;
    std::int64_t first_token;  // of the warp

    QUIRE_DEVICE std::int64_t token(int lane, int key_tile, int i) const {
      return first_token + key_of(key_tile, 2 * (lane % 4) + i);
    }
    QUIRE_DEVICE bool sees(std::int64_t token) const { return token >= row.begin && token < row.end; }
  };

  template <class Thread>
  static QUIRE_DEVICE LaneVector lane_vector(Thread& t, const Args& args, const AttendTile& tile,
                                             const WarpTokens& tokens, int number) {
    const Vector vector = vector_of(t, args, tile, number);
    LaneVector out{number, vector.head, {}, tokens.begin};
    if (vector.is_used) out.row = args.rows[vector.row];
    return out;
  }

  // Scores as the softmax takes them, and the largest of the warp's.
  template <class Thread>
  static QUIRE_DEVICE void finish_scores(Thread& t, const Args& args, const LaneVector& vector, int half,
                                         Shared& shared, float (&scores)[kKeyTiles][kLaneElements]) {
    const float factor = shared.factors[vector.number];
    float mine = -__builtin_inff();
    QUIRE_UNROLL
    for (int i = 0; i < 2 * kKeyTiles; ++i) {
      float& score = scores[i / 2][2 * half + i % 2];
      const std::int64_t token = vector.token(t.lane(), i / 2, i % 2);
      if (!vector.sees(token)) continue;
      score = capped_score(args, vector.row.position, vector.head, token, score * factor);
      mine = mine > score ? mine : score;
    }
    for (int distance = 1; distance < 4; distance *= 2) {
      const float other = t.shuffle_xor(mine, distance);
      mine = mine > other ? mine : other;
    }
    if (t.lane() % 4 == 0) shared.maxima[t.warp()][vector.number] = mine;
  }

  static QUIRE_DEVICE float maximum_of(const Shared& shared, int vector) {
    float maximum = shared.maxima[0][vector];
    for (int warp = 1; warp < kWarps; ++warp)
      maximum = maximum > shared.maxima[warp][vector] ? maximum : shared.maxima[warp][vector];
    return maximum;
  }

  // Scores become weights, whose sum in the warp is one chain of each lane, then a tree of four.
  template <class Thread>
  static QUIRE_DEVICE void soften(Thread& t, const LaneVector& vector, int half, Shared& shared,
                                  float (&scores)[kKeyTiles][kLaneElements]) {
    const float maximum = maximum_of(shared, vector.number);
    float sum = 0.0f;
    QUIRE_UNROLL
    for (int i = 0; i < 2 * kKeyTiles; ++i) {
      float& score = scores[i / 2][2 * half + i % 2];
      const bool sees = vector.sees(vector.token(t.lane(), i / 2, i % 2));
      score = sees ? exp2_of(score - maximum) : 0.0f;
      sum = sum + score;
    }
    for (int distance = 1; distance < 4; distance *= 2)
      sum = sum + t.shuffle_xor(sum, distance);
    if (t.lane() % 4 == 0) shared.sums[t.warp()][vector.number] = sum;
  }

  // Weights of a tile as operands: pairs of high parts of both vectors, then of low parts, for eight tokens each.
  struct Weights {
    std::uint32_t high[kKeyTiles][2];
    std::uint32_t low[kKeyTiles][2];
  };

  template <class Thread>
  static QUIRE_DEVICE Weights split_weights(Thread& t, const float (&scores)[kKeyTiles][kLaneElements]) {
    Weights out{};
    QUIRE_UNROLL
    for (int i = 0; i < kKeyTiles * kLaneElements; ++i) {
      const int element = i % kLaneElements;
      const float weight = scores[i / kLaneElements][element] * kWeightScale;
      const std::uint16_t high = half_of<kHalf>(t, weight);
      const std::uint16_t low = half_of<kHalf>(t, weight - widened(t, high));
      out.high[i / kLaneElements][element / 2] |= static_cast<std::uint32_t>(high) << (16 * (element % 2));
      out.low[i / kLaneElements][element / 2] |= static_cast<std::uint32_t>(low) << (16 * (element % 2));
    }
    return out;
  }

  struct alignas(8) Words2 {
    std::uint32_t of[2];
  };

  // Four columns of two tokens each, as four operands: of columns lane / 4 * 4 + 0, 1, 2, 3.
  template <class Thread>
  static QUIRE_DEVICE void load_values(Thread& t, const std::byte* stage, int key_tile, std::uint32_t (&out)[4]) {
    Words2 of_tokens[2];
    QUIRE_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int key = key_of(key_tile, 2 * (t.lane() % 4) + i);
      of_tokens[i] = load_as<Words2>(stage + chunk_at(key, t.lane() / 8) + 8 * (t.lane() / 4 % 2));
    }
    QUIRE_UNROLL
    for (int i = 0; i < 4; ++i)
      out[i] = t.byte_permute(of_tokens[0].of[i / 2], of_tokens[1].of[i / 2], i % 2 == 0 ? 0x5410u : 0x7632u);
  }

  // Sums of one tile over the warp's tokens for a slice of the columns.
  template <class Thread>
  static QUIRE_DEVICE void weigh_slice(Thread& t, const Weights& w, const std::byte* stage,
                                       float (&acc)[kValueTiles][kLaneElements]) {
    QUIRE_UNROLL
    for (int k = 0; k < kKeyTiles; k += 2) {
      std::uint32_t first[4];
      std::uint32_t second[4];
      load_values(t, stage, k, first);
      load_values(t, stage, k + 1, second);
      QUIRE_UNROLL
      for (int i = 0; i < kValueTiles; ++i) {
        multiply_halves<kHalf>(t, acc[i], w.high[k][0], w.high[k][1], w.high[k + 1][0], w.high[k + 1][1], first[i],
                               second[i]);
        multiply_halves<kHalf>(t, acc[i], w.low[k][0], w.low[k][1], w.low[k + 1][0], w.low[k + 1][1], first[i],
                               second[i]);
      }
    }
  }

  // Where a vector's results of this partition go; null where its row sees nothing of it.
  template <class Thread>
  static QUIRE_DEVICE float* results_of(Thread& t, const Args& args, const AttendTile& tile, int number) {
    const Vector vector = vector_of(t, args, tile, number);
    if (!vector.is_used) return nullptr;
    const MergeItem row = args.rows[vector.row];
    const std::int32_t item = tile.partition - row.begin / kPartitionTokens;
    if (item < 0 || item >= row.count) return nullptr;
    return partial_of(args, row.first_item + item, vector.head);
  }

  static QUIRE_DEVICE Words4* sums_of(Shared& shared, int warp, int tile, int element, int lane) {
    auto* sums = reinterpret_cast<Words4*>(&shared.queries[0][0][0][0]);
    return sums + ((warp * kTiles + tile) * kLaneElements + element) * kWarpLanes + lane;
  }

  // Adds up a slice of the columns: a warp adds one element of all lanes.
  template <class Thread>
  static QUIRE_DEVICE void add_slice(Thread& t, const Args& args, const AttendTile& tile, Shared& shared,
                                     std::int64_t slice) {
    const int element = t.warp();
    const std::int64_t column = slice * kSlice + 4 * (2 * (t.lane() % 4) + element % 2);
    for (int i = 0; i < kTiles; ++i) {
      float* out = results_of(t, args, tile, 16 * i + t.lane() / 4 + 8 * (element / 2));
      if (out == nullptr || column >= args.value_dim) continue;
      Words4 parts[kWarps];
      QUIRE_UNROLL
      for (int warp = 0; warp < kWarps; ++warp)
        parts[warp] = *sums_of(shared, warp, i, element, t.lane());
      QUIRE_UNROLL
      for (int c = 0; c < 4; ++c) {
        float sum = float_of_bits(parts[0].of[c]);
        for (int warp = 1; warp < kWarps; ++warp)
          sum = sum + float_of_bits(parts[warp].of[c]);
        out[2 + column + c] = sum * (1.0f / kWeightScale);
      }
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void write_softmax(Thread& t, const Args& args, const AttendTile& tile, const Shared& shared) {
    if (t.index() >= kVectors) return;
    float* out = results_of(t, args, tile, t.index());
    if (out == nullptr) return;
    out[0] = maximum_of(shared, t.index());
    float sum = shared.sums[0][t.index()];
    for (int warp = 1; warp < kWarps; ++warp)
      sum = sum + shared.sums[warp][t.index()];
    out[1] = sum;
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    auto& shared = *reinterpret_cast<Shared*>(t.shared());
    const AttendTile tile = args.tiles[t.block_x()];
    const WarpTokens tokens = find_tokens(t, args, tile);
    std::int64_t turn = kStages - 1;  // the next to be fetched
    for (int early = 0; early < kStages - 1 && tokens.is_seen; ++early)
      fetch(t, args, tile, tokens, shared, early);
    split_queries(t, args, tile, shared);
    t.sync_block();
    float scores[kTiles][kKeyTiles][kLaneElements] = {};
    for (std::int64_t slice = 0; slice < tokens.key_slices && tokens.is_seen; ++slice, ++turn) {
      t.template wait_copies<kStages - 2>();
      t.sync_warp();  // all lanes' copies have landed, and all have read the stage that is filled next
      fetch(t, args, tile, tokens, shared, turn);
      score_slice(t, shared, slice, stage_of(t, shared, slice), scores);
    }
    QUIRE_UNROLL
    for (int i = 0; i < 2 * kTiles; ++i)
      finish_scores(t, args, lane_vector(t, args, tile, tokens, 8 * i + t.lane() / 4), i % 2, shared, scores[i / 2]);
    t.sync_block();  // all maxima are known, and nothing reads the queries any more
    Weights weights[kTiles];
    QUIRE_UNROLL
    for (int i = 0; i < 2 * kTiles; ++i) {
      soften(t, lane_vector(t, args, tile, tokens, 8 * i + t.lane() / 4), i % 2, shared, scores[i / 2]);
      if (i % 2 == 1) weights[i / 2] = split_weights(t, scores[i / 2]);
    }
    for (std::int64_t slice = 0; slice < tokens.value_slices; ++slice, ++turn) {
      if (slice > 0) t.sync_block();  // the sums of the slice before have been read
      weigh(t, args, tile, tokens, shared, weights, turn);
      t.sync_block();
      add_slice(t, args, tile, shared, slice);
      if (slice == 0) write_softmax(t, args, tile, shared);
    }
  }

  // The warp's sums for the slice of values that lies two turns behind the next one to be fetched.
  template <class Thread>
  static QUIRE_DEVICE void weigh(Thread& t, const Args& args, const AttendTile& tile, const WarpTokens& tokens,
                                 Shared& shared, const Weights (&weights)[kTiles], std::int64_t turn) {
    if (tokens.is_seen) {
      t.template wait_copies<kStages - 2>();
      t.sync_warp();  // as for keys
      fetch(t, args, tile, tokens, shared, turn);
    }
    const std::byte* stage = stage_of(t, shared, turn - (kStages - 1));
    QUIRE_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      float acc[kValueTiles][kLaneElements] = {};
      if (tokens.is_seen) weigh_slice(t, weights[i], stage, acc);
      QUIRE_UNROLL
      for (int e = 0; e < kLaneElements; ++e) {
        *sums_of(shared, t.warp(), i, e, t.lane()) = Words4{
            {bits_of_float(acc[0][e]), bits_of_float(acc[1][e]), bits_of_float(acc[2][e]), bits_of_float(acc[3][e])}};
      }
    }
  }
};

}  // namespace quire::gpu
