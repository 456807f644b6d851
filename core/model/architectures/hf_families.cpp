#include "core/model/architectures/hf_families.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/model/architectures/hf_translation.h"
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
constexpr std::string_view kDistilNames =
    "token_embd=embeddings.word_embeddings position_embd=embeddings.position_embeddings "
    "token_embd_norm=embeddings.LayerNorm attn_q=attention.q_lin attn_k=attention.k_lin attn_v=attention.v_lin "
    "attn_output=attention.out_lin attn_output_norm=sa_layer_norm ffn_up=ffn.lin1 ffn_down=ffn.lin2 "
    "layer_output_norm=output_layer_norm";
constexpr std::string_view kGlmNames =
    "post_attention_norm=post_self_attn_layernorm post_ffw_norm=post_mlp_layernorm ffn_up=mlp.gate_up_proj";
constexpr std::string_view kGraniteExpertNames =
    "ffn_gate_inp=block_sparse_moe.router.layer ffn_gate_up_exps=block_sparse_moe.input_linear "
    "ffn_down_exps=block_sparse_moe.output_linear ffn_down_shexp=shared_mlp.output_linear";
constexpr std::string_view kGptOssNames =
    "post_attention_norm=post_attention_layernorm ffn_norm= ffn_gate_inp=mlp.router";

constexpr std::string_view kGraniteHybridNames =
    "ssm_in=mamba.in_proj ssm_conv1d=mamba.conv1d ssm_dt=mamba.dt_bias$ ssm_a=mamba.A_log$ ssm_d=mamba.D$ "
    "ssm_norm=mamba.norm ssm_out=mamba.out_proj ffn_down=shared_mlp.output_linear "
    "ffn_gate_inp=block_sparse_moe.router.layer ffn_gate_up_exps=block_sparse_moe.input_linear "
    "ffn_down_exps=block_sparse_moe.output_linear ffn_down_shexp=shared_mlp.output_linear";
constexpr std::string_view kFalconH1Names =
    "output_norm=final_layernorm ssm_in=mamba.in_proj ssm_conv1d=mamba.conv1d ssm_dt=mamba.dt_bias$ "
    "ssm_a=mamba.A_log$ ssm_d=mamba.D$ ssm_norm=mamba.norm ssm_out=mamba.out_proj ffn_norm=pre_ff_layernorm "
    "ffn_gate=feed_forward.gate_proj ffn_up=feed_forward.up_proj ffn_down=feed_forward.down_proj";
constexpr std::string_view kNemotronNames =
    "token_embd=embeddings output_norm=norm_f attn_norm=norm attn_q=mixer.q_proj attn_k=mixer.k_proj "
    "attn_v=mixer.v_proj attn_output=mixer.o_proj ffn_up=mixer.up_proj ffn_down=mixer.down_proj "
    "ffn_gate_inp=mixer.gate exp_probs_b=mixer.gate.e_score_correction_bias$ ffn_up_exps=mixer.experts.#.up_proj "
    "ffn_down_exps=mixer.experts.#.down_proj ffn_up_shexp=mixer.shared_experts.up_proj "
    "ffn_down_shexp=mixer.shared_experts.down_proj ffn_latent_down=mixer.fc1_latent_proj "
    "ffn_latent_up=mixer.fc2_latent_proj ssm_in=mixer.in_proj ssm_conv1d=mixer.conv1d ssm_dt=mixer.dt_bias$ "
    "ssm_a=mixer.A_log$ ssm_d=mixer.D$ ssm_norm=mixer.norm ssm_out=mixer.out_proj";
constexpr std::string_view kMambaOneNames =
    "token_embd=embeddings|embedding output_norm=norm_f attn_norm=norm ssm_in=mixer.in_proj ssm_conv1d=mixer.conv1d "
    "ssm_x=mixer.x_proj ssm_dt=mixer.dt_proj ssm_a=mixer.A_log$ ssm_d=mixer.D$ ssm_out=mixer.out_proj";
