// Routing, recurrent mixers and residual streams.
#include "tests/gpu_check/cases.h"
#include "tests/gpu_check/placed.h"

namespace quire::test {
namespace {

void append(std::vector<float>& out, const std::vector<float>& more) {
  out.insert(out.end(), more.begin(), more.end());
}

// The results show which experts were chosen: each has random weights and biases.
std::vector<float> run_route(Backend& backend, RouteOptions options) {
  constexpr std::int64_t kRows = 5;
  constexpr std::int64_t kExperts = 48;
  constexpr std::int64_t kWidth = 32;
  const Placed logits(backend, kRows, kExperts, 71);
  const Placed bias(backend, 1, kExperts, 72);
  const Placed scales(backend, 1, kExperts, 73);
  options.num_chosen = 4;
  options.choice_bias = bias.view.data;
  options.expert_scale = scales.view.data;
  options.mixer_share = 0.3f;
  std::mt19937 random(74);
  std::vector<std::unique_ptr<Linear>> up;
  std::vector<std::unique_ptr<Linear>> down;
  for (std::int64_t expert = 0; expert < kExperts; ++expert) {
    const Weights first = random_weights(random, DType::kF32, kWidth, kWidth);
    const Weights second = random_weights(random, DType::kQ8_0, kWidth, kWidth);
    const WeightSource sources[] = {first.source(), second.source()};
    up.push_back(backend.load_linear({sources, 1}, random_floats(random, kWidth)));
    down.push_back(backend.load_linear({sources + 1, 1}, random_floats(random, kWidth)));
  }
  const Placed x(backend, kRows, kWidth, 75);
  const Placed made(backend, 4 * kRows, kWidth);
  const Placed results(backend, 4 * kRows, kWidth);
  const Placed out(backend, kRows, kWidth);
  const ExpertChoices choices = backend.graph()->route(logits.view, options);
  backend.graph()->experts({.gate_up = up, .down = down, .gated = false, .activation = {.kind = Nonlinearity::kRelu}},
                           choices, x.view, made.view, results.view, out.view);
  std::vector<float> all = read(backend, out.view);
  // Each choice's input by its weight, then the sums without weights.
  backend.graph()->scale_by_weights(choices, made.view);
  append(all, read(backend, made.view));
  const ExpertChoices single{4 * kRows, 1, choices.ids, nullptr};
  const Placed again(backend, 4 * kRows, kWidth);
  backend.graph()->experts({.gate_up = up, .down = down, .gated = false, .activation = {.kind = Nonlinearity::kRelu}},
                           single, results.view, made.view, again.view, results.view);
  append(all, read(backend, results.view));
  return all;
}

// A sequence that begins, one that continues, and one without rows in between.
struct States {
  explicit States(Backend& backend, std::int64_t floats)
      : storage(backend.recurrent()->allocate_states({.num_states = 3, .floats = floats})) {
    batch.query_start = query_start;
    batch.context_len = context_len;
    batch.state_ids = state_ids;
  }
  StatePart part() const { return {storage.get(), 0}; }
  std::vector<float> read_all() const {
    std::vector<float> out;
    std::vector<std::byte> bytes(storage->state_bytes());
    for (std::int32_t id = 0; id < 3; ++id) {
      storage->read_state(id, bytes);
      const auto* values = reinterpret_cast<const float*>(bytes.data());
      out.insert(out.end(), values, values + storage->layout().floats);
    }
    return out;
  }

