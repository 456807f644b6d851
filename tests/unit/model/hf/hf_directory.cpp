#include "tests/unit/model/hf/hf_directory.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/model/formats/gguf/gguf.h"
#include "core/model/formats/gguf/quantize.h"
#include "core/model/tools/synth_vocab.h"

namespace quire::test {

namespace {

using nlohmann::json;

using Tensor = RawTensor;

std::string hf_name(std::string name, const HfDirectoryOptions& options) {
  static const std::vector<std::pair<std::string, std::string>> kParts{
      {"token_embd.", "model.embed_tokens."}, {"output_norm.", "model.norm."},
      {"output.weight", "lm_head.weight"},    {"blk.", "model.layers."},
      {"attn_norm.", "input_layernorm."},     {"attn_q_norm.", "self_attn.q_norm."},
      {"attn_k_norm.", "self_attn.k_norm."},  {"attn_q.", "self_attn.q_proj."},
      {"attn_k.", "self_attn.k_proj."},       {"attn_v.", "self_attn.v_proj."},
      {"attn_output.", "self_attn.o_proj."},  {"ffn_norm.", "post_attention_layernorm."},
      {"ffn_gate.", "mlp.gate_proj."},        {"ffn_up.", "mlp.up_proj."},
      {"ffn_down.", "mlp.down_proj."},
  };
  for (const auto& [from, to] : kParts) {
    const auto at = name.find(from);
    if (at == 0 || (at != std::string::npos && name[at - 1] == '.')) name.replace(at, from.size(), to);
  }
  if (options.head_name_only && name == "model.embed_tokens.weight") name = "lm_head.weight";
  if (options.bare_names && name.starts_with("model.")) name.erase(0, 6);
  return name;
}

// GGUF's llama rows come in rotated pairs (2i, 2i+1); Hugging Face has the first of all pairs, then the second.
std::vector<float> unpermuted(const std::vector<float>& rows, std::int64_t cols, std::int64_t head_dim) {
  std::vector<float> out(rows.size());
  const std::int64_t num_rows = std::ssize(rows) / cols;
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const std::int64_t in_head = row % head_dim;
    const std::int64_t to = row - in_head + in_head % 2 * head_dim / 2 + in_head / 2;
    std::copy_n(rows.begin() + row * cols, cols, out.begin() + to * cols);
  }
  return out;
}

std::vector<Tensor> convert(const GgufFile& file, const ModelConfig& config, const HfDirectoryOptions& options) {
  std::vector<Tensor> out;
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.name == "rope_freqs.weight") continue;  // config.json says it
    std::vector<float> values(tensor.data.size() / sizeof(float));
    std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
    const bool rotated = tensor.name.find("attn_q.weight") != std::string_view::npos ||
                         tensor.name.find("attn_k.weight") != std::string_view::npos;
    if (rotated && config.architecture == "llama") values = unpermuted(values, tensor.shape[0], config.head_dim);
    Tensor to;
    to.name = hf_name(std::string(tensor.name), options);
    to.shape.assign(tensor.shape.rbegin(), tensor.shape.rend());
    if (options.format && tensor.name.starts_with("blk.") && to.shape.size() == 2) {
      const std::string stem = to.name.substr(0, to.name.size() - std::string(".weight").size());
      FormattedWeight formatted = format_weight(*options.format, stem, values, to.shape[0], to.shape[1]);
      if (!options.decoded) {
        std::ranges::move(formatted.tensors, std::back_inserter(out));
        continue;
      }
      values.assign(formatted.values.begin(), formatted.values.end());
    }
    const DType type = to.shape.size() == 2 ? options.type : DType::kF32;
    to.dtype = dtype_info(type).name;
    to.data.resize(dtype_bytes(type, std::ssize(values)));
    quantize(type, values, to.data);
    out.push_back(std::move(to));
  }
  return out;
}

void write_safetensors(const std::filesystem::path& path, std::span<const Tensor> tensors) {
  json header;
  std::size_t offset = 0;
  for (const Tensor& tensor : tensors) {
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + tensor.data.size()}}};
    offset += tensor.data.size();
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), sizeof length) << text;
  for (const Tensor& tensor : tensors) {
    out.write(reinterpret_cast<const char*>(tensor.data.data()), static_cast<std::streamsize>(tensor.data.size()));
  }
}

void write_weights(const std::filesystem::path& directory, const std::vector<Tensor>& tensors, int num_shards) {
  if (num_shards == 1) return write_safetensors(directory / "model.safetensors", tensors);
  json index;
  const std::size_t share = tensors.size() / static_cast<std::size_t>(num_shards) + 1;
  for (std::size_t begin = 0; begin < tensors.size(); begin += share) {
    const std::string name = "model-" + std::to_string(begin) + ".safetensors";
    const auto shard = std::span(tensors).subspan(begin, std::min(share, tensors.size() - begin));
    write_safetensors(directory / name, shard);
    for (const Tensor& tensor : shard)
      index["weight_map"][tensor.name] = name;
  }
  std::ofstream(directory / "model.safetensors.index.json") << index;
}

json rope_scaling(const RopeConfig& rope) {
  static const std::map<RopeScaling, std::string> kNames{
      {RopeScaling::kLinear, "linear"}, {RopeScaling::kLlama3, "llama3"}, {RopeScaling::kYarn, "yarn"}};
  if (rope.scaling == RopeScaling::kNone) return nullptr;
  return {{"rope_type", kNames.at(rope.scaling)},
          {"factor", rope.factor},
          {"low_freq_factor", rope.low_freq_factor},
          {"high_freq_factor", rope.high_freq_factor},
          {"original_max_position_embeddings", rope.original_context}};
}

void write_config(const std::filesystem::path& directory, const ModelConfig& config,
                  const HfDirectoryOptions& options) {
  json out{{"model_type", config.architecture},
           {"hidden_size", config.hidden_size},
           {"intermediate_size", config.ffn_size},
           {"num_attention_heads", config.num_heads},
           {"num_key_value_heads", config.num_kv_heads},
           {"num_hidden_layers", config.num_layers},
           {"head_dim", config.head_dim},
           {"vocab_size", config.vocab_size},
           {"max_position_embeddings", config.max_context},
           {"rms_norm_eps", config.rms_eps},
           {"rope_theta", config.rope.base},
           {"rope_scaling", rope_scaling(config.rope)},
           {"tie_word_embeddings", config.tied_head}};
  if (options.format && !options.decoded) out["quantization_config"] = quantization_config(*options.format);
  std::ofstream(directory / "config.json") << out;
}

void write_tokenizer(const std::filesystem::path& directory) {
  const SynthVocab vocab = make_synth_vocab(kMinSynthVocab);
  json tokens;
  for (std::size_t i = 0; i < vocab.tokens.size(); ++i)
    tokens[vocab.tokens[i]] = i;
  const json byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const json out{{"model", {{"type", "BPE"}, {"vocab", tokens}, {"merges", vocab.merges}}},
                 {"pre_tokenizer", byte_level},
                 {"decoder", byte_level},
                 {"added_tokens", json::array()}};
  std::ofstream(directory / "tokenizer.json") << out;
}

}  // namespace

void write_hf_directory(const std::filesystem::path& gguf, const ModelConfig& config, const HfDirectoryOptions& options,
                        const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  write_weights(directory, convert(*GgufFile::open(gguf), config, options), options.num_shards);
  write_config(directory, config, options);
  write_tokenizer(directory);
}

}  // namespace quire::test
