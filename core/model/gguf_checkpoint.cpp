#include <fmt/core.h>

#include <utility>

#include "core/base/result.h"
#include "core/model/checkpoint.h"
#include "core/model/gguf.h"
#include "core/model/gguf_config.h"
#include "core/model/gguf_shards.h"
#include "core/model/read_tokenizer.h"

namespace quire {

namespace {

TensorNames gguf_names() {
  return {.embedding = "token_embd.weight",
          .final_norm = "output_norm.weight",
          .head = "output.weight",
          .layer_prefix = "blk.",
          .attention_norm = "attn_norm",
          .query = "attn_q",
          .key = "attn_k",
          .value = "attn_v",
          .attention_output = "attn_output",
          .query_norm = "attn_q_norm",
          .key_norm = "attn_k_norm",
          .ffn_norm = "ffn_norm",
          .gate = "ffn_gate",
          .up = "ffn_up",
          .down = "ffn_down"};
}

TensorTable tensor_table(const GgufFile& file, const std::string& where) {
  std::vector<StoredTensor> tensors;
  for (const GgufTensor& tensor : file.tensors()) {
    StoredTensor& stored = tensors.emplace_back();
    stored.name = tensor.name;
    stored.type = tensor.type;
    stored.type_name =
        tensor.type ? std::string(dtype_info(*tensor.type).name) : fmt::format("number {}", tensor.ggml_type);
    stored.shape.assign(tensor.shape.rbegin(), tensor.shape.rend());
    stored.data = tensor.data;
  }
  return {where, std::move(tensors)};
}

// llama.cpp's numbers: 0 none, 1 mean, 2 cls, 3 last; 4, a score for a pair of texts, is no vector.
Pooling read_pooling(const GgufFile& file, const std::string& architecture, const std::string& where) {
  const std::string key = architecture + ".pooling_type";
  switch (const auto type = file.get_int(key).value_or(0)) {
    case 0: return Pooling::kNone;
    case 1: return Pooling::kMean;
    case 2: return Pooling::kCls;
    case 3: return Pooling::kLast;
    default: throw StartupError(fmt::format("{}: '{}' is {}, which is not supported", where, key, type));
  }
}

GenerationDefaults read_generation(const GgufFile& file) {
  const auto number = [&](const char* name) -> std::optional<float> {
    const auto value = file.get_float(fmt::format("general.sampling.{}", name));
    return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
  };
  GenerationDefaults out;
  out.temperature = number("temp");
  out.top_p = number("top_p");
  out.min_p = number("min_p");
  out.repetition_penalty = number("penalty_repeat");
  if (const auto top_k = file.get_int("general.sampling.top_k"); top_k && std::in_range<std::int32_t>(*top_k)) {
    out.top_k = static_cast<std::int32_t>(*top_k);
  }
  return out;
}

void read_from_tensors(const GgufFile& file, TensorTable& tensors, ModelConfig& config) {
  const auto& embedding = tensors.shape_of("token_embd.weight");
  if (embedding.size() != 2)
    throw StartupError(fmt::format("{}: the tensor 'token_embd.weight' is not a matrix", tensors.where()));
  config.vocab_size = embedding[0];
  if (const auto stated = file.get_int(config.architecture + ".vocab_size"); stated && *stated != config.vocab_size) {
    throw StartupError(fmt::format("{}: the metadata says {} tokens and the embedding has {}", tensors.where(), *stated,
                                   config.vocab_size));
  }
  config.tied_head = !tensors.contains("output.weight");
  if (tensors.contains("rope_freqs.weight")) {
    config.rope.frequency_divisors = tensors.take_vector("rope_freqs.weight", config.rope.rotary_dim / 2);
  }
}

}  // namespace

Checkpoint make_gguf_checkpoint(const std::shared_ptr<const GgufFile>& file, const std::string& where) {
  Checkpoint out;
  out.config = read_gguf_config(*file, where);
  TensorTable tensors = tensor_table(*file, where);
  if (tensors.tensors().empty()) throw StartupError(fmt::format("{}: has no tensors (a vocabulary only)", where));
  read_from_tensors(*file, tensors, out.config);
  check_config(out.config, where);
  out.weights = collect_weights(out.config, gguf_names(), tensors);
  tensors.refuse_unused(out.config.architecture);
  out.name = file->get_string("general.name").value_or(std::filesystem::path(where).stem().string());
  out.file_bytes = file->file_bytes();
  out.tokenizer = read_gguf_tokenizer(*file, where);
  check_vocabulary(*out.tokenizer, out.config.vocab_size, where);
  out.chat_template = file->get_string("tokenizer.chat_template").value_or("");
  out.generation = read_generation(*file);
  out.pooling = read_pooling(*file, out.config.architecture, where);
  out.files = file;
  out.release = [file](std::span<const std::byte> data) { file->release(data); };
  return out;
}

Checkpoint read_gguf_checkpoint(const std::filesystem::path& path) {
  return make_gguf_checkpoint(open_gguf(path), path.string());
}

}  // namespace quire
