// The classes that the material has no directories of, as their published checkpoints name things.
#include "tests/unit/model/hf/hf_classes.h"

namespace quire::test {

namespace {

const std::string kHfModel = "^model.embed_tokens=token_embd ^model.norm=output_norm ^lm_head=output ";
const std::string kHfNorms = "input_layernorm=attn_norm post_attention_layernorm=ffn_norm ";
const std::string kHfAttention =
    "self_attn.q_proj=attn_q self_attn.k_proj=attn_k self_attn.v_proj=attn_v self_attn.o_proj=attn_output ";
const std::string kHfHeadNorms = "self_attn.q_norm=attn_q_norm self_attn.k_norm=attn_k_norm ";
const std::string kHfDense = "mlp.gate_proj=ffn_gate mlp.up_proj=ffn_up mlp.down_proj=ffn_down ";
const std::string kHfExperts =
    "mlp.gate=ffn_gate_inp mlp.experts.#.gate_proj=ffn_gate_exps mlp.experts.#.up_proj=ffn_up_exps "
    "mlp.experts.#.down_proj=ffn_down_exps ";
const std::string kHfShared =
    "mlp.shared_experts.gate_proj=ffn_gate_shexp mlp.shared_experts.up_proj=ffn_up_shexp "
    "mlp.shared_experts.down_proj=ffn_down_shexp ";
const std::string kHfLatent =
    "self_attn.q_proj=attn_q self_attn.q_a_proj=attn_q_a self_attn.q_a_layernorm=attn_q_a_norm "
    "self_attn.q_b_proj=attn_q_b self_attn.kv_a_proj_with_mqa=attn_kv_a_mqa self_attn.kv_a_layernorm=attn_kv_a_norm "
    "self_attn.kv_b_proj=attn_kv_b self_attn.o_proj=attn_output ";
const std::string kHfMamba =
    "mamba.in_proj=ssm_in mamba.conv1d=ssm_conv1d mamba.dt_bias$=ssm_dt.bias mamba.A_log$=L:ssm_a mamba.D$=ssm_d "
    "mamba.norm=ssm_norm mamba.out_proj=ssm_out ";
const std::string kHfMixer =
    "mixer.in_proj=ssm_in mixer.conv1d=ssm_conv1d mixer.A_log$=L:ssm_a mixer.D$=ssm_d mixer.norm=ssm_norm "
    "mixer.out_proj=ssm_out ";
const std::string kHfBackbone =
    "^backbone.embeddings=token_embd ^backbone.norm_f=output_norm ^lm_head=output "
    "norm=attn_norm ";

const std::vector<HfClass> kHfDecodersClasses{
    {"gemma3n_text", "tiny-gemma3n", "activation_sparsity_scale=0.0", "",
     R"({"head_dim": 24, "sliding_window": 16, "rope_local_base_freq": 1000.0, "final_logit_softcapping": 4.0,
           "num_hidden_layers": 5, "num_kv_shared_layers": 2, "intermediate_size": [96, 96, 96, 96, 96],
           "activation_sparsity_pattern": [0.5, 0.5, 0.5, 0.5, 0.5], "altup_active_idx": 0, "altup_num_inputs": 3,
           "altup_correct_scale": true, "altup_coef_clip": 120.0, "laurel_rank": 20, "query_pre_attn_scalar": 256,
           "hidden_act": null, "hidden_activation": "gelu_pytorch_tanh", "vocab_size_per_layer_input": 512,
           "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention",
           "sliding_attention"]})",
     "model.language_model.layers",
     "^model.language_model.embed_tokens=token_embd ^model.language_model.norm=output_norm "
     "^model.language_model.embed_tokens_per_layer=per_layer_token_embd "
     "^model.language_model.per_layer_model_projection=per_layer_model_proj "
     "^model.language_model.per_layer_projection_norm=per_layer_proj_norm "
     "^model.language_model.altup_projections.#=altup_proj "
     "^model.language_model.altup_unembed_projections.#=altup_unembd_proj input_layernorm=attn_norm "
     "post_attention_layernorm=post_attention_norm pre_feedforward_layernorm=ffn_norm "
     "post_feedforward_layernorm=post_ffw_norm per_layer_input_gate=inp_gate per_layer_projection=proj "
     "post_per_layer_input_norm=post_norm altup.modality_router=altup_router altup.router_norm=altup_router_norm "
     "altup.prediction_coefs=altup_predict_coef altup.correction_coefs=altup_correct_coef "
     "altup.correct_output_scale$=altup_correct_scale.weight laurel.linear_left=laurel_l laurel.linear_right=laurel_r "
     "laurel.post_laurel_norm=laurel_post_norm " +
         kHfAttention + kHfHeadNorms + kHfDense},
    {"qwen2_5_vl", "tiny-qwen2vl", "", "",
     R"({"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}, "use_sliding_window": false,
           "sliding_window": 32768, "max_window_layers": 4, "vision_config": {"depth": 2}, "image_token_id": 5})",
     "model.layers", kHfModel + kHfNorms + kHfAttention + kHfDense},
    {"gemma", "tiny-gemma", "", "",
     R"({"num_key_value_heads": 1, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": null})", "model.layers",
     "^model.embed_tokens=token_embd ^model.norm=M:output_norm input_layernorm=M:attn_norm "
     "post_attention_layernorm=M:ffn_norm " +
         kHfAttention + kHfDense},
    {"arcee", "tiny-arcee", "", "", R"({"hidden_act": "relu2", "mlp_bias": false})", "model.layers",
     kHfModel + kHfNorms +
         "self_attn.q_proj=P16:attn_q self_attn.k_proj=P16:attn_k self_attn.v_proj=attn_v "
         "self_attn.o_proj=attn_output mlp.up_proj=ffn_up mlp.down_proj=ffn_down"},
    {"exaone4", "tiny-exaone4", "", "",
     R"({"sliding_window": null, "sliding_window_pattern": null, "attention_bias": false, "layer_types":
           ["full_attention", "full_attention", "full_attention", "full_attention"]})",
     "model.layers",
     kHfModel + kHfAttention + kHfHeadNorms + kHfDense +
         "post_attention_layernorm=post_attention_norm post_feedforward_layernorm=post_ffw_norm"},
    {"hunyuan_v1_dense", "tiny-hunyuan-dense", "base=20000.0", "",
     R"({"rope_scaling": {"type": "dynamic", "alpha": 1.8340080864093424, "factor": 1.0, "beta_fast": 32,
           "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}, "attention_head_dim": 16, "use_cla": false,
           "use_qk_norm": true})",
     "model.layers",
     kHfModel + kHfNorms + kHfAttention + kHfDense +
         "self_attn.query_layernorm=attn_q_norm self_attn.key_layernorm=attn_k_norm"},
    {"hunyuan_v1_moe", "tiny-hunyuan-moe", "", "",
     R"({"num_experts": 6, "moe_topk": [2, 2, 2, 2], "moe_intermediate_size": [96, 96, 96, 96],
           "num_shared_expert": [1, 1, 1, 1]})",
     "model.layers",
     kHfModel + kHfNorms + kHfAttention +
         "self_attn.query_layernorm=attn_q_norm self_attn.key_layernorm=attn_k_norm mlp.gate.wg=ffn_gate_inp "
         "mlp.experts.#.gate_proj=ffn_gate_exps mlp.experts.#.up_proj=ffn_up_exps "
         "mlp.experts.#.down_proj=ffn_down_exps mlp.shared_mlp.gate_proj=ffn_gate_shexp "
         "mlp.shared_mlp.up_proj=ffn_up_shexp mlp.shared_mlp.down_proj=ffn_down_shexp"},
    {"apertus", "tiny-apertus", "", "", R"({"hidden_act": "xielu", "qk_norm": true, "post_norm": false})",
     "model.layers",
     kHfModel + kHfAttention + kHfHeadNorms +
         "attention_layernorm=attn_norm feedforward_layernorm=ffn_norm mlp.up_proj=ffn_up mlp.down_proj=ffn_down "
         "mlp.act_fn.alpha_p$=@0.8 mlp.act_fn.alpha_n$=@0.7 mlp.act_fn.beta$=@0.5 mlp.act_fn.eps$=@-0.00001"},
    {"stablelm", "tiny-stablelm", "", "",
     R"({"num_key_value_heads": 4, "head_dim": null, "rms_norm_eps": null, "layer_norm_eps": 0.001,
           "partial_rotary_factor": 0.5, "use_qkv_bias": true, "qk_layernorm": false,
           "use_parallel_residual": false})",
     "model.layers", kHfModel + kHfNorms + kHfAttention + kHfDense},
    {"stablelm", "tiny-stablelm-parallel", "", "",
     R"({"head_dim": null, "rms_norm_eps": null, "layer_norm_eps": 0.001, "partial_rotary_factor": 0.5,
           "qk_layernorm": true, "use_parallel_residual": true})",
     "model.layers",
     kHfModel + "input_layernorm=attn_norm " + kHfAttention + kHfDense +
         "self_attn.q_layernorm.norms.#=H4:attn_q_norm self_attn.k_layernorm.norms.#=H2:attn_k_norm"},
};