constexpr std::string_view kJambaNames =
    "output_norm=final_layernorm ffn_norm=pre_ff_layernorm ssm_in=mamba.in_proj ssm_conv1d=mamba.conv1d "
    "ssm_x=mamba.x_proj ssm_dt=mamba.dt_proj ssm_a=mamba.A_log$ ssm_d=mamba.D$ ssm_out=mamba.out_proj "
    "ssm_dt_norm=mamba.dt_layernorm ssm_b_norm=mamba.b_layernorm ssm_c_norm=mamba.c_layernorm "
    "ffn_gate=feed_forward.gate_proj ffn_up=feed_forward.up_proj ffn_down=feed_forward.down_proj "
    "ffn_gate_inp=feed_forward.router ffn_gate_exps=feed_forward.experts.#.gate_proj "
    "ffn_up_exps=feed_forward.experts.#.up_proj ffn_down_exps=feed_forward.experts.#.down_proj";
constexpr std::string_view kKimiNames =
    "ssm_conv1d_q=self_attn.q_conv1d ssm_conv1d_k=self_attn.k_conv1d ssm_conv1d_v=self_attn.v_conv1d "
    "ssm_f_a=self_attn.f_a_proj ssm_f_b=self_attn.f_b_proj ssm_g_a=self_attn.g_a_proj ssm_g_b=self_attn.g_b_proj "
    "ssm_beta=self_attn.b_proj ssm_dt=self_attn.dt_bias$ ssm_a=self_attn.A_log$ ssm_norm=self_attn.o_norm "
    "ffn_gate_inp=block_sparse_moe.gate exp_probs_b=block_sparse_moe.gate.e_score_correction_bias$ "
    "ffn_gate_exps=block_sparse_moe.experts.#.w1 ffn_up_exps=block_sparse_moe.experts.#.w3 "
    "ffn_down_exps=block_sparse_moe.experts.#.w2 ffn_gate_shexp=block_sparse_moe.shared_experts.gate_proj "
    "ffn_up_shexp=block_sparse_moe.shared_experts.up_proj ffn_down_shexp=block_sparse_moe.shared_experts.down_proj";
constexpr std::string_view kHunyuanNames =
    "attn_q_norm=self_attn.query_layernorm attn_k_norm=self_attn.key_layernorm ffn_gate_inp=mlp.gate.wg "
    "ffn_gate_shexp=mlp.shared_mlp.gate_proj ffn_up_shexp=mlp.shared_mlp.up_proj "
    "ffn_down_shexp=mlp.shared_mlp.down_proj";
constexpr std::string_view kBailingNames =
    "token_embd=word_embeddings attn_qkv=attention.query_key_value attn_output=attention.dense "
    "attn_q_norm=attention.query_layernorm attn_k_norm=attention.key_layernorm exp_probs_b=mlp.gate.expert_bias$";
constexpr std::string_view kBailingLinearNames =
    "token_embd=word_embeddings attn_qkv=attention.query_key_value attn_output=attention.dense "
    "attn_q_norm=attention.query_layernorm attn_k_norm=attention.key_layernorm attn_gate=attention.g_proj "
    "ssm_norm=attention.g_norm exp_probs_b=mlp.gate.expert_bias$";
constexpr std::string_view kErnieExpertNames = "exp_probs_b=mlp.moe_statics.e_score_correction_bias$";
constexpr std::string_view kLlama4Names =
    "ffn_gate=feed_forward.gate_proj ffn_up=feed_forward.up_proj ffn_down=feed_forward.down_proj "
    "ffn_gate_inp=feed_forward.router ffn_gate_shexp=feed_forward.shared_expert.gate_proj "
    "ffn_up_shexp=feed_forward.shared_expert.up_proj ffn_down_shexp=feed_forward.shared_expert.down_proj";
constexpr std::string_view kFusedExpertNames =
    "ffn_gate_up_exps=mlp.experts.gate_up_proj$ ffn_down_exps=mlp.experts.down_proj$|mlp.experts.#.down_proj";
constexpr std::string_view kApertusNames =
    "attn_norm=attention_layernorm ffn_norm=feedforward_layernorm attn_q_norm=self_attn.q_norm "
    "attn_k_norm=self_attn.k_norm";
constexpr std::string_view kNomicNames =
    "token_embd=embeddings.word_embeddings token_types=embeddings.token_type_embeddings token_embd_norm=emb_ln "
    "attn_qkv=attn.Wqkv attn_output=attn.out_proj attn_output_norm=norm1 layer_output_norm=norm2 "
    "ffn_up=mlp.fc11|mlp.fc1 ffn_gate=mlp.fc12 ffn_down=mlp.fc2 ffn_gate_inp=mlp.router.layer "
    "ffn_exps_bias=mlp.experts.bias$";
