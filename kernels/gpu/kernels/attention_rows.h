// attend: attention by f32 multiply-adds, of one row over one partition, for each K/V head. Four heads that share K and
// V are computed together; a thread has two tokens for the scores, then a column of V. The order of every sum is that
// of the CPU level avx512, so that both give the same bits, except if V lies in K: then a score is one chain over the
// head, and a weighted sum one chain over the tokens.
#pragma once

#include "kernels/gpu/kernels/attention.h"

namespace quire::gpu {

// Elements of a key that are loaded at once.
inline constexpr int kEight = 8;

// Loads from a multiple of sixteen bytes, or of eight for int8.
template <KvType kType, class Thread>
QUIRE_DEVICE void load_eight(Thread& t, const std::byte* from, float (&out)[kEight]) {
  if constexpr (kType == KvType::kI8) {
    const auto words = load_as<Words2>(from);
    QUIRE_UNROLL
    for (int i = 0; i < kEight; ++i)
      out[i] = static_cast<float>(static_cast<std::int8_t>(words.of[i / 4] >> (8 * (i % 4)) & 255u));
  } else if constexpr (kType == KvType::kF32) {
    QUIRE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto words = load_as<Words4>(from + 16 * half);
      QUIRE_UNROLL
      for (int i = 0; i < 4; ++i)
        out[4 * half + i] = float_of_bits(words.of[i]);
    }
  } else {
    const auto words = load_as<Words4>(from);
    QUIRE_UNROLL
    for (int i = 0; i < kEight; ++i) {
      const std::uint32_t bits = words.of[i / 2] >> (16 * (i % 2)) & 0xffffu;
      out[i] = kType == KvType::kF16 ? t.half_to_float(static_cast<std::uint16_t>(bits)) : float_of_bits(bits << 16);
    }
  }
}

// Grid: x items, y K/V heads.
template <KvType kType>
struct Attend {
  using Args = AttentionArgs;
  static constexpr int kThreads = 128;
  static constexpr int kChains = 16;                           // chains of a sum over tokens
  static constexpr int kHeads = 4;                             // heads computed together
  static constexpr int kTokens = kPartitionTokens / kThreads;  // per thread
  static constexpr int kAhead = 8;                             // tokens whose V is loaded at once
  static constexpr int kWarps = kThreads / kWarpLanes;
  static_assert(kHeads == kWarps && kHeads == kFour, "each warp sums a head's scores; a token's are stored at once");
  static constexpr int kBytes = kv_element_bytes(kType);

  struct Shared {
    Four scores[kPartitionTokens];          // scores by head; then weights of V
    std::int64_t values[kPartitionTokens];  // from the cache's base to a token's V
    float maxima[kHeads][kWarps];
  };
  static constexpr int kSharedBytes = sizeof(Shared);

  // Places of a thread's tokens: bytes from the cache's base.
  struct Token {
    int number;  // in the partition
    bool is_seen;
    std::int64_t key;
    std::int64_t key_scale;
    std::int64_t value_scale;
  };

  // A token that the row does not see gets the place of one that it sees.
  template <class Thread>
  static QUIRE_DEVICE Token token_of(Thread& t, const Args& args, const AttendItem& item, Shared& shared, int from,
                                     int count, int number) {
    const KvLayerView& kv = args.kv;
    Token out{};
    out.number = number;
    out.is_seen = number >= from && number < count;
    const int position = item.partition * kPartitionTokens + (out.is_seen ? number : from);
    const auto block_size = static_cast<int>(kv.block_size);
    const int block = position / block_size;
    const int inside = position - block * block_size;
    const std::int64_t keys =
        args.block_tables[item.first_block + block] * kv.block_stride + t.block_y() * kv.key_bytes;
    const std::int64_t values =
        args.value_in_key ? keys : keys + kv.value_offset + t.block_y() * (kv.value_bytes - kv.key_bytes);
    const std::int64_t value_dim = args.value_in_key ? kv.key_dim : kv.value_dim;
    out.key = keys + inside * kv.key_dim * kBytes;
    out.key_scale = keys + kv.block_size * kv.key_dim + inside * 4;
    out.value_scale = values + kv.block_size * value_dim + inside * 4;
    if (out.is_seen) shared.values[number] = values + inside * value_dim * kBytes;
    return out;
  }

