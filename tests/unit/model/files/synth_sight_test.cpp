// Synthetic shapes of models that see: the text model and the tower of one model fit each other.
#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>

#include "core/model/tools/synth_families.h"
#include "core/model/tools/synth_tower.h"

using namespace quire;

TEST_CASE("A tower's text model has a shape with the positions that its rows need", "[model][synth]") {
  const auto towers = synth_tower_names();
  REQUIRE(std::ranges::find(towers, "qwen3vl-2b-mmproj") != towers.end());
  const auto shape = find_family_shape("qwen3vl-2b");
  REQUIRE(shape);
  const ModelSpec spec = read_family_shape(*shape).spec;
  CHECK(spec.layers.size() == 28);
  CHECK(spec.config.hidden_size == 2048);  // width of the projector
  CHECK(positions_per_row(spec) == 3);
  REQUIRE(spec.ropes.front().axes.size() == 64);
  for (const auto& [axis, count] : {std::pair{0, 24}, {1, 20}, {2, 20}})
    CHECK(std::ranges::count(spec.ropes.front().axes, axis) == count);
}
