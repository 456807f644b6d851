// Benchmarks of layers beyond llama's: experts, masked attention, recurrent mixers.
#include <fmt/format.h>

#include <numeric>

#include "server/cli/bench/level_bench.h"

namespace quire::bench {

namespace {

constexpr std::int64_t kNumExperts = 128;
constexpr std::int64_t kNumChosen = 8;
constexpr std::int64_t kWidth = 2048;
constexpr std::int64_t kExpertSize = 768;
constexpr std::size_t kChoiceSets = 16;

// Distinct experts for each row.
std::vector<std::int32_t> random_choices(std::int64_t rows, std::mt19937& random) {
  std::vector<std::int32_t> experts(kNumExperts);
  std::iota(experts.begin(), experts.end(), 0);
  std::vector<std::int32_t> out;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::ranges::shuffle(experts, random);
    out.insert(out.end(), experts.begin(), experts.begin() + kNumChosen);
  }
  return out;
}

std::int64_t num_distinct(std::vector<std::int32_t> ids) {
  std::ranges::sort(ids);
  return std::unique(ids.begin(), ids.end()) - ids.begin();
}

}  // namespace

void LevelBench::experts(DType type, std::vector<KernelRow>& out) {
  buffers_.clear();
  std::vector<std::unique_ptr<Linear>> gate_up, down;
  for (std::int64_t i = 0; i < kNumExperts; ++i) {
    gate_up.push_back(load(type, kExpertSize, kWidth, 2));
    down.push_back(load(type, kWidth, kExpertSize, 1));
  }
  const ExpertArgs args{.gate_up = gate_up, .down = down, .gated = true, .activation = {}};
  const std::size_t expert_bytes = 3 * dtype_bytes(type, kExpertSize * kWidth);
  for (const std::int64_t rows : options_.rows) {
    const std::string name(dtype_info(type).name);
    progress_(fmt::format("{} experts {} {} rows", limits_.level, name, rows));
    const std::int64_t choices = rows * kNumChosen;
    std::vector<std::vector<std::int32_t>> sets;
    double distinct = 0;
    for (std::size_t set = 0; set < kChoiceSets; ++set) {
      sets.push_back(random_choices(rows, random_));
      distinct += static_cast<double>(num_distinct(sets.back())) / kChoiceSets;
    }
    const std::vector<float> weights(static_cast<std::size_t>(choices), 0.125f);
    const MatrixView x = matrix(rows, kWidth);
    const MatrixView gates = matrix(choices, 2 * kExpertSize);
    const MatrixView results = matrix(choices, kWidth);
    const MatrixView y = matrix(rows, kWidth);
    const Work work{distinct * static_cast<double>(expert_bytes),
                    6.0 * static_cast<double>(choices * kExpertSize * kWidth), type, kNumExperts * expert_bytes};
    measure(
        row_of("experts", name, fmt::format("{} of {}", kNumChosen, kNumExperts), rows), work,
        [&](std::int64_t call) {
          const auto& ids = sets[static_cast<std::size_t>(call) % kChoiceSets];
          const ExpertChoices taken{rows, kNumChosen, ids.data(), weights.data()};
          backend_->graph()->experts(args, taken, x, gates, results, y);
        },
        out);
  }
}

struct LevelBench::AttentionShape {
  const char* name;
  std::int64_t kv_heads;
  std::int64_t key_dim;
  std::int64_t value_dim;
  AttentionOptions options;
};