  // sums[token][head]: their products with the queries of `num_heads` heads from `query` on.
  template <class Thread>
  static QUIRE_DEVICE void score(Thread& t, const Args& args, const Token (&tokens)[kTokens], const float* query,
                                 int num_heads, float (&sums)[kTokens][kHeads]) {
    const auto dim = static_cast<int>(args.kv.key_dim);
    const std::byte* keys[kTokens];
    bool at_once = dim % kEight == 0;
    QUIRE_UNROLL
    for (int i = 0; i < kTokens; ++i) {
      keys[i] = args.kv.base + tokens[i].key;
      at_once = at_once && reinterpret_cast<std::uintptr_t>(keys[i]) % (kType == KvType::kI8 ? 8 : 16) == 0;
    }
    if (!at_once) {
      for (int d = 0; d < dim; ++d) {
        QUIRE_UNROLL
        for (int head = 0; head < kHeads; ++head) {
          if (head >= num_heads) continue;
          QUIRE_UNROLL
          for (int i = 0; i < kTokens; ++i)
            sums[i][head] = __builtin_fmaf(kv_value<kType>(t, keys[i], d), query[head * dim + d], sums[i][head]);
        }
      }
      return;
    }
    const bool in_fours = lies_in_fours(query, dim);
    for (int d = 0; d < dim; d += kEight) {
      float key[kTokens][kEight];
      QUIRE_UNROLL
      for (int i = 0; i < kTokens; ++i)
        load_eight<kType>(t, keys[i] + d * kBytes, key[i]);
      QUIRE_UNROLL
      for (int head = 0; head < kHeads; ++head) {
        if (head >= num_heads) continue;
        QUIRE_UNROLL
        for (int half = 0; half < 2; ++half) {
          const Four q = load_four(query + head * dim, d + half * kFour, dim, in_fours);
          QUIRE_UNROLL
          for (int e = 0; e < kFour; ++e) {
            QUIRE_UNROLL
            for (int i = 0; i < kTokens; ++i)
              sums[i][head] = __builtin_fmaf(key[i][half * kFour + e], q.of[e], sums[i][head]);
          }
        }
      }
    }
  }

  // Maximum of each head over all threads' tokens.
  template <class Thread>
  static QUIRE_DEVICE Four largest(Thread& t, Shared& shared, const Four& mine) {
    QUIRE_UNROLL
    for (int head = 0; head < kHeads; ++head) {
      const float of_warp = warp_largest(t, mine.of[head]);
      if (t.lane() == 0) shared.maxima[head][t.warp()] = of_warp;
    }
    t.sync_block();
    Four out;
    QUIRE_UNROLL
    for (int head = 0; head < kHeads; ++head) {
      out.of[head] = shared.maxima[head][0];
      QUIRE_UNROLL
      for (int warp = 1; warp < kWarps; ++warp)
        out.of[head] = greatest(out.of[head], shared.maxima[head][warp]);
    }
    return out;
  }

  // Sixteen chains over the tokens, then a tree of them; of one head, by a warp.
  template <class Thread>
  static QUIRE_DEVICE float sum_of_scores(Thread& t, const Shared& shared, int from, int count, int head) {
    float sum = 0.0f;
    for (int i = t.lane(); i < count && t.lane() < kChains; i += kChains) {
      if (i < from) continue;
      const Four scores = shared.scores[i];  // all heads: the scores of one alone share banks
      float score = scores.of[0];
      QUIRE_UNROLL
      for (int h = 1; h < kHeads; ++h)
        score = h == head ? scores.of[h] : score;
      sum = sum + score;
    }
    for (int distance = kChains / 2; distance > 0; distance /= 2)
      sum = sum + t.shuffle_xor(sum, distance);
    return sum;
  }

  // out += kCount tokens' V at column d, from token i on.
  template <int kCount, class Thread>
  static QUIRE_DEVICE void weigh(Thread& t, const Args& args, const Shared& shared, int i, std::int64_t d, Four& out) {
    float values[kCount];
    QUIRE_UNROLL
    for (int j = 0; j < kCount; ++j)
      values[j] = kv_value<kType>(t, args.kv.base + shared.values[i + j], d);
    QUIRE_UNROLL
    for (int j = 0; j < kCount; ++j) {
      const Four weights = shared.scores[i + j];
      QUIRE_UNROLL
      for (int head = 0; head < kHeads; ++head)
        out.of[head] = __builtin_fmaf(weights.of[head], values[j], out.of[head]);
    }
  }

