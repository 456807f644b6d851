// Synthetic towers: files that are read as real ones, of every type, with rows that are numbers.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "core/base/result.h"
#include "core/model/tools/synth.h"
#include "core/model/tools/synth_tower.h"
#include "tests/support/material.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/encode/made_tower.h"
#include "tests/unit/encode/vision_exam.h"

namespace quire::test {

TEST_CASE("A synthetic tower is read as a real one, in every type", "[encode][synth]") {
  const auto backend = exact_backend(1);
  const TemporaryFolder folder;
  for (const std::string& name : synth_tower_names()) {
    if (!name.starts_with("tiny-")) continue;
    for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K_M"}) {
      INFO(name << " of " << type);
      const std::string path = (folder / "tower.gguf").string();
      write_synthetic_tower(name, find_synth_types(type)->matrices, 1, path, {});
      const auto encoder = Encoder::open(path, {.backend = backend.get(), .text_width = 64});
      const std::vector<float> rows = encode(*encoder, made_picture(100, 80), *backend);
      CHECK(std::ranges::all_of(rows, [](float value) { return std::isfinite(value); }));
      CHECK(std::ranges::any_of(rows, [](float value) { return value != 0.0F; }));
      CHECK(encoder->num_deepstack() == (name.find("qwen") != std::string::npos ? 2 : 0));
    }
  }
}

TEST_CASE("A synthetic tower depends on its seed alone", "[encode][synth]") {
  const TemporaryFolder folder;
  const auto written = [&](std::uint64_t seed) {
    write_synthetic_tower("tiny-gemma3-mmproj", DType::kQ8_0, seed, folder / "t.gguf", {});
    return read_file(folder / "t.gguf");
  };
  const std::string first = written(1);
  CHECK(written(1) == first);
  CHECK(written(2) != first);
  CHECK_THROWS_AS(write_synthetic_tower("gemma9", DType::kF16, 1, folder / "t.gguf", {}), StartupError);
}

}  // namespace quire::test
