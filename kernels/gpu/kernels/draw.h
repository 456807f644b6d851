// Drawing of tokens from rows of logits: the passes over a vocabulary that core/sampling makes on the host, in chunks
// of 256 tokens. draw_rows and draw_sums spread a row over blocks, draw_pick and score_pick take one block a row.
// Invariant: the order of every sum, and what wins a tie, is the host Sampler's.
#pragma once

#include "kernels/gpu/kernels/draw_chunks.h"

namespace quire::gpu {

inline constexpr int kPickThreads = 256;
static_assert(kPickThreads == kDrawChunk);

// Results of one thread that all threads of a block read.
struct PickShared {
  RowMaximum warps[kPickThreads / kWarpLanes];
  float terms[kDrawChunk];
  std::int32_t count;
  std::int32_t chunk;
};

// A row's candidates in their order, for one block. Sums are of thread 0.
template <class Thread>
class Candidates {
 public:
  static constexpr int kThreads = kPickThreads;

  QUIRE_DEVICE Candidates(Thread& t, const DrawArgs& args, const DrawRow& row, std::int64_t number)
      : t_(t), args_(args), row_(row), shared_(reinterpret_cast<PickShared*>(t.shared())) {
    keys_ = args.keys + number * args.vocab;
    weights_ = args.weights + number * args.vocab;
    counts_ = args.counts + number * args.num_chunks;
    maxima_ = args.maxima + number * args.num_chunks;
    sums_ = args.sums + number * args.num_chunks;
  }

  QUIRE_DEVICE RowMaximum find_maximum() {
    return row_maximum<kThreads>(t_, maxima_, args_.num_chunks, shared_->warps);
  }
  // Sum of all exponentials.
  QUIRE_DEVICE double total() const {
    double sum = 0.0;
    for (std::int64_t i = 0; i < args_.num_chunks; ++i)
      sum += sums_[i];
    return sum;
  }

  // Counts the tokens with a logit of at least `threshold`; write_above() then makes them the candidates, ascending by
  // id, with weights if requested.
  QUIRE_DEVICE std::int32_t count_above(float threshold);
  QUIRE_DEVICE void write_above(float maximum, float threshold, float scale, bool with_weights);
  QUIRE_DEVICE void sort(std::int32_t count);
  // Weights of the first candidates: of what their logits exceed `best` by, over the temperature.
  QUIRE_DEVICE void weigh(std::int32_t count, float best, float temperature) {
    for (std::int32_t i = t_.index(); i < count; i += kThreads)
      weights_[i] = sampling_exp((logit(i) - best) / temperature);
    t_.sync_block();
  }
  // Adds the weights in the order of the candidates.
  QUIRE_DEVICE double total_weight(std::int32_t count) const {
    double sum = 0.0;
    for (std::int32_t i = 0; i < count; ++i)
      sum += static_cast<double>(weights_[i]);
    return sum;
  }
  // The value of thread 0, for all threads.
  template <class T>
  QUIRE_DEVICE T publish(T& place, T value) {
    if (t_.index() == 0) place = value;
    t_.sync_block();
    const T out = place;
    t_.sync_block();
    return out;
  }

  QUIRE_DEVICE float logit(std::int32_t i) const { return 0.0f - key_distance(keys_[i]); }
  QUIRE_DEVICE std::int32_t id(std::int32_t i) const { return static_cast<std::int32_t>(keys_[i] & 0xffffffffu); }
  QUIRE_DEVICE float weight(std::int32_t i) const { return weights_[i]; }
  QUIRE_DEVICE double chunk_sum(std::int64_t i) const { return sums_[i]; }
  QUIRE_DEVICE PickShared& shared() { return *shared_; }

