#include "core/model/architectures/hf_families.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/model/architectures/registry.h"

namespace quire {

namespace {

constexpr std::string_view kGemmaNames =
    "post_attention_norm=post_attention_layernorm ffn_norm=pre_feedforward_layernorm "
    "post_ffw_norm=post_feedforward_layernorm ffn_gate_inp=router.proj ffn_gate_inp.scale=router.scale$ "
    "ffn_gate_up_exps=experts.gate_up_proj$ ffn_down_exps=experts.down_proj$ "
    "ffn_down_exps.scale=router.per_expert_scale$ layer_output_scale=layer_scalar$";
constexpr std::string_view kPostNormNames =
    "post_attention_norm=post_attention_layernorm post_ffw_norm=post_feedforward_layernorm ffn_norm=";
constexpr std::string_view kMixtralNames =
    "ffn_gate_inp=block_sparse_moe.gate exp_probs_b=block_sparse_moe.e_score_correction_bias$ "
    "ffn_gate_exps=block_sparse_moe.experts.#.w1 ffn_up_exps=block_sparse_moe.experts.#.w3 "
    "ffn_down_exps=block_sparse_moe.experts.#.w2";
constexpr std::string_view kQwenExpertNames =
    "ffn_gate_shexp=mlp.shared_expert.gate_proj ffn_up_shexp=mlp.shared_expert.up_proj "
    "ffn_down_shexp=mlp.shared_expert.down_proj";
constexpr std::string_view kQwenHybridNames =
    "post_attention_norm=post_attention_layernorm ffn_norm= attn_qkv=linear_attn.in_proj_qkv "
    "attn_gate=linear_attn.in_proj_z ffn_gate_up_exps=mlp.experts.gate_up_proj$ "
    "ffn_gate_shexp=mlp.shared_expert.gate_proj "
    "ffn_up_shexp=mlp.shared_expert.up_proj ffn_down_shexp=mlp.shared_expert.down_proj";
constexpr std::string_view kQwenHybridFusedNames =
    "post_attention_norm=post_attention_layernorm ffn_norm= attn_qkv=linear_attn.in_proj_qkv "
    "attn_gate=linear_attn.in_proj_z ffn_gate_up_exps=mlp.experts.gate_up_proj$ ffn_down_exps=mlp.experts.down_proj$ "
    "ffn_gate_shexp=mlp.shared_expert.gate_proj ffn_up_shexp=mlp.shared_expert.up_proj "
    "ffn_down_shexp=mlp.shared_expert.down_proj";
constexpr std::string_view kLfmNames =
    "token_embd_norm=embedding_norm attn_norm=operator_norm ffn_norm=ffn_norm attn_output=self_attn.out_proj "
    "attn_q_norm=self_attn.q_layernorm attn_k_norm=self_attn.k_layernorm ffn_gate=feed_forward.w1 "
    "ffn_up=feed_forward.w3 ffn_down=feed_forward.w2 ffn_gate_inp=feed_forward.gate "
    "exp_probs_b=feed_forward.expert_bias$ ffn_gate_exps=feed_forward.experts.#.w1 "
    "ffn_up_exps=feed_forward.experts.#.w3 ffn_down_exps=feed_forward.experts.#.w2";
constexpr std::string_view kBertNames =
    "token_embd=embeddings.word_embeddings position_embd=embeddings.position_embeddings "
    "token_types=embeddings.token_type_embeddings token_embd_norm=embeddings.LayerNorm "
    "attn_q=attention.self.query attn_k=attention.self.key attn_v=attention.self.value "
    "attn_output=attention.output.dense attn_output_norm=attention.output.LayerNorm ffn_up=intermediate.dense "
    "ffn_down=output.dense layer_output_norm=output.LayerNorm";
constexpr std::string_view kGlmNames =
    "post_attention_norm=post_self_attn_layernorm post_ffw_norm=post_mlp_layernorm ffn_up=mlp.gate_up_proj";
constexpr std::string_view kGraniteExpertNames =
    "ffn_gate_inp=block_sparse_moe.router.layer ffn_gate_up_exps=block_sparse_moe.input_linear "
    "ffn_down_exps=block_sparse_moe.output_linear ffn_down_shexp=shared_mlp.output_linear";
constexpr std::string_view kGptOssNames =
    "post_attention_norm=post_attention_layernorm ffn_norm= ffn_gate_inp=mlp.router";

constexpr std::string_view kGemma2Defaults =
    R"({"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "query_pre_attn_scalar": 256, "sliding_window": 4096})";
constexpr std::string_view kGemma3Defaults =
    R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "query_pre_attn_scalar": 256,
        "sliding_window": 4096})";
constexpr std::string_view kQwenHybridDefaults = R"({"head_dim": 256, "partial_rotary_factor": 0.25})";
constexpr std::string_view kGlmDefaults = R"({"partial_rotary_factor": 0.5})";
constexpr std::string_view kCohere2Defaults =
    R"({"rope_theta": 10000.0, "sliding_window": 4096, "logit_scale": 0.0625, "layer_norm_eps": 1e-5})";