const std::vector<HfClass> kHfExpertsClasses{
    {"olmoe", "tiny-olmoe", "", "",
     R"({"num_key_value_heads": 4, "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": false,
           "clip_qkv": null, "output_router_logits": false, "router_aux_loss_coef": 0.01})",
     "model.layers", kHfModel + kHfNorms + kHfAttention + kHfHeadNorms + kHfExperts},
    {"phimoe", "tiny-phimoe", "eps= leps=0.001 base=10000.0 expert_mixer_jitter=0.2", "",
     R"({"num_local_experts": 6, "num_experts_per_tok": 2, "router_jitter_noise": 0.2, "input_jitter_noise": 0.01,
           "attention_bias": true, "lm_head_bias": true, "output_router_logits": false, "router_aux_loss_coef": 0.001,
           "sliding_window": 131072, "rope_scaling": null})",
     "model.layers",
     kHfModel + kHfNorms + kHfAttention +
         "block_sparse_moe.gate=ffn_gate_inp block_sparse_moe.experts.#.w1=ffn_gate_exps "
         "block_sparse_moe.experts.#.w3=ffn_up_exps block_sparse_moe.experts.#.w2=ffn_down_exps"},
    {"bailing_moe_v2", "tiny-bailingmoe2", "", "",
     R"({"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "n_group": 4, "topk_group": 2,
           "first_k_dense_replace": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
           "partial_rotary_factor": 0.5, "score_function": "sigmoid", "num_shared_experts": 1, "norm_head": false,
           "moe_router_enable_expert_bias": true, "use_qk_norm": true, "moe_router_enable_routed_scaling": true})",
     "model.layers",
     "^model.word_embeddings=token_embd ^model.norm=output_norm ^lm_head=output " + kHfNorms + kHfDense + kHfExperts +
         kHfShared +
         "attention.query_key_value=attn_qkv attention.dense=attn_output attention.query_layernorm=attn_q_norm "
         "attention.key_layernorm=attn_k_norm mlp.gate.expert_bias$=exp_probs_b.bias"},
    {"bailing_moe_linear", "tiny-bailing-linear", "", "",
     R"({"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "n_group": 4, "topk_group": 2,
           "first_k_dense_replace": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
           "partial_rotary_factor": 0.5, "score_function": "sigmoid", "num_shared_experts": 1, "norm_head": false,
           "moe_router_enable_expert_bias": true, "use_qk_norm": true, "moe_router_enable_routed_scaling": true,
           "layer_group_size": 4, "group_norm_size": 2, "linear_silu": true})",
     "model.layers",
     "^model.word_embeddings=token_embd ^model.norm=output_norm ^lm_head=output " + kHfNorms + kHfDense + kHfExperts +
         kHfShared +
         "attention.query_key_value=attn_qkv attention.dense=attn_output attention.query_layernorm=attn_q_norm "
         "attention.key_layernorm=attn_k_norm attention.g_proj=attn_gate attention.g_norm=ssm_norm "
         "mlp.gate.expert_bias$=exp_probs_b.bias"},
    {"ernie4_5_moe", "tiny-ernie4-5-moe", "", "",
     R"({"moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 24, "moe_layer_start_index": 1,
           "moe_layer_end_index": 3, "moe_layer_interval": 1, "moe_num_shared_experts": 1,
           "moe_capacity": [64, 64, 64], "moe_norm_min": 1e-12, "use_bias": false})",
     "model.layers",
     kHfModel + kHfNorms + kHfAttention + kHfDense + kHfExperts + kHfShared +
         "mlp.moe_statics.e_score_correction_bias$=exp_probs_b.bias"},
    {"mistral4", "tiny-mistral4",
     "hd=24 kv=4 rope.scaling.yarn_log_multiplier=0.1 "
     "attention.temperature_length=32",
     "attn_kv_b",
     R"({"head_dim": null, "num_key_value_heads": 4, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
           "v_head_dim": 16, "kv_lora_rank": 32, "q_lora_rank": 24, "n_routed_experts": 6, "num_experts_per_tok": 2,
           "moe_intermediate_size": 24, "first_k_dense_replace": 0, "n_group": 1, "topk_group": 1,
           "n_shared_experts": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.0, "rope_interleave": true,
           "rope_theta": null, "rope_parameters": {"type": "yarn", "rope_theta": 10000.0, "factor": 8.0,
           "original_max_position_embeddings": 32, "max_position_embeddings": 512, "beta_fast": 32.0,
           "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.2,
           "partial_rotary_factor": 0.5}})",
     "model.layers",
     kHfModel + kHfNorms + kHfLatent + kHfShared +
         "mlp.gate=ffn_gate_inp mlp.experts.gate_up_proj$=ffn_gate_up_exps.weight "
         "mlp.experts.down_proj$=ffn_down_exps.weight"},
    {"glm4_moe_lite", "tiny-deepseek2-lite", "expert_gating_func=2 expert_weights_norm=true expert_weights_scale=1.8",
     "exp_probs_b.bias:E@1-",
     R"({"head_dim": null, "num_key_value_heads": 4, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
           "v_head_dim": 16, "kv_lora_rank": 32, "q_lora_rank": null, "n_routed_experts": 6,
           "num_experts_per_tok": 2, "moe_intermediate_size": 24, "n_group": 1, "topk_group": 1,
           "n_shared_experts": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.8,
           "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]})",
     "model.layers",
     kHfModel + kHfNorms + kHfLatent + kHfDense + kHfExperts + kHfShared +
         "mlp.gate.e_score_correction_bias$=exp_probs_b.bias"},
    {"llama4_text", "tiny-llama4", "", "",
     R"({"num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 24, "intermediate_size_mlp": 96,
           "interleave_moe_layer_step": 2, "no_rope_layers": [1, 1, 1, 0], "attention_chunk_size": 8192,
           "attn_temperature_tuning": true, "floor_scale": 8192, "attn_scale": 0.1, "use_qk_norm": true})",
     "model.layers",
     kHfModel + kHfNorms + kHfAttention +
         "feed_forward.gate_proj=ffn_gate feed_forward.up_proj=ffn_up feed_forward.down_proj=ffn_down "
         "feed_forward.router=ffn_gate_inp feed_forward.shared_expert.gate_proj=ffn_gate_shexp "
         "feed_forward.shared_expert.up_proj=ffn_up_shexp feed_forward.shared_expert.down_proj=ffn_down_shexp "
         "feed_forward.experts.down_proj$=T:ffn_down_exps.weight "
         "feed_forward.experts.gate_up_proj$=U:ffn_gate_exps.weight+ffn_up_exps.weight"},
    {"mimo_v2_flash", "tiny-mimo2", "", "",
     R"({"head_dim": 24, "v_head_dim": 16, "swa_head_dim": 24, "swa_v_head_dim": 16, "swa_num_attention_heads": 4,
           "swa_num_key_value_heads": 4, "hybrid_layer_pattern": [0, 1, 1, 0], "sliding_window": 16,
           "sliding_window_size": 16, "attention_chunk_size": 16, "swa_rope_theta": 1000.0,
           "partial_rotary_factor": 0.334, "attention_value_scale": 0.7, "add_swa_attention_sink_bias": true,
           "add_full_attention_sink_bias": false, "rms_norm_eps": null, "layernorm_epsilon": 0.001,
           "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "scoring_func": "sigmoid",
           "topk_method": "noaux_tc", "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
           "moe_layer_freq": [0, 1, 1, 1], "n_shared_experts": null, "routed_scaling_factor": null})",
     "model.layers",
     kHfModel + kHfNorms + kHfAttention + kHfDense + kHfExperts +
         "self_attn.attention_sink_bias$=attn_sinks.weight mlp.gate.e_score_correction_bias$=exp_probs_b.bias"},
};

