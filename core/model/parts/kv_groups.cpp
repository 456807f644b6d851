#include "core/model/parts/kv_groups.h"

#include <algorithm>
#include <utility>

#include "core/model/parts/parts.h"

namespace quire {

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
