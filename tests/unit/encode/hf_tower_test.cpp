// Towers of Hugging Face directories: the same rows, bit for bit, as of the mmproj file with the same weights.
#include <fmt/core.h>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>

#include "core/base/result.h"
#include "core/model/encode/towers/hf_tower.h"
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

TEST_CASE("Keys of a tower's configuration are understood, without effect, or refused with a way out",
          "[encode][vision][hf]") {
  const auto backend = exact_backend(1);
  struct Case {
    const char* family;
    const char* keys;     // added to vision_config
    const char* refusal;  // text of it; empty: none
  };
  constexpr Case kCases[] = {
      {"qwen3vl", R"("out_hidden_size":64,"initializer_range":0.02,"torch_dtype":"bfloat16","in_chans":3)", ""},
      {"qwen3vl", R"("spatial_patch_size":16,"_name_or_path":"x","use_gated_attention":false)", ""},
      {"qwen3vl", R"("use_gated_attention":true)", "the key 'use_gated_attention' is not supported"},
      {"qwen3vl", R"("in_chans":4)", "'in_chans' is 4"},
      {"qwen2vl", R"("model_type":"qwen2_vl","in_chans":3,"spatial_patch_size":14)", ""},
      {"qwen25vl", R"("tokens_per_second":2,"num_hidden_layers":1,"attention_dropout":0.1)", ""},
      {"qwen25vl", R"("window_siz":112)", "the nearest known one is 'window_size'"},
      {"gemma3", R"("vision_use_head":false,"num_channels":3,"is_decoder":false)", ""},
      {"gemma4", R"("max_position_embeddings":131072,"rope_parameters":{"rope_theta":100.0,"rope_type":"default"})",
       ""},
      {"gemma4", R"("rope_parameters":{"rope_theta":200.0})", "'rope_theta' must be 100"},
      {"gemma4", R"("use_clipped_linears":true)", ""},
      {"pixtral", R"("rope_parameters":{"rope_theta":10000.0,"rope_type":"default"})", ""},
      {"pixtral", R"("rope_parameters":{"rope_type":"yarn"})", "'rope_type' must be 'default'"},
      {"mistral3", R"("attention_scale":2)", "model.ignore_unknown_keys: true"},
  };
  for (const Case& each : kCases) {
    QUIRE_REQUIRE_MATERIAL(family, std::string("vision/given/") + each.family);
    INFO(each.family << " " << each.keys);
    const TemporaryFolder folder;
    write_hf_tower(family, folder.path());
    std::string config = read_file(folder / "config.json");
    constexpr std::string_view kBegin = "\"vision_config\":{";
    config.insert(config.find(kBegin) + kBegin.size(), std::string(each.keys) + ",");
    std::ofstream(folder / "config.json") << config;
    const auto open = [&](bool ignores) {
      Encoder::open(folder.path().string(), {.backend = backend.get(), .ignores_unknown_keys = ignores});
    };
    if (*each.refusal == '\0') {
      CHECK_NOTHROW(open(false));
    } else {
      CHECK_THROWS_WITH(open(false), Contains(each.refusal));
    }
    if (std::string_view(each.refusal).find("model.ignore_unknown_keys") != std::string_view::npos)
      CHECK_NOTHROW(open(true));
  }
}

TEST_CASE("The image processor of a directory is followed, wherever it stands, or refused", "[encode][vision][hf]") {
  QUIRE_REQUIRE_MATERIAL(gemma, "vision/given/gemma4");
  const auto backend = exact_backend(1);
  const auto with = [&](const char* name, const std::string& processor, bool is_nested) {
    const TemporaryFolder folder;
    write_hf_tower(gemma.parent_path() / name, folder.path());
    const auto nested = "{\"processor_class\":\"X\",\"image_processor\":" + processor + "}";
    if (is_nested) {
      std::ofstream(folder / "processor_config.json") << nested;
    } else {
      std::ofstream(folder / "preprocessor_config.json") << processor;
      std::ofstream(folder / "processor_config.json") << R"({"processor_class":"X"})";
    }
    return Encoder::open(folder.path().string(), {.backend = backend.get()})->spec().picture;
  };
  for (const bool is_nested : {false, true}) {
    CHECK(with("gemma4", R"({"max_soft_tokens":70,"do_normalize":false})", is_nested).max_pixels == 70 * 48 * 48);
    CHECK(with("pixtral", R"({"size":{"longest_edge":512},"resample":3})", is_nested).longest_edge == 512);
    CHECK(with("mistral3", R"({"size":{"height":320,"width":320}})", is_nested).longest_edge == 320);
    const PictureSpec qwen = with("qwen3vl", R"({"resample":2,"do_normalize":false,"min_pixels":null,
        "size":{"shortest_edge":2048,"longest_edge":80000},"rescale_factor":0.00392156862745098})",
                                  is_nested);
    CHECK(qwen.whole.filter == ResizeFilter::kPillowBilinear);
    CHECK(qwen.mean == std::array{0.0F, 0.0F, 0.0F});
    CHECK(qwen.deviation == std::array{1.0F, 1.0F, 1.0F});
    CHECK(qwen.min_pixels == 2048);
    CHECK(qwen.max_pixels == 80000);
    for (const char* wrong : {R"({"do_resize":false})", R"({"do_rescale":false})", R"({"rescale_factor":1})",
                              R"({"resample":0})", R"({"do_pan_and_scan":true})"}) {
      const std::string text = wrong;
      CHECK_THROWS_WITH(with("gemma3", text, is_nested), Contains(text.substr(2, text.find('"', 2) - 2)));
    }
  }
  CHECK(with("gemma4", "{}", true).max_pixels == 280 * 48 * 48);
  // Numbers whose products would not fit 64 bits are refused, not multiplied.
  for (const char* tokens : {"0", "-1", "9223372036854775807"}) {
    CHECK_THROWS_WITH(with("gemma4", fmt::format(R"({{"max_soft_tokens":{}}})", tokens), true),
                      Contains("'max_soft_tokens' is") && Contains("from 1 to 1048576"));
  }
}

}  // namespace quire::test