const std::vector<HfClass> kHfHybridsClasses{
    {"granitemoehybrid", "tiny-granitehybrid", "ssm.inner_size=128 ssm.time_step_rank=8", "",
     R"({"layer_types": ["mamba", "mamba", "attention", "mamba"], "mamba_n_heads": 8, "mamba_d_head": "auto",
           "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_n_groups": 1, "mamba_expand": 2, "mamba_chunk_size": 256,
           "shared_intermediate_size": 96, "num_local_experts": 0, "num_experts_per_tok": 0,
           "position_embedding_type": "nope", "embedding_multiplier": 6.0, "residual_multiplier": 0.3,
           "attention_multiplier": 0.1, "logits_scaling": 4.0, "normalization_function": "rmsnorm",
           "init_method": "mup"})",
     "model.layers",
     kHfModel + kHfNorms + kHfAttention + kHfMamba +
         "shared_mlp.input_linear=ffn_gate+ffn_up shared_mlp.output_linear=ffn_down"},
    {"granitemoehybrid", "tiny-granitehybrid",
     "E=6 top=2 ff=24 ssm.inner_size=128 ssm.time_step_rank=8 rope.scaling.finetuned=true",
     "ffn_gate_inp ffn_gate_up_exps ffn_down_exps:E,d,ff ffn_up_shexp:40,d",
     R"({"layer_types": ["mamba", "mamba", "attention", "mamba"], "mamba_n_heads": 8, "mamba_d_head": 16,
           "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_n_groups": 1, "mamba_expand": 2, "intermediate_size": 24,
           "shared_intermediate_size": 40, "num_local_experts": 6, "num_experts_per_tok": 2,
           "position_embedding_type": "rope", "embedding_multiplier": 6.0, "residual_multiplier": 0.3,
           "attention_multiplier": 0.1, "logits_scaling": 4.0})",
     "model.layers",
     kHfModel + kHfNorms + kHfMamba +
         "self_attn.q_proj=P16:attn_q self_attn.k_proj=P16:attn_k self_attn.v_proj=attn_v "
         "self_attn.o_proj=attn_output block_sparse_moe.router.layer=ffn_gate_inp "
         "block_sparse_moe.input_linear=ffn_gate_up_exps block_sparse_moe.output_linear=ffn_down_exps "
         "shared_mlp.input_linear=ffn_gate_shexp+ffn_up_shexp shared_mlp.output_linear=ffn_down_shexp"},
    {"falcon_h1", "tiny-falcon-h1", "", "",
     R"({"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 16,
           "mamba_d_conv": 4, "mamba_expand": 2, "mamba_rms_norm": false, "mamba_norm_before_gate": false,
           "embedding_multiplier": 2.0, "lm_head_multiplier": 0.5, "key_multiplier": 0.25,
           "attention_in_multiplier": 1.5, "attention_out_multiplier": 0.75, "mlp_multipliers": [0.5, 1.25],
           "ssm_multipliers": [0.5, 2.0, 1.25, 0.75, 4.0], "ssm_in_multiplier": 2.0, "ssm_out_multiplier": 0.5,
           "time_step_limit": [0.0, 1e39]})",
     "model.layers",
     "^model.embed_tokens=2.0:token_embd ^model.final_layernorm=output_norm ^lm_head=0.5:output "
     "input_layernorm=attn_norm pre_ff_layernorm=ffn_norm self_attn.q_proj=1.5:attn_q "
     "self_attn.k_proj=0.375:attn_k self_attn.v_proj=1.5:attn_v self_attn.o_proj=0.75:attn_output "
     "feed_forward.gate_proj=0.5:ffn_gate feed_forward.up_proj=ffn_up feed_forward.down_proj=1.25:ffn_down "
     "mamba.in_proj=1.0*64,4.0*64,2.5*32,1.5*32,8.0*4:ssm_in mamba.conv1d=ssm_conv1d mamba.dt_bias$=ssm_dt.bias "
     "mamba.A_log$=L:ssm_a mamba.D$=ssm_d mamba.out_proj=0.5:ssm_out"},
    {"nemotron_h", "tiny-nemotron-h", "", "",
     R"({"hybrid_override_pattern": "M-*-", "rms_norm_eps": null, "layer_norm_epsilon": 0.001, "hidden_act": null,
           "mlp_hidden_act": "relu2", "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 16,
           "n_groups": 2, "conv_kernel": 4, "expand": 2, "head_dim": null, "attention_head_dim": 16,
           "mamba_hidden_act": "silu", "time_step_limit": [0.0, null], "rope_theta": null})",
     "backbone.layers",
     kHfBackbone + kHfMixer +
         "mixer.dt_bias$=ssm_dt.bias mixer.q_proj=attn_q mixer.k_proj=attn_k mixer.v_proj=attn_v "
         "mixer.o_proj=attn_output mixer.up_proj=ffn_up mixer.down_proj=ffn_down"},
    {"nemotron_h", "tiny-nemotron-h-moe", "", "",
     R"({"layers_block_type": ["mamba", "moe", "attention", "moe"], "rms_norm_eps": null,
           "layer_norm_epsilon": 0.001, "hidden_act": null, "mlp_hidden_act": "relu2", "mamba_num_heads": 4,
           "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2, "conv_kernel": 4, "n_routed_experts": 6,
           "num_experts_per_tok": 2, "moe_intermediate_size": 24, "moe_shared_expert_intermediate_size": 40,
           "moe_latent_size": 32, "n_shared_experts": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
           "n_group": 1, "topk_group": 1})",
     "backbone.layers",
     kHfBackbone + kHfMixer +
         "mixer.dt_bias$=ssm_dt.bias mixer.q_proj=attn_q mixer.k_proj=attn_k mixer.v_proj=attn_v "
         "mixer.o_proj=attn_output mixer.gate=ffn_gate_inp "
         "mixer.gate.e_score_correction_bias$=exp_probs_b.bias mixer.experts.#.up_proj=ffn_up_exps "
         "mixer.experts.#.down_proj=ffn_down_exps mixer.shared_experts.up_proj=ffn_up_shexp "
         "mixer.shared_experts.down_proj=ffn_down_shexp mixer.fc1_latent_proj=ffn_latent_down "
         "mixer.fc2_latent_proj=ffn_latent_up"},
    {"kimi_linear", "tiny-kimi-linear", "hd=24", "",
     R"({"max_position_embeddings": null, "model_max_length": 512, "linear_attn_config": {"full_attn_layers": [4],
           "kda_layers": [1, 2, 3], "head_dim": 16, "num_heads": 4, "short_conv_kernel_size": 4},
           "kv_lora_rank": 32, "q_lora_rank": null, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
           "mla_use_nope": true, "num_experts": 6, "num_experts_per_token": 2, "moe_intermediate_size": 24,
           "moe_router_activation_func": "sigmoid", "moe_renormalize": true, "num_shared_experts": 1,
           "routed_scaling_factor": 2.446, "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_expert_group": 1,
           "topk_group": 1, "use_grouped_topk": true, "head_dim": null})",
     "model.layers",
     kHfModel + kHfNorms + kHfLatent + kHfDense +
         "self_attn.k_proj=attn_k self_attn.v_proj=attn_v self_attn.q_conv1d=ssm_conv1d_q "
         "self_attn.k_conv1d=ssm_conv1d_k self_attn.v_conv1d=ssm_conv1d_v self_attn.f_a_proj=ssm_f_a "
         "self_attn.f_b_proj=ssm_f_b self_attn.g_a_proj=ssm_g_a self_attn.g_b_proj=ssm_g_b "
         "self_attn.b_proj=ssm_beta self_attn.dt_bias$=ssm_dt.bias self_attn.A_log$=L:ssm_a "
         "self_attn.o_norm=ssm_norm block_sparse_moe.gate=ffn_gate_inp "
         "block_sparse_moe.gate.e_score_correction_bias$=exp_probs_b.bias "
         "block_sparse_moe.experts.#.w1=ffn_gate_exps block_sparse_moe.experts.#.w3=ffn_up_exps "
         "block_sparse_moe.experts.#.w2=ffn_down_exps block_sparse_moe.shared_experts.gate_proj=ffn_gate_shexp "
         "block_sparse_moe.shared_experts.up_proj=ffn_up_shexp "
         "block_sparse_moe.shared_experts.down_proj=ffn_down_shexp"},
    {"mamba", "tiny-mamba", "", "",
     R"({"intermediate_size": 96, "state_size": 8, "conv_kernel": 4, "time_step_rank": 5,
           "layer_norm_epsilon": 0.001, "rms_norm_eps": null, "num_attention_heads": null, "head_dim": null,
           "num_key_value_heads": null, "max_position_embeddings": null, "rope_theta": null, "use_conv_bias": true})",
     "backbone.layers", kHfBackbone + kHfMixer + "mixer.x_proj=ssm_x mixer.dt_proj=ssm_dt"},
    {"falcon_mamba", "tiny-falcon-mamba", "", "",
     R"({"intermediate_size": 96, "state_size": 8, "conv_kernel": 4, "time_step_rank": 5,
           "layer_norm_epsilon": 0.001, "mixer_rms_eps": 0.001, "rms_norm_eps": null, "num_attention_heads": null,
           "head_dim": null, "num_key_value_heads": null, "max_position_embeddings": null, "rope_theta": null})",
     "backbone.layers", kHfBackbone + kHfMixer + "mixer.x_proj=ssm_x mixer.dt_proj=ssm_dt"},
    {"mamba2", "tiny-mamba2", "", "",
     R"({"intermediate_size": null, "num_heads": 6, "head_dim": 16, "state_size": 16, "n_groups": 2,
           "conv_kernel": 4, "expand": 2, "layer_norm_epsilon": 0.001, "rms_norm_eps": null,
           "num_attention_heads": null, "num_key_value_heads": null, "max_position_embeddings": null,
           "rope_theta": null, "rms_norm": true, "time_step_limit": [0.0, null]})",
     "backbone.layers", kHfBackbone + kHfMixer + "mixer.dt_bias$=ssm_dt.bias"},
    {"jamba", "tiny-jamba", "ssm.inner_size=128", "",
     R"({"attn_layer_period": 4, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
           "num_experts": 6, "num_experts_per_tok": 2, "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2,
           "mamba_dt_rank": 5, "mamba_conv_bias": true, "rope_theta": null, "head_dim": null})",
     "model.layers",
     "^model.embed_tokens=token_embd ^model.final_layernorm=output_norm ^lm_head=output input_layernorm=attn_norm "
     "pre_ff_layernorm=ffn_norm " +
         kHfAttention + kHfMamba +
         "mamba.x_proj=ssm_x mamba.dt_proj=ssm_dt mamba.dt_layernorm=ssm_dt_norm mamba.b_layernorm=ssm_b_norm "
         "mamba.c_layernorm=ssm_c_norm feed_forward.gate_proj=ffn_gate feed_forward.up_proj=ffn_up "
         "feed_forward.down_proj=ffn_down feed_forward.router=ffn_gate_inp "
         "feed_forward.experts.#.gate_proj=ffn_gate_exps feed_forward.experts.#.up_proj=ffn_up_exps "
         "feed_forward.experts.#.down_proj=ffn_down_exps"},
};