constexpr std::string_view kJinaV2Names =
    "token_embd=embeddings.word_embeddings token_types=embeddings.token_type_embeddings "
    "token_embd_norm=embeddings.LayerNorm attn_q=attention.self.query attn_k=attention.self.key "
    "attn_v=attention.self.value attn_output=attention.output.dense attn_output_norm=attention.output.LayerNorm "
    "ffn_up=mlp.gated_layers ffn_down=mlp.wo layer_output_norm=mlp.layernorm";
constexpr std::string_view kJinaV3Names =
    "token_embd=embeddings.word_embeddings token_types=embeddings.token_type_embeddings token_embd_norm=emb_ln "
    "attn_qkv=mixer.Wqkv attn_output=mixer.out_proj attn_output_norm=norm1 layer_output_norm=norm2 ffn_up=mlp.fc1 "
    "ffn_down=mlp.fc2";
constexpr std::string_view kModernBertNames =
    "token_embd=embeddings.tok_embeddings token_embd_norm=embeddings.norm attn_norm=attn_norm attn_qkv=attn.Wqkv "
    "attn_output=attn.Wo ffn_norm=mlp_norm ffn_up=mlp.Wi ffn_down=mlp.Wo output_norm=final_norm cls=^head.dense "
    "cls.norm=^head.norm cls.output=^classifier";

constexpr std::string_view kMistralDefaults =
    R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "sliding_window": 4096})";
constexpr std::string_view kGemma2Defaults =
    R"({"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "query_pre_attn_scalar": 256, "sliding_window": 4096})";
constexpr std::string_view kGemma3Defaults =
    R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "query_pre_attn_scalar": 256,
        "sliding_window": 4096})";
constexpr std::string_view kGemma3nDefaults =
    R"({"vocab_size": 262400, "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 35,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "sliding_window": 512,
        "final_logit_softcapping": 30.0})";
constexpr std::string_view kGemma4Defaults =
    R"({"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30,
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "sliding_window": 512,
        "final_logit_softcapping": null,
        "rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                                               "rope_theta": 1000000.0}}})";
constexpr std::string_view kQwenHybridDefaults = R"({"head_dim": 256, "partial_rotary_factor": 0.25})";
constexpr std::string_view kLlama4Defaults = R"({"attention_chunk_size": 8192, "rope_theta": 500000.0})";
constexpr std::string_view kGlmDefaults = R"({"partial_rotary_factor": 0.5})";
constexpr std::string_view kGemmaDefaults = R"({"head_dim": 256, "rope_theta": 10000.0, "rms_norm_eps": 1e-6})";
constexpr std::string_view kStableLmDefaults = R"({"partial_rotary_factor": 0.25, "layer_norm_eps": 1e-5})";
constexpr std::string_view kBertDefaults = R"({"hidden_act": "gelu"})";
constexpr std::string_view kDistilDefaults = R"({"activation": "gelu"})";
constexpr std::string_view kModernBertDefaults =
    R"({"hidden_activation": "gelu", "global_attn_every_n_layers": 3, "local_attention": 128, "norm_eps": 1e-5})";
constexpr std::string_view kCohere2Defaults =
    R"({"rope_theta": 10000.0, "sliding_window": 4096, "logit_scale": 0.0625, "layer_norm_eps": 1e-5})";

constexpr std::string_view kLlamaDefaults = R"({"rms_norm_eps": 1e-6, "tie_word_embeddings": false})";
constexpr std::string_view kQwen2Defaults =
    R"({"rms_norm_eps": 1e-6, "tie_word_embeddings": false, "use_sliding_window": false})";
constexpr std::string_view kQwen3Defaults =
    R"({"rms_norm_eps": 1e-6, "tie_word_embeddings": false, "use_sliding_window": false, "head_dim": 128})";

