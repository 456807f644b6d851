// HfTranslation: translates a Hugging Face configuration to metadata under GGUF's keys. The common keys are translated
// for every family; a family's own function adds its class's differences. One thread at a time. Invariant: every key
// that was looked up is recorded, so that the others can be refused.
#pragma once

#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/architectures/hf_families.h"

namespace quire {

class HfTranslation {
 public:
  // All must outlive this.
  HfTranslation(const nlohmann::json& raw, const JsonObject& config, const HfFamily& family, TensorTable& tensors,
                const SpecWishes& wishes);

  // Throws StartupError, one line.
  std::shared_ptr<const GgufFile> translate();

  const JsonObject& config() const { return config_; }
  const HfFamily& family() const { return family_; }
  TensorTable& tensors() { return tensors_; }
  std::int64_t num_layers() const { return config_.required_integer("num_hidden_layers"); }
  // Prefix of a layer's tensors in the files.
  std::string layer_prefix(std::int64_t layer) const;

  // Keys have no architecture prefix; `global`: keys of the whole file.
  void set(std::string_view key, GgufValue value);
  void set_integer(std::string_view key, std::int64_t value) { set(key, GgufValue(value)); }
  void set_text(std::string_view key, std::string value);
  void set_global(std::string_view key, GgufValue value);
  void set_default(std::string_view key, double value);  // keeps an existing key
  void erase(std::string_view key);
  // Copies a number, if present, under another name.
  void copy_integer(const char* hf, std::string_view gguf);
  void copy_number(const char* hf, std::string_view gguf);

  // An array of integers or of booleans, one for each layer; nothing if absent.
  std::optional<std::vector<std::int64_t>> layer_list(const char* key) const;
  // The kind of each layer by the class's names; nothing if not listed.
  const std::vector<std::string>& layer_types() const { return layer_types_; }
  // By layer: whether its kind is one of these.
  std::vector<bool> layers_of(std::initializer_list<std::string_view> kinds) const;
  void set_layer_types(std::vector<std::string> types) { layer_types_ = std::move(types); }
  // Sets key-value heads for layers where `attends` is true, none for others.
  void set_kv_heads(const std::vector<bool>& attends);
  // Fails if a key has a value other than the supported one.
  void require_flag(const char* key, bool wanted, bool unset) const;
  void require_text(const char* key, std::string_view wanted) const;
  void require_integer(const char* key, std::int64_t wanted) const;
  void require_number(const char* key, double wanted) const;

 private:
  class Metadata;

  void copy_common_keys();
  void read_activation();
  void check_head();
  void require_sizes() const;
  void read_rope();
  void read_rope_parameters(const nlohmann::json& raw, const JsonObject& scaling);
  void read_local_rope(const JsonObject& by_type);
  void read_scaling(const JsonObject& scaling);
  void read_yarn(const JsonObject& scaling, double factor);
  void read_dynamic(const JsonObject& scaling);
  void read_long_rope(const JsonObject& scaling);
  void read_layer_types();
  void read_experts();
  void read_shapes();

  const nlohmann::json& raw_;
  const JsonObject& config_;
  const HfFamily& family_;
  TensorTable& tensors_;
  const SpecWishes& wishes_;
  std::string prefix_;
  std::shared_ptr<Metadata> out_;
  std::vector<std::string> layer_types_;
};

// Families' own translations, which stand beside their readers of GGUF's keys.
void translate_llama(HfTranslation& translation);
void translate_qwen(HfTranslation& translation);
void translate_gemma4(HfTranslation& translation);
void translate_gemma3n(HfTranslation& translation);
void translate_exaone4(HfTranslation& translation);
void translate_hunyuan(HfTranslation& translation);
void translate_apertus(HfTranslation& translation);
void translate_stablelm(HfTranslation& translation);
void translate_cohere2(HfTranslation& translation);
void translate_smollm3(HfTranslation& translation);
void translate_lfm2(HfTranslation& translation);
void translate_lfm2_experts(HfTranslation& translation);
void translate_gpt_oss(HfTranslation& translation);
void translate_latent(HfTranslation& translation);
void translate_glm_lite(HfTranslation& translation);
void translate_sigmoid_experts(HfTranslation& translation);
void translate_minimax(HfTranslation& translation);
void translate_phimoe(HfTranslation& translation);
void translate_bailing(HfTranslation& translation);
void translate_bailing_linear(HfTranslation& translation);
void translate_ernie_experts(HfTranslation& translation);
void translate_llama4(HfTranslation& translation);
void translate_mimo2(HfTranslation& translation);
void translate_qwen_hybrid(HfTranslation& translation);
void translate_granite_hybrid(HfTranslation& translation);
void translate_falcon_h1(HfTranslation& translation);
void translate_nemotron_h(HfTranslation& translation);
void translate_kimi_linear(HfTranslation& translation);
void translate_mamba(HfTranslation& translation);
void translate_mamba2(HfTranslation& translation);
void translate_jamba(HfTranslation& translation);
void translate_bert(HfTranslation& translation);
void translate_roberta(HfTranslation& translation);
void translate_distilbert(HfTranslation& translation);
void translate_nomic_bert(HfTranslation& translation);
void translate_jina_v2(HfTranslation& translation);
void translate_jina_v3(HfTranslation& translation);
void translate_modern_bert(HfTranslation& translation);

}  // namespace quire
