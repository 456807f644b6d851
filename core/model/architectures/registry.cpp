#include "core/model/architectures/registry.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/formats/tensor_table.h"
#include "core/model/parts/parts.h"

namespace quire {

namespace {

constexpr RopeStyle kPairs = RopeStyle::kInterleaved;
constexpr RopeStyle kHalves = RopeStyle::kHalf;

constexpr Architecture kArchitectures[] = {
    {"llama", kPairs, read_llama, "Llama 2 to 3.3, Mistral, Mixtral, Devstral, Yi"},
    {"qwen2", kHalves, read_qwen2, "Qwen2, Qwen2.5"},
    {"qwen3", kHalves, read_qwen3, "Qwen3, Qwen3-Embedding, Qwen3-Reranker"},
    {"qwen2vl", kHalves, read_qwen2, "Qwen2-VL, Qwen2.5-VL, text part"},
    {"qwen3vl", kHalves, read_qwen3, "Qwen3-VL, text part"},
    {"qwen2moe", kHalves, read_qwen2moe, "Qwen1.5-MoE, Qwen2-57B-A14B"},
    {"qwen3moe", kHalves, read_qwen3moe, "Qwen3-30B-A3B, Qwen3-Coder"},
    {"qwen3vlmoe", kHalves, read_qwen3moe, "Qwen3-VL with experts, text part"},
    {"qwen35", kHalves, read_qwen35, "Qwen3.5, 3.6, 3.8"},
    {"qwen35moe", kHalves, read_qwen35, "Qwen3.5 and 3.6 with experts"},
    {"qwen3next", kHalves, read_qwen35, "Qwen3-Next, Qwen3-Coder-Next"},
    {"gemma", kHalves, read_gemma, "Gemma"},
    {"gemma2", kHalves, read_gemma2, "Gemma 2"},
    {"gemma3", kHalves, read_gemma3, "Gemma 3"},
    {"gemma3n", kHalves, read_gemma3n, "Gemma 3n"},
    {"gemma4", kHalves, read_gemma4, "Gemma 4"},
    {"gemma-embedding", kHalves, read_gemma_embedding, "EmbeddingGemma"},
    {"gpt-oss", kHalves, read_gpt_oss, "gpt-oss"},
    {"gptoss", kHalves, read_gpt_oss, "gpt-oss, as Ollama names it"},
    {"bert", kHalves, read_bert, "MiniLM, bge, mxbai, arctic; rerankers"},
    {"nomic-bert", kHalves, read_bert, "nomic-embed-text"},
    {"nomic-bert-moe", kHalves, read_bert, "nomic-embed-text v2", "moe_every_n_layers"},
    {"jina-bert-v2", kHalves, read_bert, "jina-embeddings v2, jina-reranker v1", "attention.max_alibi_bias"},
    {"jina-bert-v3", kHalves, read_bert, "jina-embeddings v3"},
    {"modern-bert", kHalves, read_modern_bert, "ModernBERT"},
    {"mistral3", kPairs, read_mistral3, "Ministral 3, Devstral 2"},
    {"mistral4", kPairs, read_deepseek2, "Mistral with latent attention",
     "rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow"},
    {"deepseek2", kPairs, read_deepseek2, "DeepSeek V2, V3, R1, GLM-4.7-Flash, Kimi K2",
     "rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow"},
    {"phi2", kHalves, read_phi2, "Phi-2"},
    {"phi3", kHalves, read_phi3, "Phi-3, Phi-3.5, Phi-4"},
    {"phimoe", kHalves, read_phimoe, "Phi-3.5-MoE, as GGUF's readers compute it"},
    {"glm4", kPairs, read_glm4, "GLM-4"},
    {"glm4moe", kHalves, read_glm4moe, "GLM-4.5 to 4.7"},
    {"nemotron_h", kHalves, read_nemotron_h, "Nemotron-H, Nemotron Nano 2"},
    {"nemotron_h_moe", kHalves, read_nemotron_h, "Nemotron 3 Nano, 3.5 Lightning"},
    {"lfm2", kHalves, read_lfm2, "LFM2, LFM2.5"},
    {"lfm2moe", kHalves, read_lfm2, "LFM2-8B-A1B, 24B-A2B"},
    {"granite", kPairs, read_granite, "Granite 3"},
    {"granitemoe", kPairs, read_granite, "Granite 3 with experts"},
    {"granitehybrid", kPairs, read_granite_hybrid, "Granite 4"},
    {"falcon-h1", kHalves, read_falcon_h1, "Falcon-H1"},
    {"kimi-linear", kHalves, read_kimi_linear, "Kimi-Linear"},
    {"smollm3", kPairs, read_smollm3, "SmolLM3"},
    {"olmo2", kHalves, read_olmo2, "OLMo 2, OLMo 3"},
    {"exaone4", kHalves, read_exaone4, "EXAONE 4"},
    {"command-r", kPairs, read_command_r, "Command R"},
    {"cohere2", kPairs, read_cohere2, "Command R7B, Command A"},
    {"seed_oss", kHalves, read_plain_decoder, "Seed-OSS"},
    {"ernie4_5", kPairs, read_plain_decoder, "ERNIE 4.5"},
    {"paddleocr", kHalves, read_plain_decoder, "PaddleOCR-VL, text part"},
    {"ernie4_5-moe", kPairs, read_ernie_experts, "ERNIE 4.5 with experts", "interleave_moe_layer_step"},
    {"hunyuan-dense", kHalves, read_hunyuan, "Hunyuan"},
    {"hunyuan-moe", kHalves, read_hunyuan, "Hunyuan with experts"},
    {"bailingmoe2", kHalves, read_keyed_experts, "Ling 2, Ring 2"},
    {"bailing-moe-linear", kHalves, read_bailing_linear, "Ring-linear 2"},
    {"dots1", kHalves, read_keyed_experts, "dots.llm1"},
    {"minimax-m2", kHalves, read_minimax, "MiniMax M2"},
    {"mimo2", kHalves, read_mimo2, "MiMo V2"},
    {"step35", kHalves, read_step35, "Step 3.5"},
    {"smallthinker", kHalves, read_smallthinker, "SmallThinker"},
    {"llama4", kPairs, read_llama4, "Llama 4", "interleave_moe_layer_step"},
    {"starcoder2", kHalves, read_starcoder2, "StarCoder2"},
    {"stablelm", kHalves, read_stablelm, "StableLM 2", "use_parallel_residual"},
    {"minicpm", kPairs, read_minicpm, "MiniCPM"},
    {"apertus", kHalves, read_apertus, "Apertus"},
    {"arcee", kPairs, read_arcee, "AFM 4.5B"},
    {"gptneox", kHalves, read_gptneox, "Pythia, GPT-NeoX"},
    {"bitnet", kHalves, read_bitnet, "BitNet b1.58"},
    {"mamba", kHalves, read_mamba, "Mamba, Falcon Mamba"},
    {"mamba2", kHalves, read_pure_mamba2, "Mamba-2, Mamba Codestral"},
    {"jamba", kHalves, read_jamba, "Jamba"},
    {"olmo", kPairs, read_olmo, "OLMo"},
    {"olmoe", kHalves, read_olmoe, "OLMoE"},
    {"deepseek", kPairs, read_keyed_experts, "DeepSeek MoE"},
    {"exaone", kHalves, read_plain_decoder, "EXAONE 3"},
    {"exaone-moe", kHalves, read_exaone_experts, "K-EXAONE"},
    {"cohere2moe", kPairs, read_cohere2_experts, "Command A with experts"},
    {"afmoe", kHalves, read_afmoe, "Trinity"},
    {"falcon", kHalves, read_falcon, "Falcon"},
    {"gpt2", kHalves, read_gpt2, "GPT-2"},
    {"nemotron", kHalves, read_nemotron, "Nemotron, Minitron"},
    {"eurobert", kHalves, read_eurobert, "EuroBERT"},
    {"neo-bert", kPairs, read_neo_bert, "NeoBERT"},
    {"internlm2", kPairs, read_plain_decoder, "InternLM2, InternLM3"},
};

const Architecture& find_architecture(std::string_view name, const std::string& where) {
  const auto* found = std::ranges::find(kArchitectures, name, &Architecture::name);
  if (found != std::end(kArchitectures)) return *found;
  const auto* nearest = std::ranges::min_element(
      kArchitectures, {}, [&](const Architecture& row) { return spelling_distance(name, row.name); });
  throw StartupError(fmt::format("{}: the architecture '{}' is not supported; the nearest known one is '{}'", where,
                                 printable(name), nearest->name));
}

// Files state the rotation's numbers even if no layer rotates.
void forget_unused_ropes(ModelSpec& spec) {
  std::vector<bool> is_used(spec.ropes.size());
  for (const LayerSpec& layer : spec.layers) {
    if (mixer_part(layer).rotated_dim(layer) > 0) is_used.at(static_cast<std::size_t>(layer.attention.rope)) = true;
  }
  for (std::size_t i = 0; i < is_used.size(); ++i) {
    if (!is_used[i]) spec.ropes[i] = RopeConfig{};
  }
}

// Linear and YaRN scaling extend the original context by their factor; many files state the context before scaling. If
// a family bounds the context, or its layers have rotations of their own, the stated context is used.
void extend_context(ModelSpec& spec, std::int64_t stated) {
  constexpr double kLongest = 1 << 30;
  const RopeConfig& rope = spec.ropes.front();
  const bool extends = rope.scaling == RopeScaling::kLinear || rope.scaling == RopeScaling::kYarn;
  const bool is_only = std::ranges::none_of(
      spec.layers, [](const LayerSpec& layer) { return mixer_part(layer).has_heads() && layer.attention.rope > 0; });
  if (!extends || !is_only || spec.config.max_context != stated) return;
  const double original = rope.original_context > 0.0 ? rope.original_context : static_cast<double>(stated);
  const double extended = std::min(original * rope.factor, kLongest);
  if (extended > static_cast<double>(stated)) spec.config.max_context = static_cast<std::int64_t>(extended);
}

// Refuses GGUF files that hold no language model.
void refuse_other_parts(const GgufFile& file) {
  const auto refuse = [&](const char* what) { throw StartupError(fmt::format("{}: {}", file.where(), what)); };
  const auto type = file.get_string("general.type").value_or("model");
  const auto architecture = file.get_string("general.architecture").value_or("");
  if (type == "adapter")
    refuse("it is a LoRA adapter: serve the model that it was made for, with --adapters NAME=PATH");
  if (type == "imatrix") refuse("it is an importance matrix, which quantisers read: give the model's own GGUF file");
  if (type == "mmproj" || architecture == "clip")
    refuse(
        "it is the vision or audio part of a model (an mmproj file): give the language model's own GGUF "
        "file, and this one as --mmproj");
  if (architecture == "controlvector") refuse("it is a control vector, which Quire does not compute");
}

void use_exact_gelu(ModelSpec& spec) {
  const auto exchange = [](Nonlinearity& kind) {
    if (kind == Nonlinearity::kGelu) kind = Nonlinearity::kGeluOfError;
  };
  exchange(spec.classifier_activation);
  for (LayerSpec& layer : spec.layers) {
    FeedForwardSpec& ffn = layer.feed_forward;
    for (ActivationArgs* args : {&ffn.activation, &ffn.expert_activation, &ffn.shared_activation})
      exchange(args->kind);
  }
}

}  // namespace

// Levenshtein's distance.
std::size_t spelling_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::span<const Architecture> architectures() {
  return kArchitectures;
}

ModelSpec read_spec(const GgufFile& file, TensorTable& tensors, const SpecWishes& wishes) {
  refuse_other_parts(file);
  const auto name = file.get_string("general.architecture");
  if (!name) throw StartupError(fmt::format("{}: the metadata key 'general.architecture' is missing", tensors.where()));
  const Architecture& row = find_architecture(*name, tensors.where());
  if (tensors.tensors().empty())
    throw StartupError(fmt::format("{}: has no tensors (a vocabulary only)", tensors.where()));
  for (const char* audio : {"a.", "mm.a."})
    tensors.ignore(audio, kAudioPart);
  for (const char* vision : {"v.", "mm."})
    tensors.ignore(vision, kVisionPart);
  SpecReader reader(file, tensors, std::string(*name), wishes);
  ModelSpec spec = reader.read_plain(row.rope);
  const std::int64_t stated_context = spec.config.max_context;
  row.read(reader, spec);
  if (reader.flag("exact_gelu").value_or(false)) use_exact_gelu(spec);
  reader.refuse_unread(row.ignored);
  forget_unused_ropes(spec);
  if (reader.flag("headless").value_or(false)) spec.has_head = false;
  spec.ignore_unknown_keys = wishes.ignore_unknown_keys;
  extend_context(spec, stated_context);
  if (wishes.served_context > spec.config.max_context)
    tensors.warn(
        fmt::format("scheduler.max_model_len asks for {} tokens and the model's context has {}, which is "
                    "served",
                    wishes.served_context, spec.config.max_context));
  check_spec(spec, tensors.where());
  return spec;
}

void use_post_norms(ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) {
    layer.mixer_norm = layer.ffn_norm = WeightRole::kNoRole;
    layer.mixer_output_norm = WeightRole::kPostAttentionNorm;
    layer.ffn_output_norm = WeightRole::kPostFfnNorm;
  }
}

void use_sandwich_norms(ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers) {
    layer.mixer_output_norm = WeightRole::kPostAttentionNorm;
    layer.ffn_norm = WeightRole::kFfnNorm;
    layer.ffn_output_norm = WeightRole::kPostFfnNorm;
  }
}

void use_log_multiplier(ModelSpec& spec, double multiplier) {
  for (RopeConfig& rope : spec.ropes) {
    if (rope.scaling != RopeScaling::kYarn || multiplier == 0.0) continue;
    rope.attention_factor = yarn_attention_factor(rope.factor) / yarn_attention_factor(rope.factor, multiplier);
  }
}

void renormalise_experts(ModelSpec& spec) {
  for (LayerSpec& layer : spec.layers)
    layer.feed_forward.route.normalise = true;
}

}  // namespace quire
