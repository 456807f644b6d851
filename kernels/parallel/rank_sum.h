// RankSum: adds a rank's share of a product to the others', on several devices that compute a model together. The
// rank's own thread only; all ranks call the same functions in the same order.
// Invariant: every rank adds the shares in the order of the ranks, so that all of them hold the same bits, whatever the
// order in which the devices finish.
#pragma once

#include <cstdint>

namespace quire {

struct MatrixView;

inline constexpr int kMostRanks = 8;

class RankSum {
 public:
  virtual ~RankSum() = default;

  // Reserves memory for shares of up to `rows` x `cols`. No work may be enqueued on any rank.
  virtual void reserve(std::int64_t rows, std::int64_t cols) = 0;
  // The dense matrix for this rank's next share; its content is undefined.
  virtual MatrixView share(std::int64_t rows, std::int64_t cols) = 0;
  // Enqueues out = the sum of all ranks' shares, or out += ...; this rank's is what share() returned, enqueued already.
  virtual void add_up(MatrixView share, MatrixView out, bool accumulate) = 0;
  // Enqueues on rank 0 the copies of the other ranks' columns into `all`, after its own, which come first; `part` is
  // this rank's columns, which it must not write again before another sum.
  virtual void gather(MatrixView part, MatrixView all) = 0;
  // Returns rank 0's value; waits for the other ranks' threads.
  virtual bool agree(bool value) = 0;
  // To be called after a failed pass. No work may be enqueued on any rank.
  virtual void restart() = 0;
};

}  // namespace quire
