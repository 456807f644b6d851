// The tool format of each family that is served is recognised from its own chat template.
#include <catch2/catch.hpp>

#include "core/text/tools/tool_format.h"
#include "tests/support/material.h"

namespace quire {
namespace {

struct Family {
  const char* chat_template;
  const char* format;
};

constexpr Family kFamilies[] = {
    {"Qwen-Qwen3-0.6B", "hermes"},
    {"Qwen3-Coder", "qwen3_coder"},
    {"Qwen3.5-4B", "qwen3_coder"},
    {"google-gemma-4-31B-it", "gemma4"},
    {"openai-gpt-oss-120b", "harmony"},
    {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral"},
    {"unsloth-mistral-Devstral-Small-2507", "mistral"},
    {"mistralai-Mistral-Nemo-Instruct-2407", "mistral_list"},
    {"deepseek-ai-DeepSeek-V3.1", "deepseek_v31"},
    {"deepseek-ai-DeepSeek-V3.2", "deepseek_v32"},
    {"GLM-4.7-Flash", "glm45"},
    {"Kimi-K2-Instruct", "kimi_k2"},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3_coder"},
    {"LFM2-8B-A1B", "lfm2"},
    {"LFM2.5-Instruct", "lfm2.5"},
    {"ibm-granite-granite-3.3-2B-Instruct", "granite"},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command_r7b"},
    {"Cohere2MoE", "command_r7b"},
    {"ByteDance-Seed-OSS", "seed_oss"},
    {"MiMo-VL", "hermes"},
    {"meta-llama-Llama-3.3-70B-Instruct", "llama3_json"},
    {"Apertus-8B-Instruct", "apertus"},
    {"stepfun-ai-Step-3.5-Flash", "qwen3_coder"},
};

}  // namespace

TEST_CASE("each family's tool format is recognised from its template") {
  QUIRE_REQUIRE_MATERIAL(templates, "chat-templates/templates");
  for (const Family& family : kFamilies) {
    INFO(family.chat_template);
    const auto path = templates / (std::string(family.chat_template) + ".jinja");
    REQUIRE(std::filesystem::exists(path));
    CHECK(detect_tool_format(test::read_file(path)).name == family.format);
  }
}

}  // namespace quire
