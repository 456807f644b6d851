#include "core/model/parts/model_spec.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/model/formats/tensor_table.h"
#include "core/model/parts/parts.h"
#include "core/model/parts/spec_checker.h"

namespace quire {

void check_spec(const ModelSpec& spec, const std::string& where) {
  const SpecChecker check(where);
  check_sizes(spec.config, where);
  for (const ModelPart* part : model_parts())
    part->check(spec, check);
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
    const StateSize size = mixer_part(layer).state(layer);
    places.push_back({.offset = offset, .conv_floats = size.conv, .floats = size.behind_conv});
    offset += size.conv + size.behind_conv;
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
    return mixer_part(layer).has_heads() && attention.kv_source < 0 &&
           attention.num_kv_heads == first.attention.num_kv_heads && attention.key_dim == first.attention.key_dim &&
           attention.value_dim == first.attention.value_dim;
  });
}

KvLayout kv_layout_of(const ModelSpec& spec) {
  KvLayout layout;
  layout.num_layers = spec.num_blocks();
  layout.num_kv_heads = spec.config.num_kv_heads;
  layout.head_dim = (spec.config.head_dim + 7) / 8 * 8;
  bool is_uniform = layout.head_dim > 0;
  for (std::int64_t index = 0; index < spec.num_blocks(); ++index) {
    const LayerSpec& layer = spec.layer(index);
    const Part& mixer = mixer_part(layer);
    const KvLayerShape shape = mixer.kept(layer).num_layers > 0 ? mixer.cached_heads(layer) : KvLayerShape{};
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

namespace {

// Most tokens that a token sees; 0: all.
std::int64_t seen_tokens(const AttentionSpec& attention, std::int64_t context) {
  std::int64_t seen = context;
  for (const std::int64_t bound : {attention.window, attention.chunk}) {
    if (bound > 0) seen = std::min(seen, bound);
  }
  return seen < context ? seen : 0;
}

}  // namespace

std::vector<std::int64_t> kept_windows(const ModelSpec& spec) {
  std::vector<std::int64_t> windows(spec.layers.size());
  if (!spec.is_causal) return windows;
  const auto reads = [&](std::size_t reader, std::size_t source) {
    const std::int64_t from = spec.layers[reader].attention.kv_source;
    return mixer_part(spec.layers[reader]).has_heads() && (from < 0 ? reader == source : std::cmp_equal(from, source));
  };
  for (std::size_t source = 0; source < windows.size(); ++source) {
    bool sees_all = false;
    for (std::size_t reader = source; reader < windows.size(); ++reader) {
      if (!reads(reader, source)) continue;
      const std::int64_t seen = seen_tokens(spec.layers[reader].attention, spec.config.max_context);
      sees_all = sees_all || seen == 0;
      windows[source] = std::max(windows[source], seen);
    }
    if (sees_all) windows[source] = 0;
  }
  for (std::size_t reader = 0; reader < windows.size(); ++reader) {
    const std::int64_t from = spec.layers[reader].attention.kv_source;
    if (mixer_part(spec.layers[reader]).has_heads() && from >= 0)
      windows[reader] = windows[static_cast<std::size_t>(from)];
  }
  return windows;
}

KvSplit kv_split_of(const ModelSpec& spec) {
  const std::vector<std::int64_t> windows = kept_windows(spec);
  KvSplit split;
  split.window = std::ranges::max(windows);
  if (split.window == 0) return {};
  split.full = kv_layout_of(spec);
  if (split.full.layers.empty()) split.full.layers.assign(spec.layers.size(), split.full.shape(0));
  split.windowed = split.full;
  for (std::size_t layer = 0; layer < windows.size(); ++layer)
    (windows[layer] > 0 ? split.full : split.windowed).layers[layer] = {};
  return split;
}

std::vector<KvGroupSpec> kv_groups_of(const ModelSpec& spec) {
  std::vector<KvGroupSpec> groups;
  const auto add = [&](const KvGroupSpec& one) {
    const auto same = std::ranges::find_if(groups, [&](const KvGroupSpec& group) {
      return group.kind == one.kind && group.num_kv_heads == one.num_kv_heads && group.head_dim == one.head_dim &&
             group.value_dim == one.value_dim && group.window == one.window;
    });
    if (same == groups.end()) return groups.push_back(one);
    ++same->num_layers;
    same->state_floats += one.state_floats;
  };
  const std::vector<std::int64_t> windows = kept_windows(spec);
  const std::vector<StatePlace> states = state_places(spec);
  for (std::size_t i = 0; i < states.size(); ++i) {
    const LayerSpec& layer = spec.layer(static_cast<std::int64_t>(i));
    KvGroupSpec kept = mixer_part(layer).kept(layer);
    if (const std::int64_t window = i < windows.size() ? windows[i] : 0; window > 0) {
      kept.kind = KvGroupKind::kWindow;
      kept.window = window;
    }
    if (kept.num_layers > 0) add(kept);
    const std::int64_t floats = states[i].conv_floats + states[i].floats;
    if (floats > 0) add({.kind = KvGroupKind::kState, .num_layers = 1, .state_floats = floats});
  }
  return groups;
}

}  // namespace quire
