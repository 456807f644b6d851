// Two steps in flight on the emulated GPU: the waits of each, and that leaving a wait out is found.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "kernels/emulated/emulated_device.h"
#include "kernels/gpu/gpu_backend.h"
#include "kernels/step_ops.h"
#include "tests/kernels/random_data.h"

namespace quire::test {
namespace {

using gpu::EmulatedDevice;
using gpu::EmulatedDeviceOptions;

constexpr std::int64_t kTokens = 48;

// Steps that embed tokens and draw each token that follows from the row of the table: greedily, so that every step's
// ids are the tokens of the step before.
class Chain {
 public:
  explicit Chain(const EmulatedDeviceOptions& options)
      : device_(new EmulatedDevice(options)),
        backend_(gpu::make_gpu_backend(std::unique_ptr<gpu::Device>(device_), {.name = "cuda-emulated"})) {
    std::mt19937 random(9);
    table_ = random_weights(random, DType::kF32, kTokens, kTokens);
    embedding_ = backend_->load_embedding(table_.source());
    for (auto& logits : logits_)
      logits = backend_->allocate(3 * kTokens);
    steps_ = backend_->steps();
    steps_->reserve(8, 8, kTokens);
  }
  // Enqueued work still uses the arrays.
  ~Chain() {
    try {
      backend_->synchronize();
    } catch (const gpu::DeviceError&) {
    }
  }

  // Begins a step on these ids, from whose rows it draws. Its result can be waited for.
  std::int64_t begin(const std::vector<std::int32_t>& ids) {
    const std::int64_t step = steps_->begin();
    const auto rows = std::ssize(ids);
    const MatrixView logits{logits_[static_cast<std::size_t>(step % 2)]->data(), rows, kTokens, kTokens};
    backend_->embed(*embedding_, ids, logits);
    std::vector<TokenDraw> draws;
    for (std::int64_t row = 0; row < rows; ++row)
      draws.push_back({.logit_row = row, .place = row, .greedy = true});
    steps_->draw(logits, rows, draws, {});
    steps_->end();
    return step;
  }
  std::vector<std::int32_t> wait(std::int64_t step) {
    steps_->wait(step);
    std::vector<std::int32_t> out;
    for (const TokenDrawn& drawn : steps_->drawn(step))
      out.push_back(drawn.status == TokenDrawn::Status::kDrawn ? drawn.token : -1);
    return out;
  }
  bool is_idle() const { return device_->is_idle(); }

