// The registry of architectures: a row for each name in files, with the function that reads its ModelSpec. Immutable;
// any thread. Adding a family is a file here and its rows in registry.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/model/architectures/spec_reader.h"

namespace quire {

struct Architecture {
  std::string_view name;
  RopeStyle rope;  // not in the file
  void (*read)(SpecReader& reader, ModelSpec& spec);
  std::string_view models;        // for people
  std::string_view ignored = "";  // keys in its files that have no effect
};

std::span<const Architecture> architectures();

// Number of letters to change, add or remove to turn one name into the other.
std::size_t spelling_distance(std::string_view a, std::string_view b);

// Reads the spec of a GGUF file. Throws StartupError, one line: the architecture is unknown, with the most similar
// known one; or a key is missing, wrong or not understood.
ModelSpec read_spec(const GgufFile& file, TensorTable& tensors, const SpecWishes& wishes = {});

// The families, by file.
void read_llama(SpecReader& reader, ModelSpec& spec);
void read_mistral3(SpecReader& reader, ModelSpec& spec);
void read_llama4(SpecReader& reader, ModelSpec& spec);
void read_smollm3(SpecReader& reader, ModelSpec& spec);
void read_phi3(SpecReader& reader, ModelSpec& spec);
void read_phimoe(SpecReader& reader, ModelSpec& spec);
void read_smallthinker(SpecReader& reader, ModelSpec& spec);
void read_arcee(SpecReader& reader, ModelSpec& spec);
void read_plain_decoder(SpecReader& reader, ModelSpec& spec);
void read_qwen2(SpecReader& reader, ModelSpec& spec);
void read_qwen3(SpecReader& reader, ModelSpec& spec);
void read_qwen2moe(SpecReader& reader, ModelSpec& spec);
void read_qwen3moe(SpecReader& reader, ModelSpec& spec);
void read_qwen35(SpecReader& reader, ModelSpec& spec);
void read_gemma(SpecReader& reader, ModelSpec& spec);
void read_gemma2(SpecReader& reader, ModelSpec& spec);
void read_gemma3(SpecReader& reader, ModelSpec& spec);
void read_gemma_embedding(SpecReader& reader, ModelSpec& spec);
void read_gemma3n(SpecReader& reader, ModelSpec& spec);
void read_gemma4(SpecReader& reader, ModelSpec& spec);
void read_gpt_oss(SpecReader& reader, ModelSpec& spec);
void read_phi2(SpecReader& reader, ModelSpec& spec);
void read_gptneox(SpecReader& reader, ModelSpec& spec);
void read_stablelm(SpecReader& reader, ModelSpec& spec);
void read_starcoder2(SpecReader& reader, ModelSpec& spec);
void read_command_r(SpecReader& reader, ModelSpec& spec);
void read_cohere2(SpecReader& reader, ModelSpec& spec);
void read_apertus(SpecReader& reader, ModelSpec& spec);
void read_bitnet(SpecReader& reader, ModelSpec& spec);
void read_olmo2(SpecReader& reader, ModelSpec& spec);
void read_exaone4(SpecReader& reader, ModelSpec& spec);
void read_glm4(SpecReader& reader, ModelSpec& spec);
void read_granite(SpecReader& reader, ModelSpec& spec);
void read_minicpm(SpecReader& reader, ModelSpec& spec);
void read_hunyuan(SpecReader& reader, ModelSpec& spec);
void read_sigmoid_experts(SpecReader& reader, ModelSpec& spec);
void read_keyed_experts(SpecReader& reader, ModelSpec& spec);
void read_bailing_linear(SpecReader& reader, ModelSpec& spec);
void read_glm4moe(SpecReader& reader, ModelSpec& spec);
void read_ernie_experts(SpecReader& reader, ModelSpec& spec);
void read_minimax(SpecReader& reader, ModelSpec& spec);
void read_mimo2(SpecReader& reader, ModelSpec& spec);
void read_step35(SpecReader& reader, ModelSpec& spec);
void read_deepseek2(SpecReader& reader, ModelSpec& spec);
void read_lfm2(SpecReader& reader, ModelSpec& spec);
void read_granite_hybrid(SpecReader& reader, ModelSpec& spec);
void read_nemotron_h(SpecReader& reader, ModelSpec& spec);
void read_falcon_h1(SpecReader& reader, ModelSpec& spec);
void read_kimi_linear(SpecReader& reader, ModelSpec& spec);
void read_mamba(SpecReader& reader, ModelSpec& spec);
void read_pure_mamba2(SpecReader& reader, ModelSpec& spec);
void read_jamba(SpecReader& reader, ModelSpec& spec);
void read_olmo(SpecReader& reader, ModelSpec& spec);
void read_olmoe(SpecReader& reader, ModelSpec& spec);
void read_exaone_experts(SpecReader& reader, ModelSpec& spec);
void read_cohere2_experts(SpecReader& reader, ModelSpec& spec);
void read_afmoe(SpecReader& reader, ModelSpec& spec);
void read_falcon(SpecReader& reader, ModelSpec& spec);
void read_gpt2(SpecReader& reader, ModelSpec& spec);
void read_nemotron(SpecReader& reader, ModelSpec& spec);
void read_eurobert(SpecReader& reader, ModelSpec& spec);
void read_neo_bert(SpecReader& reader, ModelSpec& spec);
void read_bert(SpecReader& reader, ModelSpec& spec);
void read_modern_bert(SpecReader& reader, ModelSpec& spec);

// Shared by families: post norms only, and norms on both sides of each branch.
void use_post_norms(ModelSpec& spec);
void use_sandwich_norms(ModelSpec& spec);
// YaRN's log multiplier: cos and sin times m(1) / m(multiplier), m(w) = 0.1 w ln(factor) + 1.
void use_log_multiplier(ModelSpec& spec, double multiplier);
void renormalise_experts(ModelSpec& spec);

}  // namespace quire
