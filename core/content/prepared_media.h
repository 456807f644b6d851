// PreparedMedia: a piece of media in its encoder's input format. EncoderRun: a piece on its way through the encoder, a
// slice of work at a time. Prepared media are immutable, any thread; a run belongs to the engine thread. Invariant:
// slicing and the number of threads do not change a bit of the rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace quire {

class Backend;

class EncoderRun {
 public:
  virtual ~EncoderRun() = default;
  virtual std::int64_t work_left() const = 0;  // multiply-adds; 0: it is done
  bool is_done() const { return work_left() == 0; }
  // Computes about `work` more, at least one unit.
  virtual void advance(std::int64_t work, Backend& backend) = 0;
  virtual std::size_t bytes() const = 0;            // activations and rows
  virtual std::span<const float> rows() const = 0;  // [num_rows, row_width], valid once it is done
};

class PreparedMedia {
 public:
  virtual ~PreparedMedia() = default;
  virtual std::int64_t num_rows() const = 0;
  virtual std::size_t num_bytes() const = 0;   // memory of the prepared piece
  virtual std::int64_t row_width() const = 0;  // floats: the hidden size, for the input and for each level
  virtual std::unique_ptr<EncoderRun> start() const = 0;
};

}  // namespace quire