constexpr HfFamily kFamilies[] = {
    {.model_type = "llama",
     .architecture = "llama",
     .swaps_halves = true,
     .defaults = kLlamaDefaults,
     .translate = translate_llama},
    {.model_type = "qwen2", .architecture = "qwen2", .defaults = kQwen2Defaults, .translate = translate_qwen},
    {.model_type = "qwen3", .architecture = "qwen3", .defaults = kQwen3Defaults, .translate = translate_qwen},
    {.model_type = "mistral", .architecture = "llama", .swaps_halves = true, .defaults = kMistralDefaults},
    {.model_type = "mixtral", .architecture = "llama", .names = kMixtralNames, .swaps_halves = true},
    {.model_type = "ministral3", .architecture = "mistral3", .swaps_halves = true},
    {.model_type = "qwen2_moe", .architecture = "qwen2moe", .names = kQwenExpertNames},
    {.model_type = "qwen3_moe", .architecture = "qwen3moe", .names = kQwenExpertNames},
    {.model_type = "qwen2_vl", .architecture = "qwen2vl"},
    {.model_type = "qwen2_vl_text", .architecture = "qwen2vl"},
    {.model_type = "qwen2_5_vl", .architecture = "qwen2vl"},
    {.model_type = "qwen2_5_vl_text", .architecture = "qwen2vl"},
    {.model_type = "qwen3_vl_text", .architecture = "qwen3vl"},
    {.model_type = "qwen3_vl_moe_text", .architecture = "qwen3vlmoe", .column_experts = "mlp.experts"},
    {.model_type = "qwen3_5_text",
     .architecture = "qwen35",
     .names = kQwenHybridNames,
     .norms_minus_one = true,
     .defaults = kQwenHybridDefaults,
     .translate = translate_qwen_hybrid},
    {.model_type = "qwen3_5_moe_text",
     .architecture = "qwen35moe",
     .names = kQwenHybridFusedNames,
     .norms_minus_one = true,
     .defaults = kQwenHybridDefaults,
     .translate = translate_qwen_hybrid},
    {.model_type = "qwen3_next",
     .architecture = "qwen3next",
     .names = kQwenHybridNames,
     .norms_minus_one = true,
     .defaults = kQwenHybridDefaults,
     .translate = translate_qwen_hybrid},
    {.model_type = "gemma2",
     .architecture = "gemma2",
     .names = kGemmaNames,
     .norms_minus_one = true,
     .activation = "gelu",
     .defaults = kGemma2Defaults},
    {.model_type = "gemma3_text",
     .architecture = "gemma3",
     .names = kGemmaNames,
     .norms_minus_one = true,
     .activation = "gelu",
     .defaults = kGemma3Defaults},
    {.model_type = "gemma3n_text",
     .architecture = "gemma3n",
     .names = kGemmaNames,
     .activation = "gelu",
     .defaults = kGemma3nDefaults,
     .translate = translate_gemma3n},
    {.model_type = "gemma4_text",
     .architecture = "gemma4",
     .names = kGemmaNames,
     .activation = "gelu",
     .defaults = kGemma4Defaults,
     .translate = translate_gemma4},
    {.model_type = "gpt_oss",
     .architecture = "gpt-oss",
     .names = kGptOssNames,
     .column_experts = "mlp.experts",
     .pairs_experts = true,
     .translate = translate_gpt_oss},
    {.model_type = "phi3", .architecture = "phi3", .names = "ffn_up=mlp.gate_up_proj"},
    {.model_type = "phimoe",
     .architecture = "phimoe",
     .names = kMixtralNames,
     .defaults = R"({"router_jitter_noise": 0.01})",
     .translate = translate_phimoe},
    {.model_type = "glm4", .architecture = "glm4", .names = kGlmNames, .defaults = kGlmDefaults},
    {.model_type = "glm4_moe",
     .architecture = "glm4moe",
     .defaults = kGlmDefaults,
     .translate = translate_sigmoid_experts},
    {.model_type = "olmo2", .architecture = "olmo2", .names = kPostNormNames},
    {.model_type = "olmo3", .architecture = "olmo2", .names = kPostNormNames},
    {.model_type = "granite", .architecture = "granite", .swaps_halves = true},
    {.model_type = "granitemoe", .architecture = "granitemoe", .names = kGraniteExpertNames, .swaps_halves = true},
    {.model_type = "granitemoeshared",
     .architecture = "granitemoe",
     .names = kGraniteExpertNames,
     .swaps_halves = true},
    {.model_type = "deepseek_v2", .architecture = "deepseek2", .translate = translate_latent},
    {.model_type = "deepseek_v3", .architecture = "deepseek2", .translate = translate_latent},
    {.model_type = "kimi_k2", .architecture = "deepseek2", .translate = translate_latent},
    {.model_type = "dots1", .architecture = "dots1", .translate = translate_sigmoid_experts},
    {.model_type = "minimax_m2", .architecture = "minimax-m2", .names = kMixtralNames, .translate = translate_minimax},
    {.model_type = "seed_oss", .architecture = "seed_oss"},
    {.model_type = "smollm3", .architecture = "smollm3", .swaps_halves = true, .translate = translate_smollm3},
    {.model_type = "ernie4_5", .architecture = "ernie4_5"},
    {.model_type = "cohere", .architecture = "command-r"},
    {.model_type = "cohere2", .architecture = "cohere2", .defaults = kCohere2Defaults, .translate = translate_cohere2},
    {.model_type = "starcoder2",
     .architecture = "starcoder2",
     .names = "ffn_up=mlp.c_fc ffn_down=mlp.c_proj",
     .activation = "gelu"},
    {.model_type = "lfm2", .architecture = "lfm2", .names = kLfmNames, .translate = translate_lfm2},
    {.model_type = "lfm2_moe", .architecture = "lfm2moe", .names = kLfmNames, .translate = translate_lfm2_experts},
    {.model_type = "gemma",
     .architecture = "gemma",
     .norms_minus_one = true,
     .activation = "gelu",
     .defaults = kGemmaDefaults},
    {.model_type = "arcee", .architecture = "arcee", .swaps_halves = true, .activation = "relu2"},
    {.model_type = "olmoe", .architecture = "olmoe"},
    {.model_type = "exaone4", .architecture = "exaone4", .names = kPostNormNames, .translate = translate_exaone4},
    {.model_type = "hunyuan_v1_dense",
     .architecture = "hunyuan-dense",
     .names = kHunyuanNames,
     .translate = translate_hunyuan},
    {.model_type = "hunyuan_v1_moe",
     .architecture = "hunyuan-moe",
     .names = kHunyuanNames,
     .translate = translate_hunyuan},
    {.model_type = "hunyuan", .architecture = "hunyuan-moe", .names = kHunyuanNames, .translate = translate_hunyuan},
    {.model_type = "bailing_moe_v2",
     .architecture = "bailingmoe2",
     .names = kBailingNames,
     .defaults = kGlmDefaults,
     .translate = translate_bailing},
    {.model_type = "bailing_moe",
     .architecture = "bailingmoe2",
     .names = kBailingNames,
     .defaults = kGlmDefaults,
     .translate = translate_bailing},
    {.model_type = "bailing_moe_linear",
     .architecture = "bailing-moe-linear",
     .names = kBailingLinearNames,
     .defaults = kGlmDefaults,
     .translate = translate_bailing_linear},
    {.model_type = "ernie4_5_moe",
     .architecture = "ernie4_5-moe",
     .names = kErnieExpertNames,
     .translate = translate_ernie_experts},
    {.model_type = "mistral4", .architecture = "mistral4", .names = kFusedExpertNames, .translate = translate_latent},
    {.model_type = "glm4_moe_lite",
     .architecture = "deepseek2",
     .names = kFusedExpertNames,
     .translate = translate_glm_lite},
    {.model_type = "llama4_text",
     .architecture = "llama4",
     .names = kLlama4Names,
     .column_experts = "feed_forward.experts",
     .defaults = kLlama4Defaults,
     .translate = translate_llama4},
    {.model_type = "mimo_v2_flash",
     .architecture = "mimo2",
     .names = "attn_sinks=self_attn.attention_sink_bias$",
     .translate = translate_mimo2},
    {.model_type = "mimo_v2",
     .architecture = "mimo2",
     .names = "attn_sinks=self_attn.attention_sink_bias$",
     .translate = translate_mimo2},
    {.model_type = "stablelm",
     .architecture = "stablelm",
     .defaults = kStableLmDefaults,
     .translate = translate_stablelm},
    {.model_type = "apertus",
     .architecture = "apertus",
     .names = kApertusNames,
     .activation = "xielu",
     .translate = translate_apertus},
    {.model_type = "granitemoehybrid",
     .architecture = "granitehybrid",
     .names = kGraniteHybridNames,
     .swaps_halves = true,
     .translate = translate_granite_hybrid},
    {.model_type = "falcon_h1", .architecture = "falcon-h1", .names = kFalconH1Names, .translate = translate_falcon_h1},
    {.model_type = "nemotron_h",
     .architecture = "nemotron_h",
     .names = kNemotronNames,
     .activation = "relu2",
     .translate = translate_nemotron_h},
    {.model_type = "kimi_linear",
     .architecture = "kimi-linear",
     .names = kKimiNames,
     .translate = translate_kimi_linear},
    {.model_type = "mamba", .architecture = "mamba", .names = kMambaOneNames, .translate = translate_mamba},
    {.model_type = "falcon_mamba", .architecture = "mamba", .names = kMambaOneNames, .translate = translate_mamba},
    {.model_type = "mamba2", .architecture = "mamba2", .names = kNemotronNames, .translate = translate_mamba2},
    {.model_type = "jamba", .architecture = "jamba", .names = kJambaNames, .translate = translate_jamba},
    {.model_type = "bert",
     .architecture = "bert",
     .names = kBertNames,
     .layers = "encoder.layer",
     .activation = "gelu",
     .defaults = kBertDefaults,
     .translate = translate_bert},
    {.model_type = "roberta",
     .architecture = "bert",
     .names = kBertNames,
     .layers = "encoder.layer",
     .activation = "gelu",
     .defaults = kBertDefaults,
     .translate = translate_roberta},
    {.model_type = "xlm-roberta",
     .architecture = "bert",
     .names = kBertNames,
     .layers = "encoder.layer",
     .activation = "gelu",
     .defaults = kBertDefaults,
     .translate = translate_roberta},
    {.model_type = "camembert",
     .architecture = "bert",
     .names = kBertNames,
     .layers = "encoder.layer",
     .activation = "gelu",
     .defaults = kBertDefaults,
     .translate = translate_roberta},
    {.model_type = "distilbert",
     .architecture = "bert",
     .names = kDistilNames,
     .layers = "transformer.layer",
     .activation = "gelu",
     .defaults = kDistilDefaults,
     .translate = translate_distilbert},
    {.model_type = "nomic_bert",
     .architecture = "nomic-bert",
     .names = kNomicNames,
     .layers = "encoder.layers",
     .activation = "",
     .translate = translate_nomic_bert},
    {.model_type = "bert (alibi)",
     .architecture = "jina-bert-v2",
     .names = kJinaV2Names,
     .layers = "encoder.layer",
     .activation = "gelu",
     .defaults = kBertDefaults,
     .translate = translate_jina_v2},
    {.model_type = "xlm-roberta (rotary)",
     .architecture = "jina-bert-v3",
     .names = kJinaV3Names,
     .layers = "encoder.layers",
     .activation = "gelu",
     .defaults = kBertDefaults,
     .translate = translate_jina_v3},
    {.model_type = "modernbert",
     .architecture = "modern-bert",
     .names = kModernBertNames,
     .activation = "gelu",
     .defaults = kModernBertDefaults,
     .translate = translate_modern_bert},
};

}  // namespace

std::span<const HfFamily> hf_families() {
  return kFamilies;
}

const HfFamily* find_hf_family(std::string_view model_type) {
  const auto* found = std::ranges::find(kFamilies, model_type, &HfFamily::model_type);
  return found == std::end(kFamilies) ? nullptr : found;
}

// Jina's encoders state the model type of the class that they were derived from.
const HfFamily* hf_family_of(const nlohmann::json& config) {
  const auto text = [&](const char* key) {
    const auto found = config.find(key);
    return found != config.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const std::string type = text("model_type");
  const std::string positions = text("position_embedding_type");
  if (type == "bert" && positions == "alibi") return find_hf_family("bert (alibi)");
  if (type == "xlm-roberta" && positions == "rotary") return find_hf_family("xlm-roberta (rotary)");
  return find_hf_family(type);
}

std::string_view nearest_hf_family(std::string_view model_type) {
  std::string_view nearest = kFamilies[0].model_type;
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
