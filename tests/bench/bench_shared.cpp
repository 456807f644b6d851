// Gain of reading a shared context once: bench_shared MODEL [STREAMS] [TOKENS]. One decode step of STREAMS sequences
// after the same TOKENS tokens, and after as many of their own, in turns: attention alone, then the whole step. The
// model's heads are assumed to fill its hidden size.
#include <cmath>

#include "tests/bench/engine_bench.h"

namespace {

using namespace quire;
using namespace quire::bench;

constexpr std::int64_t kBlock = 16;
constexpr std::int64_t kOwnBlocks = 4;
constexpr int kTurns = 7;

// A row of each sequence after its blocks; the shared ones are blocks 0, 1, 2, ...
class DecodeStep {
 public:
  DecodeStep(std::int64_t streams, std::int64_t tokens, bool shares) {
    const std::int64_t shared = tokens / kBlock;
    const std::int64_t each = shared + kOwnBlocks;
    for (std::int64_t s = 0; s < streams; ++s) {
      for (std::int64_t i = 0; i < each; ++i)
        tables_.push_back(static_cast<std::int32_t>(shares && i < shared ? i : s * each + i));
      table_start_.push_back(static_cast<std::int32_t>(tables_.size()));
      contexts_.push_back(static_cast<std::int32_t>(each * kBlock));
      positions_.push_back(contexts_.back() - 1);
      slots_.push_back(tables_.back() * static_cast<std::int32_t>(kBlock) + static_cast<std::int32_t>(kBlock) - 1);
      starts_.push_back(static_cast<std::int32_t>(s) + 1);
      ids_.push_back(static_cast<std::int32_t>(s) + 1);
      rows_.push_back(static_cast<std::int32_t>(s));
    }
  }
  AttentionBatch batch() const { return {starts_, contexts_, table_start_, tables_, slots_}; }
  StepArrays arrays() const {
    StepArrays out;
    out.token_ids = ids_;
    out.positions = positions_;
    out.attention = batch();
    out.logit_rows = rows_;
    return out;
  }

 private:
  std::vector<std::int32_t> starts_{0}, contexts_, table_start_{0}, tables_, slots_, ids_, positions_, rows_;
};

struct Times {
  std::vector<double> apart;
  std::vector<double> together;

  void report(const char* what) const {
    const double slow = percentile(apart, 50);
    const double fast = percentile(together, 50);
    std::printf("%s: apart %.2f ms, together %.2f ms, x %.2f (%.3f of the time)\n", what, 1e3 * slow, 1e3 * fast,
                slow / fast, fast / slow);
  }
};

template <class Body>
double timed(const Body& body) {
  const auto began = Clock::now();
  body();
  return seconds_between(began, Clock::now());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "bench_shared MODEL [STREAMS] [TOKENS]\n");
    return 2;
  }
  kEngineThread.assume();
  const std::int64_t streams = argc > 2 ? std::atoll(argv[2]) : 32;
  const std::int64_t tokens = argc > 3 ? std::atoll(argv[3]) / kBlock * kBlock : 4096;
  BenchModel model(argv[1]);
  KvLayout layout = model.model->kv_layout();
  layout.block_size = kBlock;
  layout.num_blocks = streams * (tokens / kBlock + kOwnBlocks);
  const auto kv = model.backend->allocate_kv(layout);
  const std::vector<std::byte> content(kv->block_bytes(), std::byte{0x3c});  // a normal number in every type
  for (std::int32_t block = 0; block < layout.num_blocks; ++block)
    kv->write_block(block, content);
  model.model->reserve(streams, streams);
  const DecodeStep apart(streams, tokens, false);
  const DecodeStep together(streams, tokens, true);
  const std::int64_t width = model.model->hidden_size();
  const auto memory = model.backend->allocate(2 * streams * width);
  for (std::int64_t i = 0; i < streams * width; ++i)
    memory->data()[i] = static_cast<float>(i % 7) * 0.1F;
  const MatrixView q{memory->data(), streams, width, width};
  const MatrixView out{memory->data() + streams * width, streams, width, width};
  const std::int64_t head_dim = layout.shape(0).key_dim;
  const auto attend = [&](const DecodeStep& step) {
    for (std::int64_t layer = 0; layer < layout.num_layers; ++layer)
      model.backend->attention(*kv, layer, step.batch(), q, width / head_dim,
                               1.0F / std::sqrt(static_cast<float>(head_dim)), out);
  };
  Times attention;
  Times whole;
  for (int turn = 0; turn < kTurns; ++turn) {
    attention.apart.push_back(timed([&] { attend(apart); }));
    attention.together.push_back(timed([&] { attend(together); }));
    whole.apart.push_back(timed([&] { model.model->forward(apart.arrays(), *kv); }));
    whole.together.push_back(timed([&] { model.model->forward(together.arrays(), *kv); }));
  }
  std::printf("%lld streams behind %lld tokens\n", static_cast<long long>(streams), static_cast<long long>(tokens));
  attention.report("attention");
  whole.report("whole step");
  return 0;
}
