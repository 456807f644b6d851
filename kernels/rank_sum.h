// RankSum: how one of several devices that compute a model together (a rank) adds its share of a product to the
// others'. The rank's own thread alone; all ranks call the same functions in the same order.
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

  // For shares of up to `rows` x `cols`. Nothing may be enqueued on any rank.
  virtual void reserve(std::int64_t rows, std::int64_t cols) = 0;
  // The dense matrix for this rank's next share; its content is undefined.
  virtual MatrixView share(std::int64_t rows, std::int64_t cols) = 0;
  // Enqueues out = the sum of all ranks' shares, or out += ...; this rank's is what share() returned, enqueued already.
  virtual void add_up(MatrixView share, MatrixView out, bool accumulate) = 0;
  // On rank 0 enqueues what puts the other ranks' columns behind its own in `all`, whose first they are; `part` is this
  // rank's columns, which it does not write again before another sum.
  virtual void gather(MatrixView part, MatrixView all) = 0;
  // Returns rank 0's value; waits for the other ranks' threads.
  virtual bool agree(bool value) = 0;
  // After a pass that failed. Nothing may be enqueued on any rank.
  virtual void restart() = 0;
};

}  // namespace quire
