// Published configurations hold more keys than the computation needs: a checkpoint with all keys of its class loads.
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/model/formats/hf/json_file.h"
#include "core/model/layers/loaded_model.h"
#include "tests/support/material.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/hf/hf_classes.h"

using namespace quire;
using namespace quire::test;
using nlohmann::json;

namespace {

struct Published {
  const char* model_type;
  const char* keys;  // extra keys of published files, with values that fit a tiny model
};

// Keys that some release of transformers writes into files of every class.
constexpr const char* kEverywhere =
    R"({"_name_or_path": "a/b", "add_cross_attention": false, "bad_words_ids": null, "begin_suppress_tokens": null,
        "chunk_size_feed_forward": 0, "diversity_penalty": 0.0, "do_sample": false, "early_stopping": false,
        "encoder_no_repeat_ngram_size": 0, "forced_bos_token_id": null, "initializer_range": 0.02,
        "is_encoder_decoder": false, "length_penalty": 1.0, "max_length": 20, "min_length": 0,
        "no_repeat_ngram_size": 0, "num_beams": 1, "num_return_sequences": 1, "output_attentions": false,
        "output_hidden_states": false, "pad_token_id": 0, "prefix": null, "pruned_heads": {}, "remove_invalid_values":
        false, "repetition_penalty": 1.0, "return_dict": true, "sep_token_id": null, "task_specific_params": null,
        "temperature": 1.0, "tf_legacy_loss": false, "tokenizer_class": null, "top_k": 50, "top_p": 1.0,
        "torchscript": false, "transformers_version": "4.57.1", "typical_p": 1.0, "use_bfloat16": false,
        "use_cache": true, "dtype": "bfloat16"})";

constexpr Published kPublished[] = {
    {"llama4_text",
     R"({"_attn_implementation_autoset": true, "attn_temperature_tuning": 4, "for_llm_compressor": false,
         "no_rope_layer_interval": 4, "output_router_logits": false, "router_aux_loss_coef": 0.001,
         "router_jitter_noise": 0.0, "cache_implementation": "hybrid", "attention_bias": false, "rope_scaling": null,
         "moe_layers": [1, 3], "layer_types": ["chunked_attention", "chunked_attention", "chunked_attention",
         "full_attention"]})"},
    {"glm4_moe_lite",
     R"({"scoring_func": "sigmoid", "topk_method": "noaux_tc", "num_nextn_predict_layers": 0, "rope_interleave": true,
         "attention_bias": false, "partial_rotary_factor": 1.0, "qk_head_dim": 24, "pretraining_tp": 1})"},
    {"falcon_h1",
     R"({"attn_layer_indices": null, "mamba_proj_bias": false, "mamba_use_mlp": true, "mlp_expansion_factor": 8,
         "num_logits_to_keep": 1, "projectors_bias": false, "time_step_floor": 0.0001, "time_step_max": 0.1,
         "time_step_min": 0.001, "time_step_limit": [0.0, {"__float__": "Infinity"}],
         "rope_scaling": null})"},
    {"kimi_linear",
     R"({"num_nextn_predict_layers": 0, "use_grouped_topk": true, "rope_scaling": null, "model_max_length": 1048576,
         "moe_layer_freq": 1})"},
    {"nemotron_h",
     R"({"chunk_size": 128, "expand": 2, "mamba_proj_bias": false, "num_logits_to_keep": 1, "rescale_prenorm_residual":
         true, "residual_in_fp32": false, "sliding_window": null, "time_step_floor": 0.0001, "time_step_limit":
         [0.0, {"__float__": "Infinity"}], "time_step_max": 0.1, "time_step_min": 0.001, "time_step_rank": 256,
         "use_bias": false, "use_conv_bias": true, "use_mamba_kernels": true, "mamba_ssm_cache_dtype": "float32",
         "norm_eps": 0.001, "attention_bias": false, "mlp_bias": false, "rope_theta": 10000,
         "partial_rotary_factor": 1.0})"},
    {"granitemoehybrid",
     R"({"attention_bias": false, "mamba_conv_bias": true, "mamba_proj_bias": false, "output_router_logits": false,
         "router_aux_loss_coef": 0.0, "rope_scaling": null, "rope_theta": 10000, "time_step_limit":
         [0.0, {"__float__": "Infinity"}], "time_step_max": 0.1, "time_step_min": 0.001})"},
    {"mamba2",
     R"({"chunk_size": 256, "expand": 2, "norm_before_gate": true, "residual_in_fp32": true, "time_step_limit":
         [0.0, {"__float__": "Infinity"}], "time_step_rank": 4, "use_bias": false, "use_conv_bias": true,
         "hidden_act": "silu", "rescale_prenorm_residual": false})"},
    {"bailing_moe_v2",
     R"({"output_dropout": 0.0, "embedding_dropout": 0.0, "num_nextn_predict_layers": 0, "mtp_loss_scaling_factor": 0,
         "use_bias": false, "use_qkv_bias": false, "use_rmsnorm": true, "rope_scaling": null,
         "router_dtype": "fp32", "max_window_layers": 4, "seq_aux": true, "moe_shared_expert_intermediate_size": 24})"},
    {"ernie4_5_moe",
     R"({"moe_gate": "topk", "moe_use_aux_free": true, "num_nextn_predict_layers": 0, "output_router_logits": false,
         "router_aux_loss_coef": 0.001, "use_rmsnorm": true})"},
    {"hunyuan_v1_moe",
     R"({"use_mixed_mlp_moe": true, "moe_drop_tokens": false, "moe_random_routing_dropped_token": false,
         "norm_topk_prob": true, "routed_scaling_factor": 1.0, "pool_type": "last", "position_embedding_xdrope": false,
         "add_classification_head": false, "class_num": 0, "cla_share_factor": 2, "mask_init_id": 12, "dense_list":
         [64, 0], "im_end_id": 5, "anyres_pooling_size": 2, "text_start_id": 7, "vit_type": null, "max_image_size": 2048})"},
    {"exaone4", R"({"attention_dropout": 0.0, "head_dim": 16, "rope_scaling": null})"},
    {"apertus", R"({"attention_bias": false, "mlp_bias": false, "hidden_dropout": 0.0, "rope_scaling": null})"},
    {"modernbert",
     R"({"attention_bias": false, "classifier_activation": "gelu", "classifier_bias": false, "cls_token_id": 1,
         "decoder_bias": true, "deterministic_flash_attn": false, "embedding_dropout": 0.0, "gradient_checkpointing":
         false, "initializer_cutoff_factor": 2.0, "mlp_bias": false, "norm_bias": false, "position_embedding_type":
         "absolute", "repad_logits_with_grad": false, "sparse_pred_ignore_index": -100, "sparse_prediction": false,
         "reference_compile": null})"},
};