  // Weighs all tokens' V, a column by each thread.
  template <class Thread>
  static QUIRE_DEVICE void weigh_columns(Thread& t, const Args& args, const Shared& shared, int from, int count,
                                         std::int64_t first, int num_heads) {
    for (std::int64_t d = t.index(); d < args.value_dim; d += kThreads) {
      Four weighted{};
      int i = from;
      for (; i + kAhead <= count; i += kAhead)
        weigh<kAhead>(t, args, shared, i, d, weighted);
      for (; i < count; ++i)
        weigh<1>(t, args, shared, i, d, weighted);
      QUIRE_UNROLL
      for (int head = 0; head < kHeads; ++head) {
        if (head < num_heads) partial_of(args, t.block_x(), first + head)[kPartialHead + d] = weighted.of[head];
      }
    }
  }

  // Up to kHeads heads from `first` on. Scores come to where those of the heads before were once all threads are here.
  template <class Thread>
  static QUIRE_DEVICE void attend(Thread& t, const Args& args, const AttendItem& item, Shared& shared,
                                  const Token (&tokens)[kTokens], int from, int count, std::int64_t first,
                                  int num_heads) {
    float sums[kTokens][kHeads] = {};
    score(t, args, tokens, args.q + item.row * args.q_stride + first * args.kv.key_dim, num_heads, sums);
    Four mine;
    for (float& each : mine.of)
      each = -__builtin_inff();
    Four scores[kTokens] = {};
    QUIRE_UNROLL
    for (int i = 0; i < kTokens; ++i) {
      if (!tokens[i].is_seen) continue;
      float factor = args.scale * kToBase2;
      if constexpr (kType == KvType::kI8) factor = factor * load_as<float>(args.kv.base + tokens[i].key_scale);
      const std::int64_t token = item.partition * kPartitionTokens + tokens[i].number;
      QUIRE_UNROLL
      for (int head = 0; head < kHeads; ++head) {
        if (head >= num_heads) continue;
        scores[i].of[head] = capped_score(args, item.position, first + head, token, sums[i][head] * factor);
        mine.of[head] = greatest(mine.of[head], scores[i].of[head]);
      }
    }
    const Four maximum = largest(t, shared, mine);
    QUIRE_UNROLL
    for (int i = 0; i < kTokens; ++i) {
      if (!tokens[i].is_seen) continue;
      QUIRE_UNROLL
      for (int head = 0; head < kHeads; ++head)
        scores[i].of[head] = head < num_heads ? exp2_of(scores[i].of[head] - maximum.of[head]) : 0.0f;
      shared.scores[tokens[i].number] = scores[i];
    }
    t.sync_block();
    if (t.warp() < num_heads) {
      const float sum = sum_of_scores(t, shared, from, count, t.warp());
      float* partial = partial_of(args, t.block_x(), first + t.warp());
      if (t.lane() == 0) partial[1] = sum;
      QUIRE_UNROLL
      for (int head = 0; head < kHeads; ++head) {  // registers have no numbers that are computed
        if (t.lane() == 0 && t.warp() == head) partial[0] = maximum.of[head];
      }
    }
    if constexpr (kType == KvType::kI8) {
      t.sync_block();  // scores have been summed up
      QUIRE_UNROLL
      for (int i = 0; i < kTokens; ++i) {
        if (!tokens[i].is_seen) continue;
        const float scale = load_as<float>(args.kv.base + tokens[i].value_scale);
        QUIRE_UNROLL
        for (int head = 0; head < kHeads; ++head)
          scores[i].of[head] = scores[i].of[head] * scale;
        shared.scores[tokens[i].number] = scores[i];
      }
      t.sync_block();
    }
    weigh_columns(t, args, shared, from, count, first, num_heads);
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    auto& shared = *reinterpret_cast<Shared*>(t.shared());
    const AttendItem item = args.items[t.block_x()];
    const int begin = item.partition * kPartitionTokens;
    const int from = item.begin > begin ? item.begin - begin : 0;
    const int count = item.end - begin < kPartitionTokens ? item.end - begin : kPartitionTokens;
    Token tokens[kTokens];
    QUIRE_UNROLL
    for (int i = 0; i < kTokens; ++i)
      tokens[i] = token_of(t, args, item, shared, from, count, t.index() + i * kThreads);
    const std::int64_t group = args.num_heads / args.num_kv_heads;
    for (std::int64_t first = 0; first < group; first += kHeads) {
      const std::int64_t left = group - first;
      attend(t, args, item, shared, tokens, from, count, t.block_y() * group + first,
             static_cast<int>(left < kHeads ? left : kHeads));
    }
  }
};

}  // namespace quire::gpu
