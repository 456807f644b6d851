#include "core/model/architectures/hf_families.h"

#include <algorithm>

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

constexpr HfFamily kFamilies[] = {
    {"mistral", "llama", "", true},
    {"mixtral", "llama", kMixtralNames, true},
    {"ministral3", "mistral3", "", true},
    {"qwen2_moe", "qwen2moe", kQwenExpertNames},
    {"qwen3_moe", "qwen3moe", kQwenExpertNames},
    {"qwen3_vl_text", "qwen3vl", ""},
    {"qwen3_vl_moe_text", "qwen3vlmoe", "", false, false, false, "mlp.experts"},
    {"qwen3_5_text", "qwen35", kQwenHybridNames, false, true},
    {"qwen3_5_moe_text", "qwen35moe", kQwenHybridFusedNames, false, true},
    {"qwen3_next", "qwen3next", kQwenHybridNames, false, true},
    {"gemma2", "gemma2", kGemmaNames, false, true, true},
    {"gemma3_text", "gemma3", kGemmaNames, false, true, true},
    {"gemma4_text", "gemma4", kGemmaNames, false, false, true},
    {"gpt_oss", "gpt-oss", kGptOssNames, false, false, false, "mlp.experts", true},
    {"phi3", "phi3", "ffn_up=mlp.gate_up_proj"},
    {"glm4", "glm4", kGlmNames},
    {"glm4_moe", "glm4moe", ""},
    {"olmo2", "olmo2", kPostNormNames},
    {"olmo3", "olmo2", kPostNormNames},
    {"granite", "granite", "", true},
    {"granitemoe", "granitemoe", kGraniteExpertNames, true},
    {"granitemoeshared", "granitemoe", kGraniteExpertNames, true},
    {"deepseek_v2", "deepseek2", ""},
    {"deepseek_v3", "deepseek2", ""},
    {"dots1", "dots1", ""},
    {"minimax_m2", "minimax-m2", kMixtralNames},
    {"seed_oss", "seed_oss", ""},
    {"smollm3", "smollm3", "", true},
    {"ernie4_5", "ernie4_5", ""},
    {"cohere", "command-r", ""},
    {"cohere2", "cohere2", ""},
    {"starcoder2", "starcoder2", "ffn_up=mlp.c_fc ffn_down=mlp.c_proj", false, false, true},
    {"lfm2", "lfm2", kLfmNames},
    {"lfm2_moe", "lfm2moe", kLfmNames},
    {"bert", "bert", kBertNames, false, false, true},
};

}  // namespace

const HfFamily* find_hf_family(std::string_view model_type) {
  const auto* found = std::ranges::find(kFamilies, model_type, &HfFamily::model_type);
  return found == std::end(kFamilies) ? nullptr : found;
}

}  // namespace quire
