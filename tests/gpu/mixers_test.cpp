// Experts, recurrent mixers and adapters on the emulated GPU: waits, barriers, and other threads.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <thread>

#include "kernels/emulated/emulated_device.h"
#include "kernels/gpu/gpu_backend.h"
#include "tests/gpu_check/placed.h"

namespace quire::test {
namespace {

using gpu::EmulatedDeviceOptions;
using gpu::Mutation;

std::unique_ptr<Backend> gpu_with(const EmulatedDeviceOptions& options) {
  return gpu::make_gpu_backend(std::make_unique<gpu::EmulatedDevice>(options), {.name = "cuda-emulated"});
}

constexpr std::int64_t kExpertRows = 9;
constexpr std::int64_t kExpertWidth = 64;

struct SmallExperts {
  explicit SmallExperts(Backend& backend)
      : logits(backend, kExpertRows, 6, 1),
        x(backend, kExpertRows, kExpertWidth, 2),
        made(backend, 2 * kExpertRows, 2 * kExpertWidth),
        results(backend, 2 * kExpertRows, kExpertWidth) {
    std::mt19937 random(3);
    for (int expert = 0; expert < 6; ++expert) {
      const Weights both = random_weights(random, DType::kQ8_0, 2 * kExpertWidth, kExpertWidth);
      const Weights low = random_weights(random, DType::kF32, kExpertWidth, kExpertWidth);
      const WeightSource sources[] = {both.source(), low.source()};
      gate_up.push_back(backend.load_linear({sources, 1}, {}));
      down.push_back(backend.load_linear({sources + 1, 1}, {}));
    }
  }
  void run(Backend& backend, MatrixView out) const {
    const ExpertChoices choices = backend.graph()->route(logits.view, {.num_chosen = 2});
    backend.graph()->experts({.gate_up = gate_up, .down = down, .activation = {}}, choices, x.view, made.view,
                             results.view, out);
  }

