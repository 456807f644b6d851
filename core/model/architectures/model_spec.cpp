#include "core/model/architectures/model_spec.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/base/result.h"
#include "core/model/formats/tensor_table.h"

namespace quire {

namespace {

class SpecChecker {
 public:
  explicit SpecChecker(const std::string& where) : where_(where) {}

  void require(bool condition, const std::string& what) const {
    if (!condition) throw StartupError(fmt::format("{}: {}", where_, what));
  }
  void in_range(const char* name, std::int64_t value, std::int64_t low, std::int64_t high) const {
    require(value >= low && value <= high, fmt::format("{} is {}, not between {} and {}", name, value, low, high));
  }

 private:
  const std::string& where_;
};

void check_attention(const AttentionSpec& attention, std::int64_t layer, const SpecChecker& check) {
  check.in_range("the number of heads", attention.num_heads, 1, 1 << 14);
  check.in_range("the number of key-value heads", attention.num_kv_heads, 1, attention.num_heads);
  check.require(attention.num_heads % attention.num_kv_heads == 0,
                fmt::format("{} heads cannot share {} key-value heads", attention.num_heads, attention.num_kv_heads));
  for (const std::int64_t dim : {attention.key_dim, attention.value_dim}) {
    check.in_range("the head dimension", dim, 1, 1 << 12);
  }
  check.in_range("the attention window", attention.window, 0, std::int64_t{1} << 40);
  check.in_range("the attention chunk", attention.chunk, 0, std::int64_t{1} << 40);
  check.require(attention.kv_source < layer, "a layer shares K and V of a later one");
  check.require(attention.temperature == 0.0 || attention.temperature_length >= 1.0,
                "the attention temperature's length is below 1");
  check.require(!attention.fused_qkv ||
                    (attention.kv_source < 0 && !attention.value_is_key && attention.gate != OutputGate::kInQuery),
                "the fused projection does not fit the architecture");
}

void check_latent(const LatentSpec& latent, std::int64_t num_heads, const SpecChecker& check) {
  check.in_range("the number of heads", num_heads, 1, 1 << 14);
  check.in_range("the query rank", latent.query_rank, 0, 1 << 20);
  check.in_range("the latent rank", latent.kv_rank, 1, 1 << 16);
  check.in_range("the number of unrotated dimensions", latent.nope_dim, 1, 1 << 12);
  check.in_range("the number of rotated dimensions", latent.rope_dim, 2, 1 << 12);
  check.in_range("the value length", latent.value_dim, 1, 1 << 12);
}

void check_recurrent(const RecurrentSpec& net, Mixer mixer, const SpecChecker& check) {
  check.in_range("the number of convolution taps", net.taps, 2, 8);
  if (mixer == Mixer::kShortConv) return;
  if (mixer == Mixer::kMamba) {
    check.in_range("the state-space layers' width", net.inner_size, 1, 1 << 20);
    check.in_range("the state size", net.key_dim, 1, 1 << 12);
    return check.in_range("the rank of the time step", net.step_rank, 1, 1 << 16);
  }
  check.in_range("the number of value heads", net.value_heads, 1, 1 << 14);
  check.in_range("the state size", net.key_dim, 1, 1 << 12);
  check.in_range("the head size", net.value_dim, 1, 1 << 12);
  if (mixer != Mixer::kDeltaNet) return;
  check.in_range("the number of key heads", net.key_heads, 1, net.value_heads);
  check.require(net.value_heads % net.key_heads == 0, "the value heads cannot share the key heads");
}

void check_experts(const FeedForwardSpec& ffn, const SpecChecker& check) {
  check.in_range("the number of experts", ffn.num_experts, 1, 1 << 16);
  check.in_range("the number of experts used", ffn.route.num_chosen, 1, ffn.num_experts);
  check.in_range("the expert feed-forward length", ffn.expert_size, 1, 1 << 22);
  check.in_range("the shared feed-forward length", ffn.shared_size, 0, 1 << 22);
  check.in_range("the latent width of the experts", ffn.latent_size, 0, 1 << 20);
  check.in_range("the number of expert groups", ffn.route.num_groups, 1, ffn.num_experts);
  check.in_range("the number of expert groups used", ffn.route.num_groups_chosen, 1, ffn.route.num_groups);
  check.require(ffn.num_experts % ffn.route.num_groups == 0, "the experts do not divide into their groups");
  check.require(ffn.route.num_groups_chosen * (ffn.num_experts / ffn.route.num_groups) >= ffn.route.num_chosen,
                "the groups used have fewer experts than are used");
}

}  // namespace

void check_spec(const ModelSpec& spec, const std::string& where) {
  using Kind = FeedForwardSpec::Kind;
  const SpecChecker check(where);
  check_sizes(spec.config, where);
  check.in_range("the width of embeddings for each layer", spec.per_layer_size, 0, 1 << 20);
  check.in_range("the rows of embeddings for each layer", spec.per_layer_rows, 0, 1 << 24);
  check.in_range("the number of residual streams", spec.num_streams, 1, 16);
  check.in_range("the rank of the branch beside attention", spec.laurel_rank, 0, 1 << 14);
  for (const std::int64_t size : spec.dense_sizes)
    check.in_range("the width of a dense module", size, 1, 1 << 20);
  check.require(spec.dense_sizes.empty() || spec.dense_sizes.back() == spec.config.hidden_size,
                "dense modules that change the embedding's length are not supported");
  check.require(spec.num_streams == 1 || spec.per_layer_size > 0,
                "residual streams without an embedding for each layer are not supported");
  for (std::int64_t index = 0; index < spec.num_blocks(); ++index) {
    const LayerSpec& layer = spec.layer(index);
    const bool attends = layer.mixer == Mixer::kAttention || layer.mixer == Mixer::kAttentionAndMamba2;
    if (attends) check_attention(layer.attention, index, check);
    if (layer.mixer == Mixer::kLatent) check_latent(layer.latent, layer.attention.num_heads, check);
    // A rotation that no layer uses is not checked.
    if ((attends || layer.mixer == Mixer::kLatent) && layer.attention.rope >= 0) {
      const std::int64_t head_dim = attends ? layer.attention.key_dim : layer.latent.rope_dim;
      check_rope(spec.ropes.at(static_cast<std::size_t>(layer.attention.rope)), head_dim, where);
    }
    if (layer.mixer != Mixer::kNone && layer.mixer != Mixer::kAttention && layer.mixer != Mixer::kLatent)
      check_recurrent(layer.recurrent, layer.mixer, check);
    const FeedForwardSpec& ffn = layer.feed_forward;
    if (ffn.kind == Kind::kDense || ffn.kind == Kind::kBoth)
      check.in_range("the feed-forward length", ffn.size, 1, 1 << 22);
    if (ffn.kind == Kind::kExperts || ffn.kind == Kind::kBoth) check_experts(ffn, check);
  }
}

void read_dense_sizes(const TensorTable& tensors, ModelSpec& spec) {
  for (const char* name : {"dense_2.weight", "dense_3.weight"}) {
    if (tensors.contains(name)) spec.dense_sizes.push_back(tensors.shape_of(name).at(0));
  }
}

ModelSpec plain_spec(const ModelConfig& config) {
  ModelSpec spec;
  spec.config = config;
  spec.ropes = {config.rope};
  LayerSpec layer;
  AttentionSpec& attention = layer.attention;
  attention.num_heads = config.num_heads;
  attention.num_kv_heads = config.num_kv_heads;
  attention.key_dim = attention.value_dim = config.head_dim;
  attention.scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  attention.rope = 0;
  if (config.has_qk_norm) attention.qk_norm = QkNorm::kPerHead;
  layer.feed_forward.size = config.ffn_size;
  spec.layers.assign(static_cast<std::size_t>(config.num_layers), layer);
  return spec;
}

std::vector<StatePlace> state_places(const ModelSpec& spec) {
  std::vector<StatePlace> places;
  std::int64_t offset = 0;
  for (const LayerSpec& layer : spec.layers) {
    const RecurrentSpec& net = layer.recurrent;
    StatePlace place{.offset = offset};
    switch (layer.mixer) {
      case Mixer::kDeltaNet:
        place.conv_floats =
            conv_state_floats(2 * net.key_heads * net.key_dim + net.value_heads * net.value_dim, net.taps);
        place.floats = matrix_state_floats(net.value_heads, net.key_dim, net.value_dim);
        break;
      case Mixer::kKimiDelta:
        place.conv_floats = 3 * conv_state_floats(net.value_heads * net.value_dim, net.taps);
        place.floats = matrix_state_floats(net.value_heads, net.key_dim, net.value_dim);
        break;
      case Mixer::kShortConv: place.conv_floats = conv_state_floats(net.inner_size, net.taps); break;
      case Mixer::kMamba:
        place.conv_floats = conv_state_floats(net.inner_size, net.taps);
        place.floats = matrix_state_floats(1, net.key_dim, net.inner_size);
        break;
      case Mixer::kMamba2:
      case Mixer::kAttentionAndMamba2:
        place.conv_floats = conv_state_floats(net.inner_size + 2 * net.num_groups * net.key_dim, net.taps);
        place.floats = matrix_state_floats(net.value_heads, net.key_dim, net.value_dim);
        break;
      default: break;
    }
    offset += place.conv_floats + place.floats;
    places.push_back(place);
  }
  if (spec.next_tokens)
    places.push_back({.offset = offset, .conv_floats = conv_state_floats(spec.config.hidden_size, 2)});
  return places;
}

std::int64_t state_floats(const ModelSpec& spec) {
  const std::vector<StatePlace> places = state_places(spec);
  return places.empty() ? 0 : places.back().offset + places.back().conv_floats + places.back().floats;
}

bool keeps_one_layer(const ModelSpec& spec) {
  const LayerSpec& first = spec.layers.front();
  return !spec.is_causal && std::ranges::all_of(spec.layers, [&](const LayerSpec& layer) {
    const AttentionSpec& attention = layer.attention;
    return layer.mixer == Mixer::kAttention && attention.kv_source < 0 &&
           attention.num_kv_heads == first.attention.num_kv_heads && attention.key_dim == first.attention.key_dim &&
           attention.value_dim == first.attention.value_dim;
  });
}

KvLayerShape cached_heads(const LayerSpec& layer) {
  const auto padded = [](std::int64_t dim) { return (dim + 7) / 8 * 8; };
  if (layer.mixer == Mixer::kLatent) return {1, padded(layer.latent.kv_rank + layer.latent.rope_dim), 0};
  return {layer.attention.num_kv_heads, padded(layer.attention.key_dim), padded(layer.attention.value_dim)};
}

KvLayout kv_layout_of(const ModelSpec& spec) {
  KvLayout layout;
  layout.num_layers = spec.num_blocks();
  layout.num_kv_heads = spec.config.num_kv_heads;
  layout.head_dim = (spec.config.head_dim + 7) / 8 * 8;
  bool is_uniform = layout.head_dim > 0;
  for (std::int64_t index = 0; index < spec.num_blocks(); ++index) {
    const LayerSpec& layer = spec.layer(index);
    const AttentionSpec& attention = layer.attention;
    KvLayerShape shape;
    const bool attends = layer.mixer == Mixer::kAttention || layer.mixer == Mixer::kAttentionAndMamba2;
    if (layer.mixer == Mixer::kLatent || (attends && attention.kv_source < 0)) shape = cached_heads(layer);
    is_uniform = is_uniform && shape.num_heads == layout.num_kv_heads && shape.key_dim == layout.head_dim &&
                 shape.value_dim == layout.head_dim;
    layout.layers.push_back(shape);
  }
  if (is_uniform) layout.layers.clear();
  if (keeps_one_layer(spec)) {
    layout.num_layers = 1;
    if (!is_uniform) layout.layers.resize(1);
  }
  return layout;
}

std::int64_t positions_per_row(const ModelSpec& spec) {
  constexpr std::int64_t kAxes = 3;
  const bool has_axes = std::ranges::any_of(spec.ropes, [](const RopeConfig& rope) { return !rope.axes.empty(); });
  return has_axes ? kAxes : 1;
}

}  // namespace quire