// Measures `sequences` of `context` tokens, computing the last `rows` of each.
void LevelBench::masked(const AttentionShape& shape, std::int64_t sequences, std::int64_t rows, std::int64_t context,
                        std::vector<KernelRow>& out) {
  progress_(fmt::format("{} attention {}: {} x {} of {}", limits_.level, shape.name, sequences, rows, context));
  KvLayout layout{.num_layers = 1,
                  .block_size = kBlockSize,
                  .num_kv_heads = shape.kv_heads,
                  .head_dim = shape.key_dim,
                  .dtype = KvDType::kF16,
                  .value_dim = shape.options.value_in_key ? 0 : shape.value_dim};
  const std::int64_t each = (context + kBlockSize - 1) / kBlockSize;
  const auto kv = filled_cache(layout, sequences * each);
  const auto blocks = shuffled_blocks(kv->layout().num_blocks, random_);
  Scene scene;
  for (std::int64_t s = 0; s < sequences; ++s)
    scene.add(rows, context, blocks, static_cast<std::size_t>(s * each));
  const std::int64_t window = shape.options.window;
  double pairs = 0;
  for (std::int64_t row = context - rows; row < context; ++row) {
    const std::int64_t seen = shape.options.causal ? row + 1 : context;
    pairs += static_cast<double>(sequences * (window > 0 ? std::min(seen, window) : seen));
  }
  const std::int64_t tokens = window > 0 ? std::min(context, window + rows) : context;
  const std::int64_t heads = shape.options.num_heads;
  const MatrixView q = matrix(sequences * rows, heads * shape.key_dim);
  const MatrixView y = matrix(sequences * rows, heads * shape.value_dim);
  const std::vector<float> sinks(static_cast<std::size_t>(heads), 1.0f);
  AttentionOptions options = shape.options;
  if (options.sinks != nullptr) options.sinks = sinks.data();
  const Work work{static_cast<double>(sequences * tokens) * kv_token_bytes(*backend_, layout),
                  pairs * 2.0 * static_cast<double>(heads * (shape.key_dim + shape.value_dim)), DType::kF32,
                  std::size_t{16} << 20};
  measure(
      row_of(rows == 1 ? "masked, decode" : "masked, prefill", shape.name, fmt::format("context {}", context),
             sequences * rows),
      work, [&](std::int64_t) { backend_->graph()->attention(*kv, 0, scene.batch(), q, options, y); }, out);
}

void LevelBench::masked_attention(std::vector<KernelRow>& out) {
  const float has_sinks = 0.0f;
  const AttentionShape causal[] = {
      {"gemma3", 4, 256, 256, {.num_heads = 8, .scale = 0.0625f, .window = 1024}},
      {"gpt-oss", 8, 64, 64, {.num_heads = 64, .scale = 0.125f, .window = 128, .sinks = &has_sinks}},
      {"latent", 1, 576, 512, {.num_heads = 16, .scale = 0.1f, .value_in_key = true}}};
  for (const AttentionShape& shape : causal) {
    buffers_.clear();
    for (const std::int64_t context : options_.contexts) {
      for (const std::int64_t sequences : {1, 32})
        masked(shape, sequences, 1, context, out);
      masked(shape, 1, std::min<std::int64_t>(512, context), context, out);
    }
  }
  const AttentionShape encoders[] = {{"minilm", 12, 32, 32, {.num_heads = 12, .scale = 0.17f, .causal = false}},
                                     {"bge-base", 12, 64, 64, {.num_heads = 12, .scale = 0.125f, .causal = false}}};
  for (const AttentionShape& shape : encoders) {
    buffers_.clear();
    masked(shape, 4, 128, 128, out);
    masked(shape, 1, 512, 512, out);
  }
}

struct LevelBench::Mixer {
  const char* name;
  const char* shape;
  std::int64_t widths[5];  // columns of each input, then of the result
  std::int64_t state_floats;
  double operations;  // operations per token
  std::function<void(const AttentionBatch&, const StatePart&, const MatrixView*)> run;
};

