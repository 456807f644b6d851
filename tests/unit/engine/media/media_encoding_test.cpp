// Slices of the encoder: each is computed in small pieces, and ends early for an arrival.
#include <catch2/catch.hpp>
#include <chrono>

#include "core/engine/engine_parts.h"
#include "core/engine/media_encoding.h"
#include "tests/unit/engine/harness.h"

using namespace quire;
using namespace quire::test;

namespace {

constexpr std::int64_t kEndless = std::int64_t{1} << 62;

// A piece of media whose encoding has no end, and during which a request arrives.
struct Visited final : PreparedMedia {
  struct Run final : EncoderRun {
    explicit Run(const Visited& visited) : media(visited) {}
    std::int64_t work_left() const override { return left; }
    void advance(std::int64_t work, Backend& /*backend*/) override {
      left -= work;
      if (++media.num_pieces == media.arrival) media.interrupt->store(true);
    }
    std::size_t bytes() const override { return 0; }
    std::span<const float> rows() const override { return {}; }

    const Visited& media;
    std::int64_t left = kEndless;
  };

  explicit Visited(std::atomic<bool>& flag) : interrupt(&flag) {}
  std::int64_t num_rows() const override { return 1; }
  std::size_t num_bytes() const override { return 0; }
  std::int64_t row_width() const override { return 1; }
  std::unique_ptr<EncoderRun> start() const override { return std::make_unique<Run>(*this); }

  std::atomic<bool>* interrupt;
  mutable int num_pieces = 0;
  mutable int arrival = 0;  // the piece during which the request arrives; 0: none
};

struct Encoding {
  Encoding()
      : executor(make_executor(
            model, backend,
            backend.allocate_kv({.num_layers = 1, .num_blocks = 16, .block_size = 4, .num_kv_heads = 1, .head_dim = 1}),
            {})),
        encoding(backend, *executor, 1 << 20) {
    kEngineThread.assume();
    encoding.begin({"", {1, 1}}, media);
    encoding.advance({}, interrupt);  // measures the rate
    media.num_pieces = 0;
  }

  FakeBackend backend;
  FakeModel model{64, 1000};
  std::unique_ptr<Executor> executor;
  std::atomic<bool> interrupt{false};
  Visited media{interrupt};
  MediaEncoding encoding;
};

}  // namespace

// The tests end at all because slices of an hour do not take their time.
TEST_CASE("a slice of the encoder ends at the piece during which a request arrives", "[engine][media]") {
  kEngineThread.assume();
  Encoding made;
  made.media.arrival = 3;
  CHECK(made.encoding.advance({.most_s = 3600.0}, made.interrupt) == nullptr);
  CHECK(made.media.num_pieces == 3);
  CHECK(made.encoding.is_encoding());
}

TEST_CASE("a slice without an arrival takes its time, whatever the rate was before", "[engine][media]") {
  kEngineThread.assume();
  Encoding made;
  const Clock::time_point began = Clock::now();
  CHECK(made.encoding.advance({.most_s = 0.05}, made.interrupt) == nullptr);
  CHECK(Clock::now() - began >= std::chrono::milliseconds(40));
}

TEST_CASE("arrivals without a pause leave the encoder its least time", "[engine][media]") {
  kEngineThread.assume();
  Encoding made;
  made.interrupt = true;
  const Clock::time_point began = Clock::now();
  CHECK(made.encoding.advance({.most_s = 3600.0, .least_s = 0.03}, made.interrupt) == nullptr);
  CHECK(Clock::now() - began >= std::chrono::milliseconds(30));
}