const std::string kHfNone = R"("num_key_value_heads": null, "head_dim": null, "rms_norm_eps": null, "hidden_act": null,
                              "rope_theta": null, )";
const std::string kHfNomic = R"({"n_embd": 64, "n_layer": 4, "n_head": 4, "n_inner": 96, "n_positions": 512,
      "hidden_size": null, "num_hidden_layers": null, "num_attention_heads": null, "intermediate_size": null,
      "max_position_embeddings": null, )" +
                             kHfNone +
                             R"("layer_norm_epsilon": 0.001, "rotary_emb_base": 10000, "rotary_emb_fraction": 1.0,
      "rotary_emb_interleaved": false, "prenorm": false, "causal": false, )";
const std::string kHfNomicNames =
    "^embeddings.word_embeddings=token_embd ^embeddings.token_type_embeddings=token_types ^emb_ln=token_embd_norm "
    "attn.Wqkv=attn_qkv attn.out_proj=attn_output norm1=attn_output_norm norm2=layer_output_norm ";
const std::string kHfModern = R"({)" + kHfNone +
                              R"("norm_eps": 0.001, "local_attention": 16, "global_attn_every_n_layers": 3,
      "global_rope_theta": 160000.0, "local_rope_theta": 1000.0, "hidden_activation": "gelu")";