// Keys of the material, whose directories are tiny models of other classes.
constexpr Published kOfMaterial[] = {
    {"glm4moe",
     R"({"attention_bias": true, "use_qk_norm": true, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
         "rope_scaling": null, "pretraining_tp": 1})"},
    {"qwen3next",
     R"({"decoder_sparse_step": 1, "mlp_only_layers": [], "output_router_logits": false, "router_aux_loss_coef": 0.001,
         "use_sliding_window": false, "attention_bias": false, "rope_scaling": null})"},
    {"qwen3moe",
     R"({"decoder_sparse_step": 1, "mlp_only_layers": [], "max_window_layers": 48, "sliding_window": null,
         "use_sliding_window": false, "output_router_logits": false, "router_aux_loss_coef": 0.001})"},
    {"deepseek2",
     R"({"aux_loss_alpha": 0.001, "ep_size": 1, "moe_layer_freq": 1, "pretraining_tp": 1, "seq_aux": true,
         "num_nextn_predict_layers": 0})"},
    {"minimax-m2",
     R"({"attn_type_list": [1, 1, 1, 1], "mtp_transformer_layers": 1, "num_mtp_modules": 3, "use_mtp": true,
         "output_router_logits": false, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "rotary_dim": null,
         "layernorm_full_attention_beta": 1.0, "shared_moe_mode": "sigmoid"})"},
    {"gpt-oss",
     R"({"experts_per_token": 2, "initial_context_length": 32, "output_router_logits": false, "swiglu_limit": 7.0,
         "router_aux_loss_coef": 0.9})"},
    {"gemma3", R"({"attention_bias": false, "cache_implementation": "hybrid", "use_bidirectional_attention": false})"},
    {"phi3",
     R"({"embd_pdrop": 0.0, "resid_pdrop": 0.0, "full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": false,
         "mlp_bias": false, "sliding_window": 262144, "attention_bias": false})"},
    {"lfm2",
     R"({"block_auto_adjust_ff_dim": false, "block_ffn_dim_multiplier": 1.0, "block_mlp_init_scale": 1.0,
         "block_multiple_of": 256, "block_norm_eps": 0.001, "block_out_init_scale": 1.0, "block_use_swiglu": true,
         "block_use_xavier_init": true, "conv_dim": 64, "conv_dim_out": 64, "conv_use_xavier_init": true,
         "use_pos_enc": true, "num_heads": 4})"},
};

void overlay(json& config, const char* keys) {
  const json given = json::parse(keys);
  for (const auto& [key, value] : given.items())
    config[key] = value;
}

void add_new(json& config) {
  const json given = json::parse(kEverywhere);
  for (const auto& [key, value] : given.items()) {
    if (!config.contains(key)) config[key] = value;
  }
}

}  // namespace

TEST_CASE("Checkpoints are read with the keys that published ones of their class have", "[model][hf]") {
  for (const Published& published : kPublished) {
    for (const HfClass& of : hf_classes()) {
      if (of.model_type != published.model_type) continue;
      INFO(of.model_type << " of " << of.shape);
      const TemporaryFolder folder;
      write_synthetic_gguf(synth_spec(of), folder / "model.gguf", {});
      json config = hf_config(of);
      add_new(config);
      overlay(config, published.keys);
      write_hf_class(of, config, folder / "model.gguf", folder / "hf");
      CHECK_NOTHROW(open_model(folder / "hf", false));
    }
  }
}

TEST_CASE("The material's checkpoints are read with the keys of published ones", "[model][hf][architectures]") {
  QUIRE_REQUIRE_MATERIAL(material_folder, "architectures/hf");
  for (const Published& published : kOfMaterial) {
    INFO(published.model_type);
    const TemporaryFolder folder;
    for (const auto& entry : std::filesystem::directory_iterator(material_folder / published.model_type)) {
      if (entry.path().filename() != "config.json")
        std::filesystem::create_symlink(entry.path(), folder / entry.path().filename().string());
    }
    json config = read_json_file(material_folder / published.model_type / "config.json").value();
    add_new(config);
    overlay(config, published.keys);
    std::ofstream(folder / "config.json") << config.dump();
    CHECK_NOTHROW(open_model(folder / "", false));
  }
}
