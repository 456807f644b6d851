// The passes over rows of logits that spread a row over blocks: masks, edits and the greatest logit of each chunk; sums
// of exponentials. Invariant: a chunk's sum is that of core/sampling/softmax.cpp: four lanes, each in the order of its
// terms, added in f64.
#pragma once

#include "kernels/gpu/kernels/portable.h"
#include "kernels/step_ops.h"

namespace quire::gpu {

inline constexpr int kDrawChunk = 256;
inline constexpr float kPlusInfinity = __builtin_inff();
inline constexpr float kDrawFloor = -86.0f;  // logits so far below the greatest weigh nothing in f32
inline constexpr int kNumThresholds = 10;

// Maximum of a chunk or row; id -1 where nothing is above minus infinity.
struct RowMaximum {
  float value;
  std::int32_t id;
};

// A row to draw from or to score, as a device reads it.
struct DrawRow {
  const float* logits = nullptr;
  float* edited = nullptr;  // copy with masks and edits; null: reads the row itself
  const std::uint32_t* masks[2] = {};
  std::int32_t mask_words[2] = {};
  const DrawEdit* edits = nullptr;
  std::int32_t num_edits = 0;
  std::int32_t place = 0;  // place of the result
  std::int32_t token = 0;  // token of a score
  std::int32_t top_k = 0;  // 0: off
  std::int32_t greedy = 0;
  std::int32_t truncates = 0;  // a filter leaves out some tokens
  std::int32_t needs_sums = 0;
  std::int32_t temperature_last = 0;
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  float temperature = 1.0f;
  float scale = 1.0f;  // factor of logits, before the filters
  float top_p = 1.0f;
  float min_p = 0.0f;
  float min_p_floor = kDrawFloor;
  double u = 0.0;

  QUIRE_DEVICE float filter_temperature() const { return temperature_last != 0 ? 1.0f : temperature; }
  // Minus infinity behind the end.
  QUIRE_DEVICE float value_at(std::int64_t vocab, std::int64_t i) const {
    const float* const from = edited != nullptr ? edited : logits;
    return i < vocab ? from[i] : -kPlusInfinity;
  }
};

struct DrawArgs {
  const DrawRow* rows = nullptr;
  std::int64_t vocab = 0;
  std::int64_t num_chunks = 0;
  // Arrays of the rows, one behind the other.
  RowMaximum* maxima = nullptr;    // [num_chunks]
  double* sums = nullptr;          // [num_chunks]
  std::int32_t* counts = nullptr;  // [num_chunks]
  std::uint64_t* keys = nullptr;   // [vocab]
  float* weights = nullptr;        // [vocab]
  TokenDrawn* drawn = nullptr;     // indexed by place
  TokenScored* scored = nullptr;
};

// e^x for x <= 0 and 0 below -87, as core/sampling's exp_nonpositive: no multiplication is fused.
QUIRE_DEVICE float sampling_exp(float x) {
  const bool in_range = x >= -87.0f;
  const float clamped = in_range ? x : -87.0f;
  const float shifted = clamped * 1.44269504f + 12582912.0f;
  const float power = shifted - 12582912.0f;
  const float r = (clamped - power * 0.693359375f) - power * -2.12194440e-4f;
  float series = 1.9875691500e-4f;
  series = series * r + 1.3981999507e-3f;
  series = series * r + 8.3334519073e-3f;
  series = series * r + 4.1665795894e-2f;
  series = series * r + 1.6666665459e-1f;
  series = series * r + 5.0000001201e-1f;
  series = series * r * r + r + 1.0f;
  const std::uint32_t exponent = (bits_of_float(shifted) + 127u - bits_of_float(12582912.0f)) << 23;
  return in_range ? series * float_of_bits(exponent) : 0.0f;
}

// Ascending keys are descending logits (at most 0), then ascending ids.
QUIRE_DEVICE std::uint64_t candidate_key(float logit, std::int32_t id) {
  const std::uint32_t distance = bits_of_float(logit) & 0x7fffffffu;
  return (static_cast<std::uint64_t>(distance) << 32) | static_cast<std::uint32_t>(id);
}
QUIRE_DEVICE float key_distance(std::uint64_t key) {
  return float_of_bits(static_cast<std::uint32_t>(key >> 32));
}

// Threshold below the greatest logit; it falls with each step until the candidates suffice.
QUIRE_DEVICE float draw_threshold(int step) {
  if (step < 6) return -3.0f * static_cast<float>(step + 1);
  return step == 6 ? -22.0f : step == 7 ? -28.0f : step == 8 ? -40.0f : kDrawFloor;
}

QUIRE_DEVICE RowMaximum greater(RowMaximum a, RowMaximum b) {
  if (b.id < 0) return a;
  if (a.id < 0) return b;
  return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
}

template <class Thread>
QUIRE_DEVICE RowMaximum greatest_of_lanes(Thread& t, RowMaximum mine, int num_lanes) {
  for (int distance = num_lanes / 2; distance > 0; distance /= 2) {
    const RowMaximum other{t.shuffle_xor(mine.value, distance), t.shuffle_xor(mine.id, distance)};
    mine = greater(mine, other);
  }
  return mine;
}

// Maximum of a row, by all threads of a block and for all of them. room: one for each warp.
template <int kThreads, class Thread>
QUIRE_DEVICE RowMaximum row_maximum(Thread& t, const RowMaximum* maxima, std::int64_t num_chunks, RowMaximum* room) {
  RowMaximum best{-kPlusInfinity, -1};
  for (std::int64_t i = t.index(); i < num_chunks; i += kThreads)
    best = greater(best, maxima[i]);
  best = greatest_of_lanes(t, best, kWarpLanes);
  if (t.lane() == 0) room[t.warp()] = best;
  t.sync_block();
  best = room[0];
  for (int warp = 1; warp < kThreads / kWarpLanes; ++warp)
    best = greater(best, room[warp]);
  return best;
}

// Eight chunks a block, a row of the grid for each row.
struct DrawRows {
  using Args = DrawArgs;
  static constexpr int kThreads = 128;
  static constexpr int kChunks = 8;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE bool allows(const DrawRow& row, std::int64_t i) {
    for (int mask = 0; mask < 2; ++mask) {
      if (row.masks[mask] == nullptr) continue;
      const std::int64_t word = i / 32;
      const std::uint32_t bits = word < row.mask_words[mask] ? row.masks[mask][word] : 0u;
      if (((bits >> (i % 32)) & 1u) == 0u) return false;
    }
    return true;
  }

