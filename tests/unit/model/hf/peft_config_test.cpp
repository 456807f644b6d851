// Settings of an adapter_config.json: each is applied or refused.
#include <catch2/catch.hpp>

#include "core/base/result.h"
#include "core/model/layers/adapters/peft_config.h"
#include "core/model/parts/adapter.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/adapters/adapter_files.h"
#include "tests/unit/model/model_runner.h"

using Catch::Contains;
using namespace quire;
using namespace quire::test;

namespace {

std::string peft_refusal(const std::string& settings, bool ignore_unknown_keys = false) {
  const TemporaryFolder folder;
  folder.write("adapter_config.json", settings);
  try {
    const PeftConfig config(folder.path(), ignore_unknown_keys);
  } catch (const StartupError& error) {
    return error.what();
  }
  return "";
}

double scale(const std::string& settings, const std::string& module, std::int64_t rank) {
  const TemporaryFolder folder;
  folder.write("adapter_config.json", settings);
  return PeftConfig(folder.path(), false).scale(module, rank);
}

constexpr const char* kModule = "model.layers.11.self_attn.q_proj";

}  // namespace

TEST_CASE("Settings of an adapter that change nothing are accepted", "[model][adapter]") {
  CHECK(peft_refusal(R"({"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 8, "lora_alpha": 16, "lora_dropout": 0.05,
      "base_model_name_or_path": "a/b", "revision": null, "inference_mode": true, "auto_mapping": null,
      "target_modules": ["q_proj"], "exclude_modules": null, "fan_in_fan_out": false, "bias": "none",
      "modules_to_save": null, "init_lora_weights": true, "layers_to_transform": [0, 1], "layers_pattern": null,
      "rank_pattern": {}, "alpha_pattern": {}, "megatron_config": null, "megatron_core": "megatron.core",
      "loftq_config": {}, "eva_config": null, "corda_config": null, "trainable_token_indices": null,
      "use_dora": false, "use_qalora": false, "qalora_group_size": 16, "layer_replication": null, "lora_bias": false,
      "runtime_config": {"ephemeral_gpu_offload": false}, "peft_version": "0.18.0", "a_new_switch": false})")
            .empty());
  for (const char* initialiser : {"false", "\"gaussian\"", "\"eva\"", "\"orthogonal\""})
    CHECK(peft_refusal(R"({"init_lora_weights": )" + std::string(initialiser) + "}").empty());
}

TEST_CASE("Settings of an adapter that change what is computed are refused by name", "[model][adapter]") {
  for (const char* initialiser : {"pissa", "pissa_niter_16", "olora", "loftq", "corda", "lora_ga", "a_new_one"}) {
    const std::string line = peft_refusal(R"({"init_lora_weights": ")" + std::string(initialiser) + "\"}");
    CHECK_THAT(line, Contains(initialiser) && Contains("path_initial_model_for_weight_conversion"));
  }
  const char* const others[] = {R"({"use_dora": true})",
                                R"({"use_qalora": true})",
                                R"({"use_bdlora": {"nblocks": 2}})",
                                R"({"bias": "lora_only"})",
                                R"({"lora_bias": true})",
                                R"({"modules_to_save": ["lm_head"]})",
                                R"({"trainable_token_indices": [1, 2]})",
                                R"({"layer_replication": [[0, 2]]})",
                                R"({"alora_invocation_tokens": [1]})",
                                R"({"arrow_config": {"top_k": 2}})"};
  for (const char* settings : others)
    CHECK_THAT(peft_refusal(settings), Contains("is not supported: "));
  CHECK_THAT(peft_refusal(R"({"peft_type": "LOHA"})"), Contains("'peft_type' is not LORA"));
  const char* const unknown = R"({"use_new_thing": 3})";
  CHECK_THAT(peft_refusal(unknown), Contains("the key 'use_new_thing'") && Contains("model.ignore_unknown_keys"));
  CHECK(peft_refusal(unknown, true).empty());
  CHECK_THAT(peft_refusal(R"({"use_dora": true})", true), Contains("'use_dora'"));
}

TEST_CASE("An adapter's scale follows its patterns, and its rank is that of its matrices", "[model][adapter]") {
  CHECK(scale(R"({"r": 8, "lora_alpha": 16})", kModule, 8) == 2.0);
  CHECK(scale(R"({"r": 16, "lora_alpha": 16, "use_rslora": true})", kModule, 16) == 4.0);
  CHECK(scale(R"({"lora_alpha": 16})", kModule, 4) == 4.0);
  CHECK_THROWS_WITH(scale(R"({"r": 64, "lora_alpha": 16})", kModule, 8),
                    Contains("the rank is 64") && Contains("have 8"));
  const std::string patterns = R"({"r": 8, "lora_alpha": 16, "rank_pattern": {"q_proj": 4, "layers.1.mlp.up_proj": 2},
      "alpha_pattern": {"q_proj": 2, "model.layers.\\d+.self_attn.k_proj": 24}})";
  CHECK(scale(patterns, kModule, 4) == 0.5);
  CHECK(scale(patterns, "model.layers.0.self_attn.k_proj", 8) == 3.0);
  CHECK(scale(patterns, "model.layers.0.self_attn.v_proj", 8) == 2.0);
  CHECK(scale(patterns, "model.layers.1.mlp.up_proj", 2) == 8.0);
  CHECK(scale(patterns, "model.layers.11.mlp.up_proj", 8) == 2.0);
  CHECK_THROWS_WITH(scale(R"({"rank_pattern": {"(": 4}})", kModule, 4), Contains("no pattern"));
}

TEST_CASE("Changes of several ranks and alphas compute what the same ones of a GGUF file would", "[model][adapter]") {
  const TemporaryFolder folder;
  const auto file = write_model("tiny-qwen3", "Q8_0", folder / "model.gguf");
  ModelRunner runner(*open_model(folder / "model.gguf", false), "scalar");
  runner.model().allow_adapters(16);
  const auto logits_with = [&](const std::filesystem::path& path) {
    const auto adapter = runner.model().load_adapter(path);
    const std::vector<const Adapter*> adapters{adapter.get()};
    runner.edit = [&](StepArrays& arrays) { arrays.adapters = adapters; };
    runner.reset();
    return runner.append(tokens(20, 3));
  };
  std::vector<Change> changes = changes_of(file, 3, 4);
  std::erase_if(changes, [](const Change& change) { return change.name == "output.weight"; });
  write_adapter(changes, "qwen3", folder / "adapter.gguf");
  const Logits wanted = logits_with(folder / "adapter.gguf");
  // An equal change with twice the alpha and half of the matrix.
  for (Change& change : changes) {
    if (!change.name.ends_with("attn_v.weight")) continue;
    for (float& value : change.up)
      value *= 0.5F;
  }
  write_peft(changes, folder / "peft", false, R"({"alpha_pattern": {"v_proj": 12}})");
  CHECK(logits_with(folder / "peft") == wanted);
  write_peft(changes, folder / "wrong", false, R"({"r": 5})");
  CHECK_THROWS_WITH(runner.model().load_adapter(folder / "wrong"), Contains("the rank is 5"));
}
