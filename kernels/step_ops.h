// StepOps: steps in flight on a device, and the tokens that it draws itself. Engine thread only.
// The work enqueued between begin() and end() is one step. Arrays and results of a step lie in memory that is not used
// again before the step is done; there is such memory for two steps. Errors of the device surface as DeviceError.
// Invariant: a token that is drawn here is the host's Sampler's, to the bit; it depends on its own row, edits and
// parameters alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace quire {

class StateStorage;

struct MatrixView;
class KvStorage;

// A change of one logit before a token is drawn. A row's edits ascend by token; those of one token are made in order.
struct DrawEdit {
  enum class Kind : std::int32_t {
    kBan,       // minus infinity
    kAdd,       // + value
    kPenalise,  // applies the row's penalties to a token generated `count` times
  };
  std::int32_t token = 0;
  Kind kind = Kind::kBan;
  float value = 0.0f;
  std::int32_t count = 0;
};

// Drawing of a token from a row of logits, in this order: masks, edits, then the greatest logit or a random one of
// those that pass the filters.
struct TokenDraw {
  std::int64_t logit_row = 0;
  std::int64_t place = 0;                  // index of the token in the step
  std::span<const std::uint32_t> mask{};   // bit (id % 32) of word id / 32: may be drawn; empty: all
  std::span<const std::uint32_t> mask2{};  // a second mask of the same form
  std::span<const DrawEdit> edits{};
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  bool greedy = false;
  float temperature = 1.0f;
  bool temperature_last = false;  // the filters judge logits as they are
  std::int32_t top_k = 0;         // 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float min_p_log = 0.0f;  // min_p alone: logits further below the greatest are left out at once
  double u = 0.0;          // uniform in [0, 1)
};

// A token whose logprob is wanted, with the likeliest `num_top`.
struct TokenScore {
  static constexpr std::int32_t kMostTop = 20;

  std::int64_t logit_row = 0;
  std::int32_t token = 0;    // -1 - place: the one drawn there in this step
  std::int32_t num_top = 0;  // at most kMostTop
};

// The result of a draw.
struct TokenDrawn {
  enum class Status : std::int32_t {
    kNone,       // no token is allowed
    kNoNumbers,  // every allowed logit is NaN
    kDrawn,
  };
  std::int32_t token = 0;  // 0 where none was drawn
  Status status = Status::kNone;
};

// Logits relative to the row's greatest one; a token's logprob is that less the logarithm of `sum`.
struct TokenScored {
  struct Top {
    std::int32_t token;
    float logit;
  };
  double sum = 0.0;  // sum of the exponentials of all logits
  float logit = 0.0f;
  std::int32_t num_top = 0;
  Top top[TokenScore::kMostTop] = {};
};

// A block or a recurrent state that moves between its storage and the host, or a state that another becomes.
struct BlockTransfer {
  KvStorage* storage = nullptr;     // set for a block
  StateStorage* states = nullptr;   // set for a state
  std::int32_t number = 0;          // id of the block or state
  std::span<std::byte> out{};       // destination of a read; empty: it is written
  std::span<const std::byte> in{};  // source of a write; empty too: copies the state `source`
  std::int32_t source = 0;
};

// Durations of a step's transfers.
struct TransferTimes {
  double read_s = 0.0;
  double write_s = 0.0;
};

// A device's own memory, whatever uses it.
struct DeviceMemoryUse {
  std::uint64_t total = 0;  // 0: it has none of its own
  std::uint64_t used = 0;
};

class StepOps {
 public:
  static constexpr std::int64_t kInFlight = 2;

  virtual ~StepOps() = default;
  // Reserves memory to draw and score so many tokens in a step, from rows of `vocab_size`.
  virtual void reserve(std::int64_t max_draws, std::int64_t max_scores, std::int64_t vocab_size) = 0;
  // Begins the next step and returns its number. Waits for the step before the last, whose
  // memory it takes over.
  virtual std::int64_t begin() = 0;
  // Says that later steps are likely to repeat the work enqueued from here to launch().
  virtual void expect_repetition() = 0;
  // Blocks and states are moved in this order, behind what was enqueued before and before what follows. Bytes to be
  // written are read at once, those to be read are in `out` by the end of wait(). Once in a step.
  virtual void move_blocks(std::span<const BlockTransfer> transfers) = 0;
  // Lets the device begin with the enqueued work. Called once, after the forward pass.
  virtual void launch() = 0;
  // Draws and scores, once in a step; the logits are those of its own forward pass. num_places: number of its tokens,
  // including those that the host draws.
  virtual void draw(MatrixView logits, std::int64_t num_places, std::span<const TokenDraw> draws,
                    std::span<const TokenScore> scores) = 0;
  // The token at `place` of the step, which the host has drawn: after draw().
  virtual void put_drawn(std::int64_t place, std::int32_t token) = 0;
  // Waits for the step's enqueued work; the step must be the last one.
  virtual void wait_enqueued() = 0;
  virtual void end() = 0;
  // Waits for a step that has ended, one of the last two, and for nothing that follows it.
  virtual void wait(std::int64_t step) = 0;
  // Results of a finished step: drawn tokens by place, scored ones in the order of the scores.
  virtual std::span<const TokenDrawn> drawn(std::int64_t step) const = 0;
  virtual std::span<const TokenScored> scored(std::int64_t step) const = 0;
  virtual TransferTimes transfer_times(std::int64_t step) const = 0;
  virtual DeviceMemoryUse memory() const = 0;
};

}  // namespace quire
