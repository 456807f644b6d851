// Towers of Hugging Face directories: the same rows, bit for bit, as of the mmproj file with the same weights.
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>

#include "core/base/result.h"
#include "core/model/encode/hf_tower.h"
#include "tests/support/material.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/encode/hf_tower_directory.h"
#include "tests/unit/encode/png.h"
#include "tests/unit/encode/vision_exam.h"

using Catch::Contains;

namespace quire::test {

namespace {

void check_same_rows(const std::string& name) {
  QUIRE_REQUIRE_MATERIAL(family, "vision/given/" + name);
  const TemporaryFolder folder;
  write_hf_tower(family, folder.path());
  CHECK(has_hf_tower(folder.path()));
  CHECK(find_tower(folder.path()) == folder.path());
  const auto backend = exact_backend(1);
  for (const PictureForm form : {PictureForm::kTrained, PictureForm::kLlamaCpp}) {
    const auto directory = Encoder::open(folder.path().string(), {.backend = backend.get(), .form = form});
    MmprojFile file = MmprojFile::open(family / "mmproj.gguf");
    TowerSpec spec = read_tower_spec(file, form);
    CHECK(spec.family == directory->spec().family);
    CHECK(spec.activation == directory->spec().activation);
    CHECK(spec.picture.mean == directory->spec().picture.mean);
    CHECK(spec.picture.deviation == directory->spec().picture.deviation);
    // The classes of some families fix it; the processor of the directory sets the limits.
    spec.eps = directory->spec().eps;
    spec.picture.min_pixels = directory->spec().picture.min_pixels;
    spec.picture.max_pixels = directory->spec().picture.max_pixels;
    const Encoder encoder(file, std::move(spec), {.backend = backend.get(), .form = form});
    for (const char* picture : {"exact.png", "../images/wide.png"}) {
      INFO(picture);
      const std::vector<float> expected = encode(encoder, read_png(family / picture), *backend);
      const std::vector<float> rows = encode(*directory, read_png(family / picture), *backend);
      REQUIRE(rows.size() == expected.size());
      CHECK(std::memcmp(rows.data(), expected.data(), rows.size() * sizeof(float)) == 0);
    }
  }
}

}  // namespace

#define QUIRE_HF_TOWER(name)                                                     \
  TEST_CASE("Tower of a Hugging Face directory " name, "[encode][vision][hf]") { \
    check_same_rows(name);                                                       \
  }

QUIRE_HF_TOWER("qwen3vl")
QUIRE_HF_TOWER("qwen35")
QUIRE_HF_TOWER("gemma4")
QUIRE_HF_TOWER("gemma3")
QUIRE_HF_TOWER("qwen25vl")
QUIRE_HF_TOWER("qwen2vl")
QUIRE_HF_TOWER("mistral3")
QUIRE_HF_TOWER("pixtral")

TEST_CASE("A directory whose tower is not read is one of text, or refused by name", "[encode][hf]") {
  const TemporaryFolder folder;
  CHECK_FALSE(has_hf_tower(folder.path()));
  CHECK(find_tower(folder.path()).empty());
  std::ofstream(folder / "config.json") << R"({"model_type": "llama", "hidden_size": 8})";
  CHECK_FALSE(has_hf_tower(folder.path()));
  CHECK_THROWS_WITH(open_hf_tower(folder.path()), Contains("no tower for images"));
  std::ofstream(folder / "config.json") << R"({"model_type": "llava", "vision_config": {"model_type": "clip"}})";
  CHECK_FALSE(has_hf_tower(folder.path()));
}

TEST_CASE("A tensor or a key that is not understood is refused by name", "[encode][vision][hf]") {
  QUIRE_REQUIRE_MATERIAL(family, "vision/given/qwen3vl");
  const auto backend = exact_backend(1);
  const auto refusal = [&](const TemporaryFolder& folder) -> std::string {
    try {
      Encoder::open(folder.path().string(), {.backend = backend.get()});
    } catch (const StartupError& error) {
      return error.what();
    }
    return {};
  };
  const TemporaryFolder folder;
  write_hf_tower(family, folder.path(), "visual.blocks.0.attn.sinks");
  CHECK_THAT(refusal(folder), Contains("'visual.blocks.0.attn.sinks'"));
  const TemporaryFolder other;
  write_hf_tower(family, other.path());
  std::string config = read_file(other / "config.json");
  config.replace(config.find("\"patch_size\""), 12, "\"hidden_act\":\"mish\",\"patch_size\"");
  std::ofstream(other / "config.json") << config;
  CHECK_THAT(refusal(other), Contains("vision_config: 'hidden_act' is 'mish'"));
}

}  // namespace quire::test
