// The table of families' shapes: a tiny shape for each, with every part of the family, and some of real size.
#include <algorithm>

#include "core/model/tools/synth_families.h"

namespace quire {

namespace {

constexpr const char* kTinyKeys = "L=4 d=64 h=4 kv=2 hd=16 v=512 ctx=512 ff=96 base=10000.0 eps=0.001 ";
constexpr const char* kTinyLayerNormKeys = "L=4 d=64 h=4 kv=4 hd=16 v=512 ctx=512 ff=96 base=10000.0 leps=0.001 ";
constexpr const char* kAllBiases =
    "attn_q attn_k attn_v attn_qkv attn_output ffn_up ffn_down attn_norm ffn_norm output_norm output token_embd_norm "
    "attn_output_norm layer_output_norm";

struct Tiny {
  std::string_view name;
  std::string_view architecture;
  std::string_view keys;
  std::string_view parts = "";
  std::string_view biases = "";
  bool layer_norm = false;
};

constexpr Tiny kTinies[] = {
    {"tiny-mixtral", "llama", "E=6 top=2", "ffn_gate_inp ffn_gate_exps ffn_down_exps:E,d,ff ^output"},
    {"tiny-mistral", "llama", "win=16", ""},
    {"tiny-mistral3", "mistral3",
     "rope.scaling.type=yarn rope.scaling.factor=8.0 rope.scaling.original_context_length=32 "
     "rope.scaling.yarn_log_multiplier=0.6 rope.scaling.yarn_beta_fast=4.0 attention.temperature_scale=0.2"},
    {"tiny-mistral4", "mistral4",
     "kv=1 hd=40 attention.key_length_mla=24 attention.value_length_mla=16 attention.kv_lora_rank=32 "
     "attention.q_lora_rank=24 rot=8 E=6 top=2 fe=24 expert_weights_norm=true rope.scaling.type=yarn "
     "rope.scaling.factor=8.0 rope.scaling.original_context_length=32 rope.scaling.yarn_log_multiplier=0.06 "
     "attention.temperature_scale=0.2 attention.temperature_length=32",
     "ffn_gate_inp ffn_gate_up_exps ffn_down_exps:E,d,fe ffn_up_shexp:fe,d ^output"},
    {"tiny-deepseek2", "deepseek2",
     "kv=1 hd=40 attention.key_length_mla=24 attention.value_length_mla=16 attention.kv_lora_rank=32 "
     "attention.q_lora_rank=24 rot=8 E=8 top=3 fe=24 leading_dense_block_count=1 expert_gating_func=2 "
     "expert_weights_norm=true expert_weights_scale=2.5 expert_group_count=4 expert_group_used_count=2 "
     "rope.scaling.type=yarn rope.scaling.factor=8.0 rope.scaling.original_context_length=32 "
     "rope.scaling.yarn_log_multiplier=0.0707",
     "ffn_gate_inp@1- ffn_gate_exps@1- ffn_down_exps:E,d,fe@1- exp_probs_b.bias:E@1- ffn_up_shexp:2*fe,d@1- ^output"},
    {"tiny-deepseek2-lite", "deepseek2",
     "kv=4 hd=24 attention.value_length=16 attention.kv_lora_rank=32 rot=8 E=6 top=2 fe=24 "
     "leading_dense_block_count=1",
     "attn_q attn_kv_b ffn_gate_inp@1- ffn_gate_exps@1- ffn_down_exps:E,d,fe@1- ffn_up_shexp:fe,d@1- ^output"},
    {"tiny-qwen2moe", "qwen2moe", "E=6 top=2 fe=24 fs=40",
     "ffn_gate_inp ffn_gate_exps ffn_down_exps:E,d,fe ffn_up_shexp:fs,d ffn_gate_inp_shexp ^output",
     "attn_q attn_k attn_v"},
    {"tiny-qwen3moe", "qwen3moe", "hd=24 E=6 top=2 fe=24",
     "attn_q_norm:hd ffn_gate_inp ffn_gate_exps ffn_down_exps:E,d,fe ^output"},
    {"tiny-qwen2vl", "qwen2vl", "", "", "attn_q attn_k attn_v"},
    {"tiny-qwen3vl", "qwen3vl", "", "attn_q_norm:hd"},
    {"tiny-qwen35", "qwen35",
     "hd=32 rot=8 rope.dimension_sections=[2,1,1,0] ssm.conv_kernel=4 ssm.group_count=2 ssm.time_step_rank=4 "
     "ssm.state_size=16 ssm.inner_size=64",
     "attn_q_norm:hd@3/4"},
    {"tiny-qwen35moe", "qwen35moe",
     "hd=32 rot=8 rope.dimension_sections=[2,1,1,0] ssm.conv_kernel=4 ssm.group_count=2 ssm.time_step_rank=6 "
     "ssm.state_size=16 ssm.inner_size=96 E=6 top=2 fe=24 fs=40 full_attention_interval=2",
     "attn_q_norm:hd@1/2 ffn_gate_inp ffn_gate_exps ffn_down_exps:E,d,fe ffn_up_shexp:fs,d ffn_gate_inp_shexp ^output"},
    {"tiny-qwen3next", "qwen3next",
     "hd=32 rot=8 ssm.conv_kernel=4 ssm.group_count=2 ssm.time_step_rank=4 ssm.state_size=16 ssm.inner_size=64 E=6 "
     "top=2 fe=24 fs=40",
     "attn_q_norm:hd@3/4 ssm_ba@!3/4 ffn_gate_inp ffn_gate_exps ffn_down_exps:E,d,fe ffn_up_shexp:fs,d "
     "ffn_gate_inp_shexp ^output"},
    {"tiny-gemma", "gemma", "kv=1"},
    {"tiny-gemma2", "gemma2", "win=16 attn_logit_softcapping=5.0 final_logit_softcapping=4.0"},
    {"tiny-gemma3", "gemma3",
     "hd=24 win=16 attention.sliding_window_pattern=3 rope.scaling.type=linear rope.scaling.factor=8.0 base=1000000.0",
     "attn_q_norm:hd"},
    {"tiny-gemma-embedding", "gemma-embedding", "win=16 attention.sliding_window_pattern=2 pooling_type=1",
     "attn_q_norm:hd"},
    {"tiny-embedder", "gemma-embedding", "win=16 attention.sliding_window_pattern=2 pooling_type=1",
     "attn_q_norm:hd ^dense_2:96,d ^dense_3:d,96"},
    {"tiny-gemma3n", "gemma3n",
     "L=5 hd=24 win=16 attention.sliding_window_pattern=2 rope.freq_base_swa=1000.0 final_logit_softcapping=4.0 "
     "attention.shared_kv_layers=2 activation_sparsity_scale=0.5",
     "attn_q_norm:hd ^per_layer_proj_norm:12 ^altup_proj:2,d,d laurel_l:20,d"},
    {"tiny-gemma4", "gemma4",
     "L=6 hd=32 rot=32 attention.key_length_swa=16 attention.value_length_swa=16 rope.dimension_count_swa=16 win=16 "
     "attention.sliding_window_pattern=[1,1,1,0,1,0] kv=[2,2,2,1,2,1] attention.shared_kv_layers=2 "
     "embedding_length_per_layer_input=8 final_logit_softcapping=4.0",
     "attn_v@!3/10 attn_q_norm:hd ^per_layer_proj_norm:8 layer_output_scale:1"},
    {"tiny-gemma4-moe", "gemma4",
     "hd=32 rot=32 attention.key_length_swa=16 attention.value_length_swa=16 rope.dimension_count_swa=16 win=16 "
     "attention.sliding_window_pattern=[1,0,1,0] E=6 top=2 fe=24",
     "attn_v attn_q_norm:hd ffn_gate_inp ffn_gate_up_exps ffn_down_exps:E,d,fe"},
    {"tiny-gpt-oss", "gpt-oss",
     "hd=32 win=16 E=6 top=2 fe=32 rope.scaling.type=yarn rope.scaling.factor=8.0 "
     "rope.scaling.original_context_length=32 base=150000.0",
     "ffn_gate_inp ffn_gate_exps ffn_down_exps:E,d,fe ^output",
     "attn_q attn_k attn_v attn_output ffn_gate_inp ffn_gate_exps ffn_up_exps ffn_down_exps"},
    {"tiny-phi3", "phi3", "rot=12", "attn_qkv ffn_up:2*ff,d ^output"},
    {"tiny-phimoe", "phimoe", "E=6 top=2 base=500.0",
     "ffn_gate_inp ffn_gate_exps ffn_down_exps:E,d,ff attn_norm.bias:d ^output",
     "attn_q attn_k attn_v attn_output attn_norm ffn_norm output_norm output"},
    {"tiny-glm4", "glm4", "rot=8", "ffn_up:2*ff,d ^output", "attn_q attn_k attn_v"},
    {"tiny-glm4moe", "glm4moe",
     "rot=8 E=6 top=2 fe=24 leading_dense_block_count=1 expert_weights_norm=true expert_weights_scale=1.5",
     "attn_q_norm:hd post_attention_norm ffn_gate_inp@1- ffn_gate_exps@1- ffn_down_exps:E,d,fe@1- "
     "exp_probs_b.bias:E@1- ffn_up_shexp:fe,d@1- ^output",
     "attn_q attn_k attn_v"},
    {"tiny-nemotron-h", "nemotron_h",
     "kv=[0,0,2,0] ff=[0,96,0,96] ssm.conv_kernel=4 ssm.state_size=16 ssm.group_count=2 ssm.inner_size=64 "
     "ssm.time_step_rank=4",
     "ssm_norm@0 ^output"},
    {"tiny-nemotron-h-moe", "nemotron_h_moe",
     "kv=[0,0,2,0] ff=[0,96,0,96] ssm.conv_kernel=4 ssm.state_size=16 ssm.group_count=2 ssm.inner_size=64 "
     "ssm.time_step_rank=4 E=6 top=2 fe=24 expert_weights_norm=true expert_weights_scale=2.5",
     "ssm_norm@0 ffn_gate_inp@1/2 ffn_down_exps:E,32,fe@1/2 exp_probs_b.bias:E@1/2 ffn_up_shexp:40,d@1/2 "
     "ffn_latent_down:32,d@1/2 ^output"},
    {"tiny-lfm2", "lfm2", "kv=[0,2,0,2] shortconv.l_cache=3", "attn_q_norm:hd"},
    {"tiny-lfm2moe", "lfm2moe",
     "kv=[0,2,0,2] shortconv.l_cache=3 E=6 top=2 fe=24 leading_dense_block_count=1 expert_gating_func=2",
     "attn_q_norm:hd ffn_gate_inp@1- ffn_gate_exps@1- ffn_down_exps:E,d,fe@1- exp_probs_b.bias:E@1-"},
    {"tiny-granite", "granite", "embedding_scale=6.0 residual_scale=0.3 attention.scale=0.1 logit_scale=4.0"},
    {"tiny-granitemoe", "granitemoe",
     "E=6 top=2 embedding_scale=6.0 residual_scale=0.3 attention.scale=0.1 logit_scale=4.0",
     "ffn_gate_inp ffn_gate_exps ffn_down_exps:E,d,ff ffn_up_shexp:40,d"},
    {"tiny-granitehybrid", "granitehybrid",
     "kv=[0,0,2,0] ssm.conv_kernel=4 ssm.state_size=16 ssm.group_count=1 ssm.inner_size=64 ssm.time_step_rank=4 "
     "embedding_scale=6.0 residual_scale=0.3 attention.scale=0.1 logit_scale=4.0 rope.scaling.finetuned=false",
     "ssm_norm@!2/4"},
    {"tiny-falcon-h1", "falcon-h1",
     "ssm.conv_kernel=4 ssm.state_size=16 ssm.group_count=2 ssm.inner_size=64 ssm.time_step_rank=4", "^output"},
    {"tiny-kimi-linear", "kimi-linear",
     "kv=[0,0,0,1] hd=40 attention.key_length_mla=24 attention.value_length_mla=16 attention.kv_lora_rank=32 rot=8 "
     "kda.head_dim=16 ssm.conv_kernel=4 E=6 top=2 fe=24 leading_dense_block_count=1 expert_gating_func=2 "
     "expert_weights_scale=2.446",
     "attn_q@3 attn_kv_b@3 ffn_gate_inp@1- ffn_gate_exps@1- ffn_down_exps:E,d,fe@1- exp_probs_b.bias:E@1- "
     "ffn_up_shexp:fe,d@1- ^output"},
    {"tiny-smollm3", "smollm3", ""},
    {"tiny-olmo2", "olmo2", "", "attn_q_norm:d ^output"},
    {"tiny-olmo3", "olmo2",
     "win=16 attention.sliding_window_pattern=2 rope.scaling.type=yarn rope.scaling.factor=8.0 "
     "rope.scaling.original_context_length=32",
     "attn_q_norm:d ^output"},
    {"tiny-exaone4", "exaone4", "", "attn_q_norm:hd"},
    {"tiny-command-r", "command-r", "logit_scale=0.25", "", "", true},
    {"tiny-cohere2", "cohere2", "kv=2 win=16 logit_scale=0.25", "", "", true},
    {"tiny-seed-oss", "seed_oss", "hd=24", "post_attention_norm ^output", "attn_q attn_k attn_v"},
    {"tiny-ernie4-5", "ernie4_5", ""},
    {"tiny-ernie4-5-moe", "ernie4_5-moe", "E=6 top=2 fe=24 leading_dense_block_count=1",
     "ffn_gate_inp@1- ffn_gate_exps@1- ffn_down_exps:E,d,fe@1- exp_probs_b.bias:E@1- ffn_up_shexp:fe,d@1-"},
    {"tiny-hunyuan-dense", "hunyuan-dense", "", "attn_q_norm:hd"},
    {"tiny-hunyuan-moe", "hunyuan-moe", "E=6 top=2",
     "attn_q_norm:hd ffn_gate_inp ffn_gate_exps ffn_down_exps:E,d,ff ffn_up_shexp:40,d"},
    {"tiny-bailingmoe2", "bailingmoe2",
     "rot=8 E=8 top=3 fe=24 leading_dense_block_count=1 expert_gating_func=2 expert_weights_norm=true "
     "expert_weights_scale=2.5 expert_group_count=4 expert_group_used_count=2",
     "attn_qkv attn_q_norm:hd ffn_gate_inp@1- ffn_gate_exps@1- ffn_down_exps:E,d,fe@1- exp_probs_b.bias:E@1- "
     "ffn_up_shexp:fe,d@1- ^output"},
    {"tiny-bailing-linear", "bailing-moe-linear",
     "rot=8 ssm.group_count=2 attention.silu_inputs=true E=8 top=3 fe=24 leading_dense_block_count=1 "
     "expert_gating_func=2 expert_weights_norm=true expert_weights_scale=2.5 expert_group_count=4 "
     "expert_group_used_count=2",
     "attn_qkv attn_q_norm:hd attn_gate@!3/4 ffn_gate_inp@1- ffn_gate_exps@1- ffn_down_exps:E,d,fe@1- "
     "exp_probs_b.bias:E@1- ffn_up_shexp:fe,d@1- ^output"},
    {"tiny-dots1", "dots1",
     "kv=4 E=6 top=2 fe=24 leading_dense_block_count=1 expert_gating_func=2 expert_weights_norm=true "
     "expert_weights_scale=2.5",
     "attn_q_norm:hd ffn_gate_inp@1- ffn_gate_exps@1- ffn_down_exps:E,d,fe@1- exp_probs_b.bias:E@1- "
     "ffn_up_shexp:fe,d@1- ^output"},
    {"tiny-minimax-m2", "minimax-m2", "rot=8 E=6 top=2 expert_gating_func=2",
     "attn_q_norm:d ffn_gate_inp ffn_gate_exps ffn_down_exps:E,d,ff exp_probs_b.bias:E ^output"},
    {"tiny-mimo2", "mimo2",
     "hd=24 attention.value_length=16 rot=8 win=16 attention.sliding_window_pattern=[0,1,1,0] kv=[2,4,4,2] "
     "rope.freq_base_swa=1000.0 attention.value_scale=0.7 E=6 top=2 fe=24",
     "attn_sinks@1 attn_sinks@2 ffn_gate_inp@1- ffn_gate_exps@1- ffn_down_exps:E,d,fe@1- exp_probs_b.bias:E@1- "
     "^output"},
    {"tiny-step35", "step35",
     "h=[4,6,6,4] win=16 attention.sliding_window_pattern=[0,1,1,0] rope.freq_base_swa=1000.0 E=6 top=2 fe=24 "
     "expert_weights_norm=true expert_weights_scale=1.5 swiglu_clamp_exp=[0,1,1,0] swiglu_clamp_shexp=[0,1,0,0]",
     "attn_q_norm:hd attn_gate ffn_gate_inp@1- ffn_gate_exps@1- ffn_down_exps:E,d,fe@1- exp_probs_b.bias:E@1- "
     "ffn_up_shexp:fe,d@1- ^output"},
    {"tiny-smallthinker", "smallthinker", "L=5 win=16 E=6 top=2 fe=24 expert_gating_func=2",
     "ffn_gate_inp ffn_gate_exps ffn_down_exps:E,d,fe ^output"},
    {"tiny-llama4", "llama4", "E=6 top=2 fe=24 interleave_moe_layer_step=2",
     "ffn_gate_inp@1/2 ffn_gate_exps@1/2 ffn_down_exps:E,d,fe@1/2 ffn_up_shexp:fe,d@1/2 ^output"},
    {"tiny-arcee", "arcee", ""},
    {"tiny-apertus", "apertus", "xielu.alpha_p=0.8 xielu.alpha_n=0.7 xielu.beta=0.5 xielu.eps=-0.00001",
     "attn_q_norm:hd"},
    {"tiny-minicpm", "minicpm", ""},
    {"tiny-bitnet", "bitnet", ""},
    {"tiny-internlm2", "internlm2", "", "^output"},
    {"tiny-mamba", "mamba", "h=0 kv=0 ff=0 ssm.conv_kernel=4 ssm.state_size=8 ssm.inner_size=96 ssm.time_step_rank=5"},
    {"tiny-falcon-mamba", "mamba",
     "h=0 kv=0 ff=0 ssm.conv_kernel=4 ssm.state_size=8 ssm.inner_size=96 ssm.time_step_rank=5 ssm.dt_b_c_rms=true"},
    {"tiny-mamba2", "mamba2",
     "h=0 kv=0 ff=0 ssm.conv_kernel=4 ssm.state_size=16 ssm.group_count=2 ssm.inner_size=96 ssm.time_step_rank=6",
     "ssm_norm"},
    {"tiny-jamba", "jamba",
     "kv=[0,2,0,0] ssm.conv_kernel=4 ssm.state_size=8 ssm.inner_size=96 ssm.time_step_rank=5 E=6 top=2",
     "ffn_gate_inp@1/2 ffn_gate_exps@1/2 ffn_down_exps:E,d,ff@1/2 ^output"},
    {"tiny-olmoe", "olmoe", "kv=4 E=6 top=2", "attn_q_norm:d ffn_gate_inp ffn_gate_exps ffn_down_exps:E,d,ff ^output"},
    {"tiny-deepseek", "deepseek", "E=6 top=2 fe=24 leading_dense_block_count=1 expert_weights_scale=1.5",
     "ffn_gate_inp@1- ffn_gate_exps@1- ffn_down_exps:E,d,fe@1- ffn_up_shexp:2*fe,d@1- ^output"},
    {"tiny-exaone", "exaone", "", "^output"},
    {"tiny-exaone-moe", "exaone-moe",
     "win=16 E=6 top=2 fe=24 leading_dense_block_count=1 expert_weights_norm=true expert_weights_scale=2.5",
     "attn_q_norm:hd ffn_gate_inp@1- ffn_gate_exps@1- ffn_down_exps:E,d,fe@1- exp_probs_b.bias:E@1- "
     "ffn_up_shexp:fe,d@1- ^output"},
    {"tiny-afmoe", "afmoe",
     "win=16 E=6 top=2 fe=24 leading_dense_block_count=1 expert_weights_norm=true expert_weights_scale=2.0",
     "attn_q_norm:hd ffn_gate_inp@1- ffn_gate_exps@1- ffn_down_exps:E,d,fe@1- exp_probs_b.bias:E@1- "
     "ffn_up_shexp:fe,d@1- ^output"},
    {"tiny-cohere2moe", "cohere2moe",
     "win=16 E=6 top=2 fe=24 leading_dense_block_count=1 expert_weights_norm=true logit_scale=0.5 kv=2",
     "ffn_gate_inp@1- ffn_gate_exps@1- ffn_down_exps:E,d,fe@1- ffn_up_shexp:40,d@1-", "", true},
    {"tiny-falcon", "falcon", "kv=2", "attn_qkv attn_norm_2 ^output", "attn_norm attn_norm_2 output_norm", true},
    {"tiny-gpt2", "gpt2", "", "attn_qkv", kAllBiases, true},
    {"tiny-nemotron", "nemotron", "rot=8 kv=2", "^output", "attn_norm ffn_norm output_norm", true},
    {"tiny-olmo", "olmo", "attention.clamp_kqv=1.5 kv=2", "^output", "", true},
    {"tiny-eurobert", "eurobert", "kv=4 pooling_type=1"},
    {"tiny-neo-bert", "neo-bert", "kv=4 pooling_type=2", "attn_qkv ffn_up:2*ff,d"},
    {"tiny-phi2", "phi2", "rot=8", "^output", kAllBiases, true},
    {"tiny-gptneox", "gptneox", "rot=8", "attn_qkv ^output", kAllBiases, true},
    {"tiny-starcoder2", "starcoder2", "kv=2", "", kAllBiases, true},
    {"tiny-stablelm", "stablelm", "rot=8", "ffn_norm ^output", "attn_norm ffn_norm output_norm attn_q attn_k attn_v",
     true},
    {"tiny-stablelm-parallel", "stablelm", "rot=8 kv=2", "attn_q_norm:d ^output", "attn_norm output_norm", true},
    {"tiny-bert", "bert", "pooling_type=1 attention.causal=false tokenizer.ggml.token_type_count=2",
     "^position_embd:ctx,d ^token_types:2,d", kAllBiases, true},
    {"tiny-reranker", "bert", "pooling_type=4", "^position_embd:ctx,d ^token_types:2,d ^cls:d,d ^cls.output:1,d",
     "attn_q attn_k attn_v attn_output ffn_up ffn_down token_embd_norm attn_output_norm layer_output_norm cls "
     "cls.output",
     true},
    {"tiny-nomic-bert", "nomic-bert", "pooling_type=1", "attn_qkv ffn_gate ^token_types:2,d",
     "token_embd_norm attn_output_norm layer_output_norm", true},
    {"tiny-nomic-bert-moe", "nomic-bert-moe", "pooling_type=1 E=6 top=2",
     "attn_qkv ffn_gate_inp@1/2 ffn_down_exps:E,d,ff@1/2 ^token_types:2,d", kAllBiases, true},
    {"tiny-jina-bert-v2", "jina-bert-v2", "pooling_type=1 h=6 hd=8 kv=6", "ffn_gate attn_q_norm:48 attn_norm_2",
     "attn_q attn_k attn_v attn_output attn_q_norm attn_k_norm attn_norm_2 token_embd_norm attn_output_norm "
     "layer_output_norm ffn_down",
     true},
    {"tiny-jina-bert-v3", "jina-bert-v3", "pooling_type=1", "attn_qkv ^token_types:1,d", kAllBiases, true},
    {"tiny-modern-reranker", "modern-bert", "pooling_type=4 win=16 base=160000.0 rope.freq_base_swa=1000.0",
     "attn_qkv ffn_up:2*ff,d ^cls:d,d ^cls.norm:d ^cls.output:1,d", "cls.output", true},
    {"tiny-modern-bert", "modern-bert", "pooling_type=1 win=16 base=160000.0 rope.freq_base_swa=1000.0",
     "attn_qkv ffn_up:2*ff,d", "", true},
};

// Another size of a family: the numbers are those of published configurations.
struct Sized {
  std::string_view name;
  std::string_view like;
  std::string_view keys;
};

constexpr Sized kSized[] = {
    {"qwen3-30b-a3b", "tiny-qwen3moe",
     "L=48 d=2048 ff=6144 h=32 kv=4 hd=128 v=151936 ctx=40960 base=1000000.0 eps=0.000001 E=128 top=8 fe=768"},
    {"qwen3vl-2b", "tiny-qwen3vl",
     "L=28 d=2048 ff=6144 h=16 kv=8 hd=128 rope.dimension_sections=[24,20,20,0] v=151936 ctx=262144 base=5000000.0 "
     "eps=0.000001 n_deepstack_layers=3"},
    {"qwen3.5-0.8b", "tiny-qwen35",
     "L=24 d=1024 ff=3584 h=8 kv=2 hd=256 rot=64 rope.dimension_sections=[11,11,10,0] v=248320 ctx=262144 "
     "base=10000000.0 eps=0.000001 ssm.group_count=16 "
     "ssm.time_step_rank=16 ssm.state_size=128 ssm.inner_size=2048"},
    {"qwen3.5-4b", "tiny-qwen35",
     "L=32 d=2560 ff=9216 h=16 kv=4 hd=256 rot=64 rope.dimension_sections=[11,11,10,0] v=248320 ctx=262144 "
     "base=10000000.0 eps=0.000001 ssm.group_count=16 "
     "ssm.time_step_rank=32 ssm.state_size=128 ssm.inner_size=4096"},
    {"gemma3-4b", "tiny-gemma3",
     "L=34 d=2560 ff=10240 h=8 kv=4 hd=256 v=262208 ctx=131072 eps=0.000001 win=1024 "
     "attention.sliding_window_pattern=6"},
    {"gpt-oss-20b", "tiny-gpt-oss",
     "L=24 d=2880 ff=2880 h=64 kv=8 hd=64 v=201088 ctx=131072 eps=0.00001 win=128 E=32 top=4 fe=2880 "
     "rope.scaling.factor=32.0 rope.scaling.original_context_length=4096"},
    {"lfm2-350m", "tiny-lfm2",
     "L=16 d=1024 ff=4608 h=16 kv=[0,0,8,0,0,8,0,0,8,0,8,0,8,0,8,0] hd=64 v=65536 ctx=128000 base=1000000.0 "
     "eps=0.00001"},
    {"deepseek-v2-lite", "tiny-deepseek2-lite",
     "L=27 d=2048 ff=10944 h=16 kv=16 hd=192 attention.value_length=128 attention.kv_lora_rank=512 rot=64 v=102400 "
     "ctx=163840 eps=0.000001 E=64 top=6 fe=1408"},
    {"phi-4-mini", "tiny-phi3", "L=32 d=3072 ff=8192 h=24 kv=8 hd=128 rot=96 v=200064 ctx=131072 eps=0.00001"},
    {"minilm", "tiny-bert", "L=6 d=384 ff=1536 h=12 kv=12 hd=32 v=30522 leps=0.000000000001"},
    {"bge-base", "tiny-bert", "L=12 d=768 ff=3072 h=12 kv=12 hd=64 v=30522 leps=0.000000000001"},
    {"modernbert-base", "tiny-modern-bert",
     "L=22 d=768 ff=1152 h=12 kv=12 hd=64 v=50368 ctx=8192 leps=0.00001 win=128 rope.freq_base_swa=10000.0"},
};

}  // namespace

std::optional<FamilyShape> find_family_shape(std::string_view name) {
  const auto* sized = std::ranges::find(kSized, name, &Sized::name);
  const bool is_sized = sized != std::end(kSized);
  const auto* tiny = std::ranges::find(kTinies, is_sized ? sized->like : name, &Tiny::name);
  if (tiny == std::end(kTinies)) return std::nullopt;
  FamilyShape out;
  out.architecture = tiny->architecture;
  out.keys = (tiny->layer_norm ? kTinyLayerNormKeys : kTinyKeys) + std::string(tiny->keys);
  if (is_sized) out.keys += " " + std::string(sized->keys);
  out.parts = tiny->parts;
  out.biases = tiny->biases;
  return out;
}

std::vector<std::string> family_shape_names() {
  std::vector<std::string> names;
  for (const Tiny& tiny : kTinies)
    names.emplace_back(tiny.name);
  for (const Sized& sized : kSized)
    names.emplace_back(sized.name);
  return names;
}

}  // namespace quire