  std::unique_ptr<StateStorage> storage;
  std::vector<std::int32_t> query_start = {0, 6, 6, 9};
  std::vector<std::int32_t> context_len = {6, 4, 30};
  std::vector<std::int32_t> state_ids = {2, 1, 0};
  AttentionBatch batch;
};

constexpr std::int64_t kStateRows = 9;

std::vector<float> run_delta(Backend& backend, bool per_channel) {
  constexpr std::int64_t kKeys = 20;
  constexpr std::int64_t kValues = 40;
  constexpr std::int64_t kHeads = 4;
  RecurrentOps& ops = *backend.recurrent();
  const States states(backend, matrix_state_floats(kHeads, kKeys, kValues));
  const Placed q(backend, kStateRows, 2 * kKeys, 81);
  const Placed k(backend, kStateRows, 2 * kKeys, 82);
  const Placed v(backend, kStateRows, kHeads * kValues, 83);
  const Placed decay(backend, kStateRows, per_channel ? kHeads * kKeys : kHeads, 84);
  const Placed beta(backend, kStateRows, kHeads, 85);
  const Placed out(backend, kStateRows, kHeads * kValues);
  const auto a = backend.upload(std::vector<float>{-0.3f, -1.0f, -0.1f, -2.0f});
  const Placed bias(backend, 1, kHeads * kKeys, 86);
  const DeltaArgs args{.key_heads = 2,
                       .value_heads = kHeads,
                       .key_dim = kKeys,
                       .value_dim = kValues,
                       .grouped = per_channel,
                       .per_channel = per_channel,
                       .eps = 1e-3f,
                       .a = a->data(),
                       .dt_bias = bias.view.data};
  for (int step = 0; step < 2; ++step)
    ops.delta_rule(states.batch, states.part(), args, q.view, k.view, v.view, decay.view, beta.view, out.view);
  std::vector<float> all = read(backend, out.view);
  append(all, states.read_all());
  const Placed weight(backend, 1, kValues, 87);
  ops.gated_norm({.sigmoid = per_channel, .group = kValues, .shared_weight = true, .weight = weight.view.data}, v.view,
                 out.view);
  append(all, read(backend, out.view));
  return all;
}

std::vector<float> run_space(Backend& backend) {
  constexpr std::int64_t kSize = 18;
  constexpr std::int64_t kDim = 24;
  const States states(backend, matrix_state_floats(4, kSize, kDim));
  const Placed x(backend, kStateRows, 4 * kDim, 91);
  const Placed b(backend, kStateRows, 2 * kSize, 92);
  const Placed c(backend, kStateRows, 2 * kSize, 93);
  const Placed dt(backend, kStateRows, 4, 94);
  const Placed out(backend, kStateRows, 4 * kDim);
  const auto a = backend.upload(std::vector<float>{-0.3f, -1.0f, -0.1f, -2.0f});
  const Placed numbers(backend, 1, 4, 95);
  const StateSpaceArgs args{.num_heads = 4,
                            .head_dim = kDim,
                            .state_size = kSize,
                            .num_groups = 2,
                            .a = a->data(),
                            .d = numbers.view.data,
                            .dt_bias = numbers.view.data};
  for (int step = 0; step < 2; ++step)
    backend.recurrent()->state_space(states.batch, states.part(), args, x.view, b.view, c.view, dt.view, out.view);
  std::vector<float> all = read(backend, out.view);
  append(all, states.read_all());
  using Order = GatedNormArgs::Order;
  for (const Order order : {Order::kGateThenNorm, Order::kGateOnly})
    backend.recurrent()->gated_norm({.order = order, .group = 48, .weight = x.view.data, .eps = 1e-5f}, x.view,
                                    out.view);
  append(all, read(backend, out.view));
  return all;
}

std::vector<float> run_scan(Backend& backend) {
  constexpr std::int64_t kChannels = 150;
  constexpr std::int64_t kSize = 5;
  const States states(backend, matrix_state_floats(1, kSize, kChannels));
  const Placed x(backend, kStateRows, kChannels, 101);
  const Placed b(backend, kStateRows, kSize, 102);
  const Placed c(backend, kStateRows, kSize, 103);
  const Placed dt(backend, kStateRows, kChannels, 104);
  const Placed out(backend, kStateRows, kChannels);
  const auto a = backend.upload(std::vector<float>(static_cast<std::size_t>(kChannels * kSize), -0.7f));
  const SelectiveScanArgs args{
      .state_size = kSize, .a = a->data(), .d = x.view.data, .dt_bias = x.view.data + kChannels};
  for (int step = 0; step < 2; ++step)
    backend.recurrent()->selective_scan(states.batch, states.part(), args, x.view, b.view, c.view, dt.view, out.view);
  std::vector<float> all = read(backend, out.view);
  append(all, states.read_all());
  return all;
}

std::vector<float> run_conv(Backend& backend) {
  constexpr std::int64_t kChannels = 150;
  const States states(backend, conv_state_floats(kChannels, 4));
  const Placed x(backend, kStateRows, kChannels, 111);
  const Placed before(backend, kStateRows, kChannels, 112);
  const Placed weights(backend, 4, kChannels, 113);
  ConvArgs args{.taps = 4, .weights = weights.view.data, .bias = before.view.data, .silu = true};
  backend.recurrent()->short_conv(states.batch, states.part(), args, x.view, {}, {}, x.view);
  states.storage->copy_state(2, 1);
  args.bias = nullptr;
  args.silu = false;
  backend.recurrent()->short_conv(states.batch, states.part(), args, x.view, before.view, before.view, x.view);
  std::vector<float> all = read(backend, x.view);
  append(all, states.read_all());
  return all;
}

std::vector<float> run_streams(Backend& backend) {
  constexpr std::int64_t kWidth = 300;
  GraphOps& graph = *backend.graph();
  const Placed streams(backend, 3, 4 * kWidth, 121);
  const Placed factors(backend, 3, 16, 122);
  const Placed made(backend, 3, 4 * kWidth);
  const Placed x(backend, 3, kWidth, 123);
  graph.mix_streams(factors.view, streams.view, made.view);
  graph.add_to_streams({factors.view.data, 3, 4, 16}, x.view, made.view);
  graph.match_length(x.view, {made.view.data, 3, kWidth, made.view.stride});
  graph.keep_excess({made.view.data + kWidth, 3, kWidth, made.view.stride}, 0.4f, true);
  graph.keep_excess({made.view.data + 2 * kWidth, 3, kWidth, made.view.stride}, -0.2f, false);
  return read(backend, made.view);
}

}  // namespace

void add_mixer_cases(std::vector<DeviceCase>& out) {
  using Gate = RouteOptions::Gate;
  const auto add_route = [&](const char* name, const RouteOptions& options) {
    out.push_back({name, [options](Backend& backend) { return run_route(backend, options); }});
  };
  add_route("routing by a softmax", {.gate = Gate::kSoftmax, .normalise = true});
  add_route("routing in groups", {.gate = Gate::kSigmoid, .num_groups = 8, .num_groups_chosen = 3, .scale = 2.5f});
  add_route("routing by a softmax of the chosen", {.gate = Gate::kSoftmaxOfChosen});
  add_route("routing by a sparse mixer", {.gate = Gate::kSparseMixer});
  out.push_back({"states of the delta rule", [](Backend& backend) { return run_delta(backend, false); }});
  out.push_back({"states of the delta rule by channel", [](Backend& backend) { return run_delta(backend, true); }});
  out.push_back({"states of a state space", run_space});
  out.push_back({"states of a selective scan", run_scan});
  out.push_back({"states of a convolution", run_conv});
  out.push_back({"residual streams", run_streams});
}

}  // namespace quire::test