  static QUIRE_DEVICE float change(const DrawRow& row, const DrawEdit& edit, float logit) {
    if (edit.kind == DrawEdit::Kind::kBan) return -kPlusInfinity;
    if (edit.kind == DrawEdit::Kind::kAdd) return logit + edit.value;
    if (row.repetition_penalty != 1.0f)
      logit = logit > 0.0f ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    if (edit.count == 0) return logit;
    logit = logit - row.frequency_penalty * static_cast<float>(edit.count);
    return logit - row.presence_penalty;
  }

  // The first of the row's edits of a token from `token` on.
  static QUIRE_DEVICE std::int32_t first_edit(const DrawRow& row, std::int64_t token) {
    std::int32_t begin = 0;
    std::int32_t end = row.num_edits;
    while (begin < end) {
      const std::int32_t middle = (begin + end) / 2;
      if (row.edits[middle].token < token) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }

  // Edits of one token are made by one thread.
  template <class Thread>
  static QUIRE_DEVICE void edit(Thread& t, const DrawRow& row, std::int64_t begin, std::int64_t end) {
    const std::int32_t first = first_edit(row, begin);
    const std::int32_t last = first_edit(row, end);
    for (std::int32_t i = first + t.index(); i < last; i += kThreads) {
      const std::int32_t token = row.edits[i].token;
      if (i > first && row.edits[i - 1].token == token) continue;
      float logit = row.edited[token];
      for (std::int32_t j = i; j < last && row.edits[j].token == token; ++j)
        logit = change(row, row.edits[j], logit);
      row.edited[token] = logit;
    }
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const DrawRow& row = args.rows[t.block_y()];
    const std::int64_t begin = t.block_x() * kChunks * kDrawChunk;
    const std::int64_t behind = begin + kChunks * kDrawChunk;
    const std::int64_t end = behind < args.vocab ? behind : args.vocab;
    if (row.edited != nullptr) {
      for (std::int64_t i = begin + t.index(); i < end; i += kThreads)
        row.edited[i] = allows(row, i) ? row.logits[i] : -kPlusInfinity;
      t.sync_block();
      edit(t, row, begin, end);
      t.sync_block();
    }
    constexpr int kLanes = kThreads / kChunks;
    const std::int64_t chunk = t.block_x() * kChunks + t.index() / kLanes;
    RowMaximum best{-kPlusInfinity, -1};
    for (std::int64_t i = chunk * kDrawChunk + t.index() % kLanes; i < (chunk + 1) * kDrawChunk; i += kLanes) {
      const float value = row.value_at(args.vocab, i);
      if (value > best.value) best = {value, static_cast<std::int32_t>(i)};
    }
    best = greatest_of_lanes(t, best, kLanes);
    if (chunk < args.num_chunks && t.index() % kLanes == 0) args.maxima[t.block_y() * args.num_chunks + chunk] = best;
  }
};

// Four lanes a chunk, a row of the grid for each row.
struct DrawSums {
  using Args = DrawArgs;
  static constexpr int kThreads = 128;
  static constexpr int kChunks = 32;
  static constexpr int kSharedBytes = kThreads / kWarpLanes * sizeof(RowMaximum);

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const DrawRow& row = args.rows[t.block_y()];
    if (row.needs_sums == 0) return;  // the whole block
    const std::int64_t first = t.block_y() * args.num_chunks;
    const RowMaximum maximum =
        row_maximum<kThreads>(t, args.maxima + first, args.num_chunks, reinterpret_cast<RowMaximum*>(t.shared()));
    const std::int64_t chunk = t.block_x() * kChunks + t.index() / 4;
    float sum = 0.0f;
    for (std::int64_t i = chunk * kDrawChunk + t.index() % 4; i < (chunk + 1) * kDrawChunk; i += 4)
      sum = sum + sampling_exp((row.value_at(args.vocab, i) - maximum.value) * row.scale);
    const float sum1 = t.shuffle_xor(sum, 1);
    const float sum2 = t.shuffle_xor(sum, 2);
    const float sum3 = t.shuffle_xor(sum, 3);
    if (t.index() % 4 != 0 || chunk >= args.num_chunks) return;
    args.sums[first + chunk] = (static_cast<double>(sum) + static_cast<double>(sum1)) +
                               (static_cast<double>(sum2) + static_cast<double>(sum3));
  }
};

}  // namespace quire::gpu