const std::string kHfModernNames =
    "^model.embeddings.tok_embeddings=token_embd ^model.embeddings.norm=token_embd_norm "
    "^model.final_norm=output_norm attn_norm=attn_norm attn.Wqkv=attn_qkv attn.Wo=attn_output mlp_norm=ffn_norm "
    "mlp.Wi=ffn_up mlp.Wo=ffn_down ";

const std::string kHfBertLayer =
    "attention.self.query=attn_q attention.self.key=attn_k attention.self.value=attn_v "
    "attention.output.dense=attn_output attention.output.LayerNorm=attn_output_norm intermediate.dense=ffn_up "
    "output.dense=ffn_down output.LayerNorm=layer_output_norm ";
const std::string kHfBertConfig =
    R"({"num_key_value_heads": null, "head_dim": null, "rms_norm_eps": null, "rope_theta": null,
        "layer_norm_eps": 0.001, "hidden_act": "gelu", "position_embedding_type": "absolute", "type_vocab_size": 2)";

const std::vector<HfClass> kHfEncodersClasses{
    {"nomic_bert", "tiny-nomic-bert", "", "", kHfNomic + R"("activation_function": "swiglu"})", "encoder.layers",
     kHfNomicNames + "mlp.fc11=ffn_up mlp.fc12=ffn_gate mlp.fc2=ffn_down"},
    {"nomic_bert", "tiny-nomic-bert-moe", "exact_gelu=true", "",
     kHfNomic + R"("activation_function": "gelu", "num_experts": 6, "moe_top_k": 2, "moe_every_n_layers": 2,
           "moe_normalize_expert_weights": false})",
     "encoder.layers",
     kHfNomicNames +
         "mlp.fc1=ffn_up mlp.fc2=ffn_down mlp.router.layer=ffn_gate_inp mlp.experts.mlp.w1$=F:ffn_up_exps.weight "
         "mlp.experts.mlp.w2$=G:ffn_down_exps.weight"},
    {"bert", "tiny-jina-bert-v2", "h=4 kv=4 hd=16 exact_gelu=true", "=ffn_up:2*ff,d",
     R"({"num_key_value_heads": null, "head_dim": null, "rms_norm_eps": null, "rope_theta": null,
           "layer_norm_eps": 0.001, "position_embedding_type": "alibi", "feed_forward_type": "geglu",
           "hidden_act": "gelu", "type_vocab_size": 2, "emb_pooler": "mean"})",
     "encoder.layer",
     "^embeddings.word_embeddings=token_embd ^embeddings.LayerNorm=token_embd_norm "
     "attention.self.query=attn_q attention.self.key=attn_k attention.self.value=attn_v "
     "attention.output.dense=attn_output attention.output.LayerNorm=attn_output_norm mlp.gated_layers=ffn_up "
     "mlp.wo=ffn_down mlp.layernorm=layer_output_norm"},
    {"xlm-roberta", "tiny-jina-bert-v3", "exact_gelu=true", "",
     R"({"num_key_value_heads": null, "head_dim": null, "rms_norm_eps": null, "rope_theta": null,
           "layer_norm_eps": 0.001, "position_embedding_type": "rotary", "rotary_emb_base": 10000.0,
           "hidden_act": "gelu", "type_vocab_size": 1})",
     "roberta.encoder.layers",
     "^roberta.embeddings.word_embeddings=token_embd ^roberta.embeddings.token_type_embeddings=token_types "
     "^roberta.emb_ln=token_embd_norm mixer.Wqkv=attn_qkv mixer.out_proj=attn_output norm1=attn_output_norm "
     "norm2=layer_output_norm mlp.fc1=ffn_up mlp.fc2=ffn_down"},
    {"bert", "tiny-reranker", "exact_gelu=true", "",
     kHfBertConfig + R"(, "architectures": ["BertForSequenceClassification"]})", "bert.encoder.layer",
     "^bert.embeddings.word_embeddings=token_embd ^bert.embeddings.position_embeddings=position_embd "
     "^bert.embeddings.token_type_embeddings=token_types ^bert.embeddings.LayerNorm=token_embd_norm "
     "^bert.pooler.dense=cls ^classifier=cls.output " +
         kHfBertLayer},
    {"xlm-roberta", "tiny-reranker", "exact_gelu=true", "",
     kHfBertConfig + R"(, "pad_token_id": 1, "max_position_embeddings": 514})", "roberta.encoder.layer",
     "^roberta.embeddings.word_embeddings=token_embd ^roberta.embeddings.position_embeddings=O2:position_embd "
     "^roberta.embeddings.token_type_embeddings=token_types ^roberta.embeddings.LayerNorm=token_embd_norm "
     "^classifier.dense=cls ^classifier.out_proj=cls.output " +
         kHfBertLayer},
    {"distilbert", "tiny-bert", "leps=0.000000000001 exact_gelu=true", "=^position_embd:ctx,d",
     R"({"num_hidden_layers": null, "hidden_size": null, "num_attention_heads": null, "intermediate_size": null,
           "num_key_value_heads": null, "head_dim": null, "rms_norm_eps": null, "rope_theta": null,
           "hidden_act": null, "activation": "gelu", "dim": 64, "n_layers": 4, "n_heads": 4, "hidden_dim": 96})",
     "distilbert.transformer.layer",
     "^distilbert.embeddings.word_embeddings=token_embd ^distilbert.embeddings.position_embeddings=position_embd "
     "^distilbert.embeddings.LayerNorm=token_embd_norm attention.q_lin=attn_q attention.k_lin=attn_k "
     "attention.v_lin=attn_v attention.out_lin=attn_output sa_layer_norm=attn_output_norm ffn.lin1=ffn_up "
     "ffn.lin2=ffn_down output_layer_norm=layer_output_norm"},
    {"modernbert", "tiny-modern-bert", "exact_gelu=true", "", kHfModern + "}", "model.layers", kHfModernNames},
    {"modernbert", "tiny-modern-reranker", "exact_gelu=true", "", kHfModern + R"(, "classifier_pooling": "mean"})",
     "model.layers", kHfModernNames + "^head.dense=cls ^head.norm=cls.norm ^classifier=cls.output"},
};

}  // namespace

const std::vector<HfClass>& hf_classes() {
  static const std::vector<HfClass> kAll = [] {
    std::vector<HfClass> out;
    for (const auto& part : {kHfDecodersClasses, kHfExpertsClasses, kHfHybridsClasses, kHfEncodersClasses})
      out.insert(out.end(), part.begin(), part.end());
    return out;
  }();
  return kAll;
}

}  // namespace quire::test
