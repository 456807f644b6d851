// Each family of towers against what another engine made of the same pictures: tokens, texts, pixels, rows.
#include <catch2/catch.hpp>

#include "tests/support/material.h"
#include "tests/unit/encode/vision_exam.h"

namespace quire::test {

namespace {

void check_family(const std::string& name) {
  QUIRE_REQUIRE_MATERIAL(family, "vision/given/" + name);
  const VisionExamResult result = take_vision_exam(family);
  INFO("worst row: " << result.worst_row << " of prompt " << result.worst_where);
  CHECK(result.num_pictures >= 14);
  encode_as_trained(family);
}

}  // namespace

// A case for each family, so that a failure names it.
#define QUIRE_VISION_FAMILY(name)                        \
  TEST_CASE("Vision family " name, "[encode][vision]") { \
    check_family(name);                                  \
  }

QUIRE_VISION_FAMILY("qwen3vl")
QUIRE_VISION_FAMILY("qwen35")
QUIRE_VISION_FAMILY("gemma4")
QUIRE_VISION_FAMILY("gemma3")
QUIRE_VISION_FAMILY("qwen25vl")
QUIRE_VISION_FAMILY("qwen2vl")
QUIRE_VISION_FAMILY("mistral3")
QUIRE_VISION_FAMILY("pixtral")
QUIRE_VISION_FAMILY("internvl3")
QUIRE_VISION_FAMILY("smolvlm")
QUIRE_VISION_FAMILY("lfm2vl")
QUIRE_VISION_FAMILY("glm4v")
QUIRE_VISION_FAMILY("kimivl")
QUIRE_VISION_FAMILY("kimik25")
QUIRE_VISION_FAMILY("minimaxm3")
QUIRE_VISION_FAMILY("llava15")
QUIRE_VISION_FAMILY("llava16")
QUIRE_VISION_FAMILY("llama4")
QUIRE_VISION_FAMILY("granitevision")
QUIRE_VISION_FAMILY("phi4")
QUIRE_VISION_FAMILY("minicpmv45")
QUIRE_VISION_FAMILY("minicpmv46")
QUIRE_VISION_FAMILY("paddleocr")
QUIRE_VISION_FAMILY("dotsocr")
QUIRE_VISION_FAMILY("gemma4uv")

}  // namespace quire::test