 private:
  EmulatedDevice* device_;
  std::unique_ptr<Backend> backend_;
  Weights table_;
  std::unique_ptr<Embedding> embedding_;
  std::unique_ptr<Buffer> logits_[2];
  StepOps* steps_ = nullptr;
};

const std::vector<std::int32_t> kFirst = {5, 11, 40};
const std::vector<std::int32_t> kDrawnBefore = {-1, -3, -2};  // places of the step before

// The tokens of five steps, each begun before the previous one is waited for.
std::vector<std::vector<std::int32_t>> two_in_flight(const EmulatedDeviceOptions& options) {
  Chain chain(options);
  std::vector<std::vector<std::int32_t>> out;
  std::int64_t before = chain.begin(kFirst);
  for (int i = 0; i < 5; ++i) {
    const std::int64_t next = chain.begin(kDrawnBefore);
    out.push_back(chain.wait(before));
    before = next;
  }
  out.push_back(chain.wait(before));
  return out;
}

std::vector<std::vector<std::int32_t>> one_at_a_time() {
  Chain chain({.immediate = true});
  std::vector<std::vector<std::int32_t>> out;
  std::vector<std::int32_t> ids = kFirst;
  for (int i = 0; i < 6; ++i) {
    out.push_back(chain.wait(chain.begin(ids)));
    const std::vector<std::int32_t>& drawn = out.back();
    ids = {drawn[0], drawn[2], drawn[1]};
  }
  return out;
}

// The tokens of the last two of three steps, all begun before one is waited for.
std::vector<std::vector<std::int32_t>> three_at_once(const EmulatedDeviceOptions& options) {
  Chain chain(options);
  chain.begin({1, 2, 3});
  const std::int64_t second = chain.begin(kDrawnBefore);
  const std::int64_t third = chain.begin({7, 8, 9});
  return {chain.wait(second), chain.wait(third)};
}

// Blocks or states that move. number(n): a transfer of the n-th of them.
struct Movable {
  std::size_t bytes;
  std::function<void(std::int32_t, std::span<const std::byte>)> write;
  std::function<void(std::int32_t, std::int32_t)> copy;
  std::function<BlockTransfer(std::int32_t)> number;
  std::int32_t first_read;              // read by the first step; equals 3 after `before`
  std::vector<BlockTransfer> before{};  // moves of the first step before that
};

BlockTransfer read_to(BlockTransfer transfer, std::span<std::byte> out) {
  transfer.out = out;
  return transfer;
}

// Two steps that move: the bytes that the first reads before it writes, and those that the second reads of two copies,
// one made after the first's moves and one after none.
std::vector<std::vector<std::byte>> moved(Backend& backend, const Movable& what) {
  const std::vector<std::byte> old(what.bytes, std::byte{1});
  std::vector<std::byte> fresh(what.bytes, std::byte{2});
  what.write(0, old);
  std::vector<std::vector<std::byte>> out(3, std::vector<std::byte>(what.bytes));
  StepOps& steps = *backend.steps();
  const std::int64_t first = steps.begin();
  what.copy(0, 3);
  std::vector<BlockTransfer> moves = what.before;
  moves.push_back(read_to(what.number(what.first_read), out[0]));
  moves.push_back(what.number(3));
  moves.back().in = fresh;
  steps.move_blocks(moves);
  std::ranges::fill(fresh, std::byte{9});  // its bytes were read already
  what.copy(3, 1);
  steps.end();
  const std::int64_t second = steps.begin();
  const BlockTransfer reads[] = {read_to(what.number(1), out[1]), read_to(what.number(0), out[2])};
  steps.move_blocks(reads);
  what.copy(3, 0);
  steps.end();
  steps.wait(first);
  CHECK(steps.transfer_times(first).read_s == steps.transfer_times(first).write_s);
  steps.wait(second);
  CHECK(steps.transfer_times(second).write_s == 0.0);
  backend.synchronize();
  return out;
}

std::unique_ptr<Backend> backend_that_moves(const EmulatedDeviceOptions& options) {
  return gpu::make_gpu_backend(std::make_unique<EmulatedDevice>(options), {.name = "cuda-emulated"});
}

std::vector<std::vector<std::byte>> moved_blocks(const EmulatedDeviceOptions& options) {
  const auto backend = backend_that_moves(options);
  const auto kv = backend->allocate_kv({.num_layers = 2, .num_blocks = 4, .num_kv_heads = 1, .head_dim = 16});
  return moved(*backend, {.bytes = kv->block_bytes(),
                          .write = [&](auto number, auto bytes) { kv->write_block(number, bytes); },
                          .copy = [&](auto from, auto to) { kv->copy_block(from, to); },
                          .number = [&](auto number) { return BlockTransfer{.storage = kv.get(), .number = number}; },
                          .first_read = 3});
}

// The first step reads a state into which another one was copied before.
std::vector<std::vector<std::byte>> moved_states(const EmulatedDeviceOptions& options) {
  const auto backend = backend_that_moves(options);
  const auto states = backend->recurrent()->allocate_states({.num_states = 4, .floats = 512});
  return moved(*backend,
               {.bytes = states->state_bytes(),
                .write = [&](auto number, auto bytes) { states->write_state(number, bytes); },
                .copy = [&](auto from, auto to) { states->copy_state(from, to); },
                .number = [&](auto number) { return BlockTransfer{.states = states.get(), .number = number}; },
                .first_read = 2,
                .before = {{.states = states.get(), .number = 2, .source = 3}}});
}

// Right on every device, and wrong on some if it does not wait.
template <class Moved>
void check_order_of_moves(const Moved& moved) {
  const std::vector<std::byte> old(moved({}).at(0).size(), std::byte{1});
  const std::vector<std::byte> fresh(old.size(), std::byte{2});
  const std::vector<std::vector<std::byte>> right = {old, fresh, old};
  bool is_found = false;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    CHECK(moved({.seed = seed}) == right);
    is_found = is_found || moved({.seed = seed, .ignore_waits = true}) != right;
  }
  CHECK(is_found);
}

}  // namespace

TEST_CASE("a step computes with the tokens that the step before it draws, which the host does not know yet") {
  const auto right = one_at_a_time();
  for (std::uint64_t seed = 0; seed < 6; ++seed)
    CHECK(two_in_flight({.seed = seed}) == right);
}

TEST_CASE("a step is waited for alone: what was enqueued behind it is still to be done") {
  Chain chain({});
  const std::int64_t first = chain.begin(kFirst);
  const std::int64_t second = chain.begin(kDrawnBefore);
  chain.wait(first);
  CHECK_FALSE(chain.is_idle());
  chain.wait(second);
  CHECK(chain.is_idle());
}

TEST_CASE("each wait for a step is found where it is left out") {
  const auto right = two_in_flight({});
  // The first two steps wait for nothing when they begin: each further one waits once, and is waited for.
  const int num_waits = 2 + 4 + 6;
  const int first_wait = 1;  // wait 0 is that of loading
  int num_needed = 0;
  for (int number = first_wait; number < first_wait + num_waits; ++number)
    num_needed += two_in_flight({.ignored_wait = number}) != right ? 1 : 0;
  CHECK(num_needed == 6);  // a result that is read too early
  // Memory of arrays reused too early: the third step's ids overwrite the first one's.
  CHECK(three_at_once({.ignored_wait = first_wait + 2}) != three_at_once({}));
}

TEST_CASE(
    "blocks move behind what was enqueued before them and before what follows, and a wait that is left out is found") {
  check_order_of_moves(moved_blocks);
}

TEST_CASE("recurrent states move as blocks do, and one becomes another between them") {
  check_order_of_moves(moved_states);
}

TEST_CASE("what a device reports surfaces where a step is waited for, and at every step after it") {
  Chain chain({.failing_launch = 8});
  std::int64_t before = chain.begin(kFirst);
  int num_right = 0;
  bool has_failed = false;
  for (int i = 0; i < 4 && !has_failed; ++i) {
    try {
      const std::int64_t next = chain.begin(kDrawnBefore);
      chain.wait(before);
      ++num_right;
      before = next;
    } catch (const gpu::DeviceError&) {
      has_failed = true;
    }
  }
  CHECK(has_failed);
  CHECK(num_right > 0);
  CHECK_THROWS_AS(chain.wait(before), gpu::DeviceError);
}

}  // namespace quire::test
