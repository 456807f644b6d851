#include "core/model/architectures/hf_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/message_text.h"
#include "core/model/architectures/hf_families.h"
#include "core/model/architectures/registry.h"

namespace quire {

namespace {

using nlohmann::json;

// Keys of training, generation and other runtimes; keys whose value the tensors show; second names of the same
// number.
constexpr std::string_view kHarmlessKeys[] = {"_attn_implementation_autoset",
                                              "_flash_attn_2_enabled",
                                              "_name_or_path",
                                              "_num_labels",
                                              "add_cross_attention",
                                              "anyres_pooling_size",
                                              "anyres_vit_max_image_size",
                                              "anyres_vit_two_views",
                                              "architectures",
                                              "attention_bias",
                                              "attention_head_size",
                                              "attention_k_eq_v",
                                              "attention_out_bias",
                                              "attn_implementation",
                                              "attn_layer_indices",
                                              "audio_config",
                                              "auto_map",
                                              "aux_loss_alpha",
                                              "bad_words_ids",
                                              "begin_suppress_tokens",
                                              "block_auto_adjust_ff_dim",
                                              "block_dim",
                                              "block_ff_dim",
                                              "block_ffn_dim_multiplier",
                                              "block_mlp_init_scale",
                                              "block_multiple_of",
                                              "block_norm_eps",
                                              "block_out_init_scale",
                                              "block_use_swiglu",
                                              "block_use_xavier_init",
                                              "cache_implementation",
                                              "chunk_size",
                                              "chunk_size_feed_forward",
                                              "cla_share_factor",
                                              "classifier_activation",
                                              "classifier_bias",
                                              "compression_config",
                                              "conv_bias",
                                              "conv_dim",
                                              "conv_dim_out",
                                              "conv_use_xavier_init",
                                              "cross_attention_hidden_size",
                                              "decoder_bias",
                                              "dense_list",
                                              "deterministic_flash_attn",
                                              "diversity_penalty",
                                              "do_sample",
                                              "dtype",
                                              "dynamic_expert_selection",
                                              "early_stopping",
                                              "emb_pooler",
                                              "enable_moe_block",
                                              "encoder_no_repeat_ngram_size",
                                              "ep_size",
                                              "expand",
                                              "experts_implementation",
                                              "experts_per_token",
                                              "exponential_decay_length_penalty",
                                              "finetuning_task",
                                              "for_llm_compressor",
                                              "forced_bos_token_id",
                                              "forced_eos_token_id",
                                              "full_attn_mod",
                                              "fuse_cross_entropy",
                                              "fused_bias_fc",
                                              "fused_dropout_add_ln",
                                              "fused_mlp_checkpoint_lvl",
                                              "fused_rms_norm",
                                              "gradient_checkpointing",
                                              "head_bias",
                                              "hidden_size_per_layer_input",
                                              "id2label",
                                              "im_end_id",
                                              "im_newline_id",
                                              "im_start_id",
                                              "image_token_id",
                                              "init_method",
                                              "initial_context_length",
                                              "initializer_cutoff_factor",
                                              "initializer_range",
                                              "interpolate_factor",
                                              "is_encoder_decoder",
                                              "kda_layers",
                                              "label2id",
                                              "layer_norm_bias",
                                              "length_penalty",
                                              "linear_key_head_dim",
                                              "load_trained_adapters",
                                              "lora_adaptations",
                                              "lora_alpha",
                                              "lora_dropout_p",
                                              "lora_main_params_trainable",
                                              "lora_prompts",
                                              "lora_rank",
                                              "mamba_bias",
                                              "mamba_chunk_size",
                                              "mamba_conv_bias",
                                              "mamba_dropout",
                                              "mamba_dt_init_floor",
                                              "mamba_dt_max",
                                              "mamba_dt_min",
                                              "mamba_proj_bias",
                                              "mamba_ssm_cache_dtype",
                                              "mamba_ssm_dtype",
                                              "mamba_use_mlp",
                                              "mask_init_id",
                                              "matryoshka_dimensions",
                                              "max_image_size",
                                              "max_length",
                                              "max_window_layers",
                                              "min_length",
                                              "mlp_bias",
                                              "mlp_checkpoint_lvl",
                                              "mlp_expansion_factor",
                                              "mlp_fc1_bias",
                                              "mlp_fc2_bias",
                                              "mlp_only_layers",
                                              "mlp_type",
                                              "model_type",
                                              "moe_capacity",
                                              "moe_drop_tokens",
                                              "moe_every_n_layers",
                                              "moe_gate",
                                              "moe_impl",
                                              "moe_intermediate_size",
                                              "moe_latent_size",
                                              "moe_layer_freq",
                                              "moe_layer_num_skipped",
                                              "moe_loss_weight",
                                              "moe_num_shared_experts",
                                              "moe_random_routing_dropped_token",
                                              "moe_shared_expert_intermediate_size",
                                              "moe_shared_expert_overlap",
                                              "moe_use_aux_free",
                                              "mtp_hybrid_override_pattern",
                                              "mtp_layers_block_type",
                                              "mtp_loss_scaling_factor",
                                              "mtp_num_hidden_layers",
                                              "mtp_share_layers",
                                              "mtp_use_dedicated_embeddings",
                                              "multi_head_type",
                                              "n_shared_experts",
                                              "name_or_path",
                                              "no_repeat_ngram_size",
                                              "norm_bias",
                                              "norm_type",
                                              "num_beam_groups",
                                              "num_beams",
                                              "num_labels",
                                              "num_logits_to_keep",
                                              "num_media_embeds",
                                              "num_mtp_modules",
                                              "num_return_sequences",
                                              "num_shared_experts",
                                              "original_max_position_embeddings",
                                              "output_attentions",
                                              "output_hidden_states",
                                              "output_router_logits",
                                              "output_scores",
                                              "pad_vocab_size_multiple",
                                              "pool_type",
                                              "prefix",
                                              "pretraining_tp",
                                              "problem_type",
                                              "projectors_bias",
                                              "pruned_heads",
                                              "qk_head_dim",
                                              "qkv_bias",
                                              "qkv_proj_bias",
                                              "quantization_config",
                                              "reference_compile",
                                              "remove_invalid_values",
                                              "repetition_penalty",
                                              "rescale_prenorm_residual",
                                              "residual_in_fp32",
                                              "return_dict",
                                              "return_dict_in_generate",
                                              "router_bias",
                                              "scale_attention_softmax_in_fp32",
                                              "seq_aux",
                                              "shared_expert_intermediate_size",
                                              "shared_intermediate_size",
                                              "skip_cls_token",
                                              "sparse_pred_ignore_index",
                                              "sparse_prediction",
                                              "summary_activation",
                                              "summary_first_dropout",
                                              "summary_proj_to_labels",
                                              "summary_type",
                                              "summary_use_proj",
                                              "suppress_tokens",
                                              "task_instructions",
                                              "task_specific_params",
                                              "temperature",
                                              "text_end_id",
                                              "text_start_id",
                                              "tf_legacy_loss",
                                              "tie_embedding",
                                              "tie_encoder_decoder",
                                              "tie_word_embeddings",
                                              "time_step_floor",
                                              "time_step_init_scheme",
                                              "time_step_max",
                                              "time_step_min",
                                              "time_step_scale",
                                              "tokenizer_class",
                                              "top_k",
                                              "top_p",
                                              "torch_dtype",
                                              "torchscript",
                                              "transformers_version",
                                              "truncate_dim",
                                              "type_vocab_size",
                                              "typical_p",
                                              "unsloth_fixed",
                                              "unsloth_version",
                                              "use_associative_scan",
                                              "use_bfloat16",
                                              "use_bias",
                                              "use_cache",
                                              "use_conv_bias",
                                              "use_expert_bias",
                                              "use_falcon_mambapy",
                                              "use_flash_attn",
                                              "use_fused_rmsnorm",
                                              "use_fused_swiglu",
                                              "use_grouped_topk",
                                              "use_mamba_kernels",
                                              "use_mambapy",
                                              "use_mixed_mlp_moe",
                                              "use_mtp",
                                              "use_pos_enc",
                                              "use_qk_norm",
                                              "use_qkv_bias",
                                              "use_reference_encodings",
                                              "use_rmsnorm",
                                              "use_routing_bias",
                                              "use_xentropy",
                                              "using_split_lora",
                                              "vision_config",
                                              "vit_input_resolution",
                                              "vit_mapping_type",
                                              "vit_norm_type",
                                              "vit_path",
                                              "vit_remove_prenorm",
                                              "vit_token",
                                              "vit_type",
                                              "vit_used_rms_norm",
                                              "vocab_size",
                                              "vocab_size_per_layer_input",
                                              "with_bias",
                                              "world_size"};

// Endings of key names: ids of tokens, and settings of training only.
constexpr std::string_view kHarmlessEndings[] = {"_token_id",  "_token_ids", "_token_index",  "_token",
                                                 "dropout",    "_pdrop",     "_dropout_prob", "_dropout_rate",
                                                 "_loss_coef", "_init_std",  "_jitter_noise", "_dtype"};

bool is_harmless(std::string_view key) {
  if (std::ranges::find(kHarmlessKeys, key) != std::end(kHarmlessKeys)) return true;
  return std::ranges::any_of(kHarmlessEndings, [&](std::string_view ending) { return key.ends_with(ending); });
}

// Substrings of keys that other tools and training scripts note: a longest length, a version, an optimiser. They do not
// change a token's results.
constexpr std::string_view kNotes[] = {
    "max_seq",         "seq_len",           "sequence_length", "max_length",  "n_ctx",
    "context_length",  "_version",          "flash_attention", "flash_attn",  "gradient",
    "optimizer",       "learning_rate",     "warmup",          "dataset",     "training",
    "train_",          "unsloth",           "mergekit",        "license",     "base_model",
    "tensor_parallel", "pipeline_parallel", "is_llama_config", "description", "timestamp"};

// A name with a leading underscore or a dot belongs to a tool.
bool is_note(std::string_view key) {
  if (key.starts_with('_') || key.find('.') != std::string_view::npos) return true;
  return std::ranges::any_of(kNotes, [&](std::string_view part) { return key.find(part) != std::string_view::npos; });
}

// Null, false, zero and nothing switch a feature off.
bool says_nothing(const json& value) {
  if (value.is_null() || value == false || value == 0 || value == "") return true;
  return (value.is_array() || value.is_object()) && value.empty();
}

std::string_view nearest_key(std::string_view key, const JsonObject& config) {
  std::string_view nearest;
  const auto consider = [&](std::string_view known) {
    if (nearest.empty() || spelling_distance(key, known) < spelling_distance(key, nearest)) nearest = known;
  };
  std::ranges::for_each(config.read(), consider);
  std::ranges::for_each(kHarmlessKeys, consider);
  return nearest;
}

}  // namespace

std::vector<std::string> ignored_hf_keys(const json& raw, const JsonObject& config, bool ignores_unknown,
                                         std::span<const std::string_view> harmless) {
  std::vector<std::string> ignored;
  for (const std::string& key : config.unread()) {
    const bool is_known = is_harmless(key) || std::ranges::find(harmless, key) != harmless.end();
    if (is_known || says_nothing(raw.at(key))) continue;
    if (is_note(key) || ignores_unknown) {
      ignored.push_back(key);
      continue;
    }
    config.fail(
        fmt::format("the key '{}' is not supported: it may change what the model computes; the nearest known "
                    "one is '{}'; {}",
                    printable(key), nearest_key(key, config), kWayOutOfUnknownKeys));
  }
  return ignored;
}

void refuse_unknown_hf_keys(const json& raw, const JsonObject& config, TensorTable& tensors, const SpecWishes& wishes) {
  for (const std::string& key : ignored_hf_keys(raw, config, wishes.ignore_unknown_keys))
    tensors.warn(fmt::format("config.json: the key '{}' is not known and is ignored", printable(key)));
}

}  // namespace quire