  std::vector<std::unique_ptr<Linear>> gate_up, down;
  Placed logits, x, made, results;
};

// Returns whether a kernel without one of its barriers gives other results in some order.
bool is_needed(Mutation::Kind kind, int number, const std::function<std::vector<float>(Backend&)>& run) {
  const std::vector<float> right = run(*gpu_with({}));
  for (const std::uint64_t seed : {0U, 1U, 2U, 3U, 4U, 5U}) {
    if (run(*gpu_with({.seed = seed, .mutation = {kind, number}})) != right) return true;
  }
  return false;
}

std::vector<float> grouped_choices(Backend& backend) {
  const Placed logits(backend, 4, 64, 5);
  const ExpertChoices choices = backend.graph()->route(
      logits.view, {.gate = RouteOptions::Gate::kSigmoid, .num_chosen = 4, .num_groups = 16, .num_groups_chosen = 5});
  return read(backend, {const_cast<float*>(choices.weights), 4, 4, 4});
}

std::vector<float> advanced(Backend& backend) {
  const Placed x(backend, 6, 64, 6);
  const Placed numbers(backend, 6, 2, 7);
  const Placed out(backend, 6, 64);
  const auto a = backend.upload(std::vector<float>{-0.5f, -1.0f});
  const auto states = backend.recurrent()->allocate_states({.num_states = 1, .floats = matrix_state_floats(2, 32, 32)});
  const std::vector<std::int32_t> starts = {0, 6};
  const std::vector<std::int32_t> six = {6};
  const std::vector<std::int32_t> zero = {0};
  AttentionBatch batch;
  batch.query_start = starts;
  batch.context_len = six;
  batch.state_ids = zero;
  const DeltaArgs args{.key_heads = 2,
                       .value_heads = 2,
                       .key_dim = 32,
                       .value_dim = 32,
                       .eps = 1e-6f,
                       .a = a->data(),
                       .dt_bias = numbers.view.data};
  backend.recurrent()->delta_rule(batch, {states.get(), 0}, args, x.view, x.view, x.view, numbers.view, numbers.view,
                                  out.view);
  return read(backend, out.view);
}

std::vector<float> normed_and_gated(Backend& backend) {
  const Placed x(backend, 2, 512, 8);
  const Placed gate(backend, 2, 512, 9);
  backend.recurrent()->gated_norm({.group = 512, .weight = gate.view.data, .eps = 1e-5f}, gate.view, x.view);
  return read(backend, x.view);
}

std::vector<float> excess(Backend& backend) {
  const Placed x(backend, 2, 512, 10);
  backend.graph()->keep_excess(x.view, 0.2f, true);
  return read(backend, x.view);
}

std::vector<float> matched(Backend& backend) {
  const Placed x(backend, 2, 512, 11);
  const Placed like(backend, 2, 512, 12);
  backend.graph()->match_length(like.view, x.view);
  return read(backend, x.view);
}

}  // namespace

TEST_CASE("experts are routed, grouped and multiplied without waiting for the device") {
  for (const std::uint64_t seed : {0U, 3U}) {
    const auto backend = gpu_with({.seed = seed});
    const SmallExperts experts(*backend);
    const auto first = backend->allocate(kExpertRows * kExpertWidth);
    experts.run(*backend,
                {first->data(), kExpertRows, kExpertWidth, kExpertWidth});  // lets memory grow to a step's needs
    backend->synchronize();
    const auto second = backend->allocate(kExpertRows * kExpertWidth);
    experts.run(*backend, {second->data(), kExpertRows, kExpertWidth, kExpertWidth});
    CHECK(std::isnan(second->data()[0]));  // poison: nothing has run
    backend->synchronize();
    CHECK(std::equal(first->data(), first->data() + kExpertRows * kExpertWidth, second->data()));
  }
}

TEST_CASE("each barrier of routing, recurrent mixers and streams is found where it is left out") {
  CHECK(is_needed(Mutation::Kind::kSkipWarpBarrier, 0, grouped_choices));
  for (int barrier = 0; barrier < 3; ++barrier)
    CHECK(is_needed(Mutation::Kind::kSkipBlockBarrier, barrier, advanced));
  CHECK(is_needed(Mutation::Kind::kSkipBlockBarrier, 0, normed_and_gated));
  for (int barrier = 0; barrier < 2; ++barrier) {
    CHECK(is_needed(Mutation::Kind::kSkipBlockBarrier, barrier, excess));
    CHECK(is_needed(Mutation::Kind::kSkipBlockBarrier, barrier, matched));
  }
}

TEST_CASE("a matrix is loaded and given up on another thread while operations run") {
  std::mt19937 random(13);
  const Weights weights = random_weights(random, DType::kQ8_0, 48, 64);
  const WeightSource source = weights.source();
  auto backend = gpu_with({.seed = 1});
  const Placed x(*backend, 5, 64, 14);
  const Placed out(*backend, 5, 48);
  const auto product = [&](const Linear& linear) {
    backend->linear(linear, x.view, out.view, false);
    return read(*backend, out.view);
  };
  const auto own = backend->load_linear({&source, 1}, {});
  const std::vector<float> right = product(*own);
  std::thread other([&] {
    for (int i = 0; i < 40; ++i)
      backend->load_linear_beside(source);
  });
  int num_right = 0;
  for (int i = 0; i < 40; ++i)
    num_right += product(*own) == right ? 1 : 0;
  other.join();
  CHECK(num_right == 40);
  // The matrix is released while enqueued work still uses it.
  auto beside = backend->load_linear_beside(source);
  backend->linear(*beside, x.view, out.view, false);
  beside.reset();
  CHECK(read(*backend, out.view) == right);
}

TEST_CASE("a matrix that was loaded beside steps may outlive its backend") {
  std::mt19937 random(15);
  const Weights weights = random_weights(random, DType::kF32, 8, 32);
  auto backend = gpu_with({});
  const auto beside = backend->load_linear_beside(weights.source());
  backend.reset();
  CHECK(beside->bytes() == 8 * 32 * 4);
}

}  // namespace quire::test