constexpr HfFamily kFamilies[] = {
    {.model_type = "mistral", .architecture = "llama", .swaps_halves = true},
    {.model_type = "mixtral", .architecture = "llama", .names = kMixtralNames, .swaps_halves = true},
    {.model_type = "ministral3", .architecture = "mistral3", .swaps_halves = true},
    {.model_type = "qwen2_moe", .architecture = "qwen2moe", .names = kQwenExpertNames},
    {.model_type = "qwen3_moe", .architecture = "qwen3moe", .names = kQwenExpertNames},
    {.model_type = "qwen3_vl_text", .architecture = "qwen3vl"},
    {.model_type = "qwen3_vl_moe_text", .architecture = "qwen3vlmoe", .column_experts = "mlp.experts"},
    {.model_type = "qwen3_5_text",
     .architecture = "qwen35",
     .names = kQwenHybridNames,
     .norms_minus_one = true,
     .defaults = kQwenHybridDefaults},
    {.model_type = "qwen3_5_moe_text",
     .architecture = "qwen35moe",
     .names = kQwenHybridFusedNames,
     .norms_minus_one = true,
     .defaults = kQwenHybridDefaults},
    {.model_type = "qwen3_next",
     .architecture = "qwen3next",
     .names = kQwenHybridNames,
     .norms_minus_one = true,
     .defaults = kQwenHybridDefaults},
    {.model_type = "gemma2",
     .architecture = "gemma2",
     .names = kGemmaNames,
     .norms_minus_one = true,
     .uses_gelu = true,
     .defaults = kGemma2Defaults},
    {.model_type = "gemma3_text",
     .architecture = "gemma3",
     .names = kGemmaNames,
     .norms_minus_one = true,
     .uses_gelu = true,
     .defaults = kGemma3Defaults},
    {.model_type = "gemma4_text", .architecture = "gemma4", .names = kGemmaNames, .uses_gelu = true},
    {.model_type = "gpt_oss",
     .architecture = "gpt-oss",
     .names = kGptOssNames,
     .column_experts = "mlp.experts",
     .pairs_experts = true},
    {.model_type = "phi3", .architecture = "phi3", .names = "ffn_up=mlp.gate_up_proj"},
    {.model_type = "glm4", .architecture = "glm4", .names = kGlmNames, .defaults = kGlmDefaults},
    {.model_type = "glm4_moe", .architecture = "glm4moe", .defaults = kGlmDefaults},
    {.model_type = "olmo2", .architecture = "olmo2", .names = kPostNormNames},
    {.model_type = "olmo3", .architecture = "olmo2", .names = kPostNormNames},
    {.model_type = "granite", .architecture = "granite", .swaps_halves = true},
    {.model_type = "granitemoe", .architecture = "granitemoe", .names = kGraniteExpertNames, .swaps_halves = true},
    {.model_type = "granitemoeshared",
     .architecture = "granitemoe",
     .names = kGraniteExpertNames,
     .swaps_halves = true},
    {.model_type = "deepseek_v2", .architecture = "deepseek2"},
    {.model_type = "deepseek_v3", .architecture = "deepseek2"},
    {.model_type = "dots1", .architecture = "dots1"},
    {.model_type = "minimax_m2", .architecture = "minimax-m2", .names = kMixtralNames},
    {.model_type = "seed_oss", .architecture = "seed_oss"},
    {.model_type = "smollm3", .architecture = "smollm3", .swaps_halves = true},
    {.model_type = "ernie4_5", .architecture = "ernie4_5"},
    {.model_type = "cohere", .architecture = "command-r"},
    {.model_type = "cohere2", .architecture = "cohere2", .defaults = kCohere2Defaults},
    {.model_type = "starcoder2",
     .architecture = "starcoder2",
     .names = "ffn_up=mlp.c_fc ffn_down=mlp.c_proj",
     .uses_gelu = true},
    {.model_type = "lfm2", .architecture = "lfm2", .names = kLfmNames},
    {.model_type = "lfm2_moe", .architecture = "lfm2moe", .names = kLfmNames},
    {.model_type = "bert", .architecture = "bert", .names = kBertNames, .uses_gelu = true},
};

}  // namespace

std::span<const HfFamily> hf_families() {
  return kFamilies;
}

const HfFamily* find_hf_family(std::string_view model_type) {
  const auto* found = std::ranges::find(kFamilies, model_type, &HfFamily::model_type);
  return found == std::end(kFamilies) ? nullptr : found;
}

std::string_view nearest_hf_family(std::string_view model_type) {
  std::string_view nearest = "llama";
  for (const std::string_view plain : {"qwen2", "qwen3"}) {
    if (spelling_distance(model_type, plain) < spelling_distance(model_type, nearest)) nearest = plain;
  }
  for (const HfFamily& family : kFamilies) {
    if (spelling_distance(model_type, family.model_type) < spelling_distance(model_type, nearest))
      nearest = family.model_type;
  }
  return nearest;
}

nlohmann::json with_class_defaults(const nlohmann::json& config, const HfFamily& family) {
  if (family.defaults.empty()) return config;
  nlohmann::json out = nlohmann::json::parse(family.defaults);
  out.update(config);
  return out;
}

}  // namespace quire