void LevelBench::mixer(const Mixer& mixer, std::int64_t sequences, std::int64_t rows, std::vector<KernelRow>& out) {
  progress_(fmt::format("{} {} {}: {} x {}", limits_.level, mixer.name, mixer.shape, sequences, rows));
  const std::int64_t layers = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(kColdBytes / sizeof(float)) / (sequences * mixer.state_floats));
  const auto states = backend_->recurrent()->allocate_states({sequences, layers * mixer.state_floats});
  std::vector<std::int32_t> starts{0}, contexts, ids;
  for (std::int64_t s = 0; s < sequences; ++s) {
    starts.push_back(static_cast<std::int32_t>((s + 1) * rows));
    contexts.push_back(static_cast<std::int32_t>(rows + 1));  // a state exists
    ids.push_back(static_cast<std::int32_t>(s));
  }
  const AttentionBatch batch{starts, contexts, {}, {}, {}, ids};
  MatrixView views[5];
  for (std::size_t i = 0; i < std::size(views); ++i)
    views[i] = matrix(sequences * rows, mixer.widths[i]);
  const auto tokens = static_cast<double>(sequences * rows);
  const Work work{static_cast<double>(2 * sequences * mixer.state_floats) * sizeof(float), tokens * mixer.operations,
                  DType::kF32, kColdBytes};
  measure(
      row_of(mixer.name, "f32", mixer.shape, sequences * rows), work,
      [&](std::int64_t call) {
        mixer.run(batch, {states.get(), call % layers * mixer.state_floats}, views);
      },
      out);
}

void LevelBench::recurrent(std::vector<KernelRow>& out) {
  const std::vector<float> minus(4096, -0.5f);
  const std::vector<float> small(std::size_t{4} * 8192, 0.1f);
  const auto delta = [&](const char* shape, std::int64_t keys, std::int64_t values) {
    const DeltaArgs args{.key_heads = keys,
                         .value_heads = values,
                         .key_dim = 128,
                         .value_dim = 128,
                         .eps = 1e-6f,
                         .a = minus.data(),
                         .dt_bias = small.data()};
    return Mixer{"delta rule",
                 shape,
                 {keys * 256, values * 128, values, values, values * 128},
                 matrix_state_floats(values, 128, 128),
                 7.0 * 128.0 * 128.0 * static_cast<double>(values),
                 [this, args, keys](const AttentionBatch& batch, const StatePart& state, const MatrixView* in) {
                   MatrixView q = in[0];
                   q.cols = keys * 128;
                   MatrixView k = q;
                   k.data += q.cols;
                   backend_->recurrent()->delta_rule(batch, state, args, q, k, in[1], in[2], in[3], in[4]);
                 }};
  };
  const StateSpaceArgs space{.num_heads = 48,
                             .head_dim = 64,
                             .state_size = 128,
                             .num_groups = 1,
                             .a = minus.data(),
                             .d = small.data(),
                             .dt_bias = small.data()};
  const ConvArgs conv{.taps = 4, .weights = small.data(), .silu = true};
  const Mixer mixers[] = {delta("16 of 128", 16, 16),
                          delta("32 of 128", 16, 32),
                          {"state space",
                           "48 of 64x128",
                           {48 * 64, 128, 128, 48, 48 * 64},
                           matrix_state_floats(48, 128, 64),
                           5.0 * 48 * 64 * 128,
                           [&](const AttentionBatch& batch, const StatePart& state, const MatrixView* in) {
                             backend_->recurrent()->state_space(batch, state, space, in[0], in[1], in[2], in[3], in[4]);
                           }},
                          {"short conv",
                           "8192 wide",
                           {8192, 1, 1, 1, 8192},
                           conv_state_floats(8192, 4),
                           2.0 * 4 * 8192,
                           [&](const AttentionBatch& batch, const StatePart& state, const MatrixView* in) {
                             backend_->recurrent()->short_conv(batch, state, conv, in[0], {}, {}, in[4]);
                           }}};
  for (const Mixer& each : mixers) {
    buffers_.clear();
    for (const std::int64_t sequences : {1, 32})
      mixer(each, sequences, 1, out);
    mixer(each, 1, 512, out);
  }
}

}  // namespace quire::bench
