#include <fmt/core.h>

#include <utility>

#include "core/base/result.h"
#include "core/model/architectures/generation_defaults.h"
#include "core/model/architectures/registry.h"
#include "core/model/formats/gguf.h"
#include "core/model/formats/gguf_shards.h"
#include "core/model/formats/read_tokenizer.h"
#include "core/model/layers/checkpoint.h"

namespace quire {

namespace {

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

// llama.cpp's numbers: 0 none, 1 mean, 2 cls, 3 last; 4, a classifier's score of one row.
Pooling read_pooling(const GgufFile& file, const ModelSpec& spec, const std::string& where) {
  const std::string key = spec.config.architecture + ".pooling_type";
  const auto type = file.get_int(key).value_or(0);
  if (type == 4 && spec.num_labels > 0) return spec.is_causal ? Pooling::kLast : Pooling::kCls;
  switch (type) {
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

}  // namespace

Checkpoint make_gguf_checkpoint(const std::shared_ptr<const GgufFile>& file, const std::string& where, bool with_text,
                                const SpecWishes& wishes) {
  Checkpoint out;
  TensorTable tensors = tensor_table(*file, where);
  out.spec = read_spec(*file, tensors, wishes);
  out.weights = collect_weights(out.spec, tensors);
  const ModelConfig& config = out.spec.config;
  out.parts_left_out.assign(tensors.parts_left_out().begin(), tensors.parts_left_out().end());
  tensors.refuse_unused(config.architecture);
  out.name = file->get_string("general.name").value_or(std::filesystem::path(where).stem().string());
  out.file_bytes = file->file_bytes();
  if (with_text) {
    out.tokenizer = read_gguf_tokenizer(*file, where);
    check_vocabulary(*out.tokenizer, config.vocab_size, where);
  }
  out.chat_template = file->get_string("tokenizer.chat_template").value_or("");
  out.generation = checked_defaults(read_generation(*file), where);
  out.pooling = read_pooling(*file, out.spec, where);
  out.files = file;
  out.release = [file](std::span<const std::byte> data) { file->release(data); };
  return out;
}

Checkpoint read_gguf_checkpoint(const std::filesystem::path& path, bool with_text, const SpecWishes& wishes) {
  return make_gguf_checkpoint(open_gguf(path), path.string(), with_text, wishes);
}

}  // namespace quire