 private:
  Thread& t_;
  const DrawArgs& args_;
  const DrawRow& row_;
  PickShared* shared_;
  std::uint64_t* keys_;
  float* weights_;
  std::int32_t* counts_;
  const RowMaximum* maxima_;
  const double* sums_;
};

// Finds the beginning of each chunk's candidates.
template <class Thread>
QUIRE_DEVICE std::int32_t Candidates<Thread>::count_above(float threshold) {
  constexpr int kEach = kDrawChunk / kWarpLanes;
  for (std::int64_t chunk = t_.warp(); chunk < args_.num_chunks; chunk += kThreads / kWarpLanes) {
    std::int32_t count = 0;
    if (maxima_[chunk].value >= threshold) {
      for (int i = 0; i < kEach; ++i)
        count += row_.value_at(args_.vocab, chunk * kDrawChunk + t_.lane() * kEach + i) >= threshold ? 1 : 0;
    }
    for (int distance = kWarpLanes / 2; distance > 0; distance /= 2)
      count += t_.shuffle_xor(count, distance);
    if (t_.lane() == 0) counts_[chunk] = count;
  }
  t_.sync_block();
  std::int32_t begin = 0;
  if (t_.index() == 0) {
    for (std::int64_t chunk = 0; chunk < args_.num_chunks; ++chunk) {
      const std::int32_t count = counts_[chunk];
      counts_[chunk] = begin;
      begin += count;
    }
  }
  return publish(shared_->count, begin);
}

// To be called after count_above() with the same threshold.
template <class Thread>
QUIRE_DEVICE void Candidates<Thread>::write_above(float maximum, float threshold, float scale, bool with_weights) {
  constexpr int kEach = kDrawChunk / kWarpLanes;
  for (std::int64_t chunk = t_.warp(); chunk < args_.num_chunks; chunk += kThreads / kWarpLanes) {
    if (!(maxima_[chunk].value >= threshold)) continue;  // the whole warp
    const std::int64_t first = chunk * kDrawChunk + t_.lane() * kEach;
    std::int32_t mine = 0;
    for (int i = 0; i < kEach; ++i)
      mine += row_.value_at(args_.vocab, first + i) >= threshold ? 1 : 0;
    std::int32_t before = 0;
    std::int32_t group = mine;
    for (int distance = 1; distance < kWarpLanes; distance *= 2) {
      const std::int32_t other = t_.shuffle_xor(group, distance);
      before += (t_.lane() & distance) != 0 ? other : 0;
      group += other;
    }
    std::int32_t at = counts_[chunk] + before;
    for (int i = 0; i < kEach; ++i) {
      const float value = row_.value_at(args_.vocab, first + i);
      if (!(value >= threshold)) continue;
      const float relative = (value - maximum) * scale;
      keys_[at] = candidate_key(relative, static_cast<std::int32_t>(first + i));
      if (with_weights) weights_[at] = sampling_exp(relative);
      ++at;
    }
  }
  t_.sync_block();
}

// Best first: by logit, then by id. A bitonic network whose exchanges all put the lesser key first, so that what would
// lie behind the end stays there.
template <class Thread>
QUIRE_DEVICE void Candidates<Thread>::sort(std::int32_t count) {
  const auto exchange = [&](std::int32_t i, std::int32_t j) {
    if (j >= count) return;
    const std::uint64_t a = keys_[i];
    const std::uint64_t b = keys_[j];
    if (a <= b) return;
    keys_[i] = b;
    keys_[j] = a;
  };
  int levels = 0;
  while ((std::int32_t{1} << levels) < count)
    ++levels;
  const std::int32_t num_pairs = levels == 0 ? 0 : std::int32_t{1} << (levels - 1);
  for (int level = 1; level <= levels; ++level) {
    const std::int32_t half = std::int32_t{1} << (level - 1);
    for (std::int32_t pair = t_.index(); pair < num_pairs; pair += kThreads) {
      const std::int32_t begin = (pair >> (level - 1)) << level;
      const std::int32_t offset = pair & (half - 1);
      exchange(begin + offset, begin + 2 * half - 1 - offset);
    }
    t_.sync_block();
    for (int below = level - 2; below >= 0; --below) {
      for (std::int32_t pair = t_.index(); pair < num_pairs; pair += kThreads) {
        const std::int32_t distance = std::int32_t{1} << below;
        const std::int32_t i = ((pair >> below) << (below + 1)) + (pair & (distance - 1));
        exchange(i, i + distance);
      }
      t_.sync_block();
    }
  }
}

// A block computes a row of `rows`.
struct DrawPick {
  using Args = DrawArgs;
  static constexpr int kThreads = kPickThreads;
  static constexpr int kSharedBytes = sizeof(PickShared);

