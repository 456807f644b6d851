#include "core/model/parts/model_spec.h"

#include <catch2/catch.hpp>

#include "kernels/registry.h"

using namespace quire;

namespace {

ModelSpec decoder(std::int64_t num_layers) {
  ModelConfig config;
  config.num_layers = num_layers;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.hidden_size = 64;
  config.max_context = 1000;
  return plain_spec(config);
}

std::vector<bool> kept_in(const KvLayout& layout) {
  std::vector<bool> kept;
  for (std::int64_t layer = 0; layer < layout.num_layers; ++layer)
    kept.push_back(layout.shape(layer).num_heads > 0);
  return kept;
}

}  // namespace

TEST_CASE("layers without a window keep all tokens", "[model][window]") {
  ModelSpec spec = decoder(3);
  CHECK(kept_windows(spec) == std::vector<std::int64_t>{0, 0, 0});
  CHECK(kv_split_of(spec).window == 0);
  REQUIRE(kv_groups_of(spec).size() == 1);
  CHECK(kv_groups_of(spec)[0].kind == KvGroupKind::kFull);
  CHECK(kv_groups_of(spec)[0].num_layers == 3);
  for (LayerSpec& layer : spec.layers)
    layer.attention.window = 1000;  // equal to the context
  CHECK(kv_split_of(spec).window == 0);
}

TEST_CASE("windows and chunks split the layers, the widest decides", "[model][window]") {
  ModelSpec spec = decoder(4);
  spec.layers[0].attention.window = 100;
  spec.layers[2].attention.chunk = 300;
  spec.layers[3].attention.window = 100;
  CHECK(kept_windows(spec) == std::vector<std::int64_t>{100, 0, 300, 100});
  const KvSplit split = kv_split_of(spec);
  CHECK(split.window == 300);
  CHECK(kept_in(split.windowed) == std::vector<bool>{true, false, true, true});
  CHECK(kept_in(split.full) == std::vector<bool>{false, true, false, false});
  const std::vector<KvGroupSpec> groups = kv_groups_of(spec);
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].kind == KvGroupKind::kWindow);
  CHECK(groups[0].num_layers == 2);
  CHECK(groups[1].kind == KvGroupKind::kFull);
  CHECK(groups[2].window == 300);
}

TEST_CASE("what a layer keeps is what all its readers see", "[model][window]") {
  ModelSpec spec = decoder(4);
  spec.layers[0].attention.window = 50;
  spec.layers[1].attention.window = 50;
  spec.layers[2].attention.kv_source = 0;
  spec.layers[2].attention.window = 200;
  spec.layers[3].attention.kv_source = 1;  // sees all
  CHECK(kept_windows(spec) == std::vector<std::int64_t>{200, 0, 200, 0});
}

TEST_CASE("where all layers have a window blocks have no bytes", "[model][window]") {
  ModelSpec spec = decoder(2);
  for (LayerSpec& layer : spec.layers)
    layer.attention.window = 64;
  const KvSplit split = kv_split_of(spec);
  CHECK(split.window == 64);
  const auto backend = create_backend({.device = "cpu", .cpu = {.isa = "scalar", .threads = 1, .pin = false}});
  CHECK(backend->kv_block_bytes(split.full) == 0);
  KvLayout all = kv_layout_of(spec);
  CHECK(backend->kv_block_bytes(split.windowed) == backend->kv_block_bytes(all));
  all = split.full;
  all.num_blocks = 100;
  const auto storage = backend->allocate_kv(all);
  storage->copy_block(3, 7);
  CHECK(storage->block_bytes() == 0);
}

TEST_CASE("layers keep windows beside recurrent layers, and all tokens in encoders", "[model][window]") {
  ModelSpec spec = decoder(2);
  spec.layers[0].attention.window = 64;
  spec.is_causal = false;
  CHECK(kv_split_of(spec).window == 0);
  spec.is_causal = true;
  CHECK(kv_split_of(spec).window == 64);
  spec.layers[1].mixer = Mixer::kShortConv;
  spec.layers[1].recurrent.inner_size = 64;
  spec.layers[1].recurrent.taps = 3;
  CHECK(kv_split_of(spec).window == 64);
  REQUIRE(kv_groups_of(spec).size() == 2);
  CHECK(kv_groups_of(spec)[1].kind == KvGroupKind::kState);
}