  // The first token at which the running sum of exponentials exceeds the share u.
  template <class Thread>
  static QUIRE_DEVICE std::int32_t by_share(Thread& t, Candidates<Thread>& all, const DrawArgs& args,
                                            const DrawRow& row, RowMaximum maximum) {
    auto& shared = all.shared();
    double sum = 0.0;
    double target = 0.0;
    std::int32_t chunk = 0;
    if (t.index() == 0) {
      target = row.u * all.total();
      while (chunk + 1 < args.num_chunks && sum + all.chunk_sum(chunk) <= target)
        sum += all.chunk_sum(chunk++);
    }
    chunk = all.publish(shared.chunk, chunk);
    const std::int64_t mine = static_cast<std::int64_t>(chunk) * kDrawChunk + t.index();
    shared.terms[t.index()] = sampling_exp((row.value_at(args.vocab, mine) - maximum.value) * row.scale);
    t.sync_block();
    std::int32_t last = -1;
    for (int i = 0; t.index() == 0 && i < kDrawChunk; ++i) {
      if (shared.terms[i] <= 0.0f) continue;
      last = chunk * kDrawChunk + i;
      sum += static_cast<double>(shared.terms[i]);
      if (sum > target) break;
    }
    return last;
  }

  // Gathers the tokens left after top_k, or after top_p if that comes first, best first; returns their number.
  template <class Thread>
  static QUIRE_DEVICE std::int32_t collect(Thread& t, Candidates<Thread>& all, const DrawRow& row, float maximum) {
    const float temperature = row.filter_temperature();
    const bool by_count = row.top_k > 0;
    const bool by_mass = !by_count && row.top_p < 1.0f;
    double mass = 0.0;
    if (by_mass && t.index() == 0) mass = static_cast<double>(row.top_p) * all.total();
    std::int32_t count = 0;
    for (int step = 0; step < kNumThresholds; ++step) {
      const float listed = draw_threshold(step);
      const bool once = !by_count && !by_mass;
      const float threshold = once ? row.min_p_floor : listed;
      count = all.count_above(maximum + threshold * temperature);
      const bool is_last = once || threshold <= kDrawFloor;
      if (by_count && count < row.top_k && !is_last) continue;
      all.write_above(maximum, maximum + threshold * temperature, row.scale, by_mass);
      if (is_last || by_count) break;
      const bool suffices = t.index() == 0 && all.total_weight(count) >= mass;
      if (all.publish(all.shared().chunk, suffices ? 1 : 0) != 0) break;
    }
    all.sort(count);
    if (by_count && row.top_k < count) count = row.top_k;
    all.weigh(count, 0.0f, 1.0f);
    if (by_mass) count = all.publish(all.shared().count, t.index() == 0 ? cut_top_p(all, count, mass) : 0);
    return count;
  }

  // Number of first candidates, at least one, whose weights reach `mass`.
  template <class Thread>
  static QUIRE_DEVICE std::int32_t cut_top_p(const Candidates<Thread>& all, std::int32_t count, double mass) {
    double sum = 0.0;
    std::int32_t kept = 0;
    while (kept < count && (kept == 0 || sum < mass))
      sum += static_cast<double>(all.weight(kept++));
    return kept;
  }

  template <class Thread>
  static QUIRE_DEVICE std::int32_t cut_further(const Candidates<Thread>& all, const DrawRow& row, std::int32_t count) {
    if (row.top_k > 0 && row.top_p < 1.0f)
      count = cut_top_p(all, count, static_cast<double>(row.top_p) * all.total_weight(count));
    if (row.min_p > 0.0f) {
      const float least = row.min_p * all.weight(0);
      std::int32_t kept = 1;
      while (kept < count && all.weight(kept) >= least)
        ++kept;
      count = kept;
    }
    return count;
  }

  template <class Thread>
  static QUIRE_DEVICE std::int32_t by_candidates(Thread& t, Candidates<Thread>& all, const DrawRow& row,
                                                 RowMaximum maximum) {
    std::int32_t count = collect(t, all, row, maximum.value);
    count = all.publish(all.shared().count, t.index() == 0 ? cut_further(all, row, count) : 0);
    if (row.temperature_last) all.weigh(count, all.logit(0), row.temperature);
    if (t.index() != 0) return 0;
    const double target = row.u * all.total_weight(count);
    double sum = 0.0;
    for (std::int32_t i = 0; i < count; ++i) {
      sum += static_cast<double>(all.weight(i));
      if (sum > target) return all.id(i);
    }
    return all.id(count - 1);
  }

  // Returns whether any logit is NaN.
  template <class Thread>
  static QUIRE_DEVICE bool has_no_number(Thread& t, Candidates<Thread>& all, const DrawArgs& args, const DrawRow& row) {
    bool found = false;
    for (std::int64_t i = t.index(); i < args.vocab; i += kThreads)
      found = found || row.value_at(args.vocab, i) != row.value_at(args.vocab, i);
    auto& shared = all.shared();
    shared.terms[t.index()] = found ? 1.0f : 0.0f;
    t.sync_block();
    for (int i = 0; i < kThreads; ++i)
      found = found || shared.terms[i] > 0.0f;
    return found;
  }

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const DrawRow& row = args.rows[t.block_x()];
    Candidates<Thread> all(t, args, row, t.block_x());
    const RowMaximum maximum = all.find_maximum();
    TokenDrawn out{maximum.id, TokenDrawn::Status::kDrawn};
    if (maximum.id < 0) {
      const bool no_number = has_no_number(t, all, args, row);
      out = {0, no_number ? TokenDrawn::Status::kNoNumbers : TokenDrawn::Status::kNone};
    } else if (row.greedy == 0 && maximum.value < kPlusInfinity) {
      const std::int32_t id =
          row.truncates != 0 ? by_candidates(t, all, row, maximum) : by_share(t, all, args, row, maximum);
      if (id >= 0) out.token = id;
    }
    if (t.index() == 0) args.drawn[row.place] = out;
  }
};

// A block computes a row of `rows`.
struct ScorePick {
  using Args = DrawArgs;
  static constexpr int kThreads = kPickThreads;
  static constexpr int kSharedBytes = sizeof(PickShared);

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const DrawRow& row = args.rows[t.block_x()];
    Candidates<Thread> all(t, args, row, t.block_x());
    const RowMaximum maximum = all.find_maximum();
    TokenScored& out = args.scored[row.place];
    std::int32_t count = 0;
    if (row.top_k > 0 && maximum.id >= 0) count = DrawPick::collect(t, all, row, maximum.value);
    for (std::int32_t i = t.index(); i < count; i += kThreads)
      out.top[i] = {all.id(i), row.value_at(args.vocab, all.id(i)) - maximum.value};
    if (t.index() != 0) return;
    const std::int32_t token = row.token >= 0 ? row.token : args.drawn[-1 - row.token].token;
    out.sum = all.total();
    out.logit = row.value_at(args.vocab, token) - maximum.value;
    out.num_top = count;
  }
};

struct FillTokensArgs {
  const std::int32_t* ids = nullptr;  // below zero: what was drawn for place -id - 1
  const TokenDrawn* drawn = nullptr;
  std::int64_t count = 0;
  std::int64_t limit = 0;  // ids outside [0, limit) become 0
  std::int32_t* out = nullptr;
};

// A thread writes a token.
struct FillTokens {
  using Args = FillTokensArgs;
  static constexpr int kThreads = 128;
  static constexpr int kSharedBytes = 0;

  template <class Thread>
  static QUIRE_DEVICE void run(Thread& t, const Args& args) {
    const std::int64_t i = t.block_x() * kThreads + t.index();
    if (i >= args.count) return;
    const std::int32_t id = args.ids[i];
    const std::int32_t token = id >= 0 ? id : args.drawn[-1 - id].token;
    args.out[i] = token >= 0 && token < args.limit ? token : 0;
  }
};

}  // namespace quire::gpu
