#include <fmt/core.h>

#include <set>
#include <string_view>
#include <utility>

#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/base/sampling_ranges.h"
#include "core/model/architectures/registry.h"
#include "core/model/formats/gguf/gguf.h"
#include "core/model/formats/read_tokenizer.h"
#include "core/model/layers/checkpoint.h"

namespace quire {

namespace {

// llama.cpp's numbers: 0 none, 1 mean, 2 cls, 3 last; 4: a classifier's score of a row.
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

GenerationDefaults read_generation(const GgufFile& file, TensorTable& tensors) {
  constexpr std::string_view kPrefix = "general.sampling.";
  std::set<std::string, std::less<>> applied;
  const auto number = [&](const char* name, const SamplingRange& range) -> std::optional<double> {
    const std::string key = fmt::format("{}{}", kPrefix, *applied.emplace(name).first);
    const auto value = file.get_float(key);
    if (value) check_in_range(*value, range, key, file.where());
    return value;
  };
  const auto real = [&](const char* name, const SamplingRange& range) -> std::optional<float> {
    const auto value = number(name, range);
    return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
  };
  GenerationDefaults out;
  out.temperature = real("temp", kTemperatureRange);
  out.top_p = real("top_p", kProbabilityRange);
  out.min_p = real("min_p", kProbabilityRange);
  out.repetition_penalty = real("penalty_repeat", kRepetitionPenaltyRange);
  if (number("top_k", kTopKRange)) out.top_k = static_cast<std::int32_t>(*file.get_int("general.sampling.top_k"));
  for (const auto& [key, value] : file.metadata()) {
    if (key.starts_with(kPrefix) && !applied.contains(key.substr(kPrefix.size())))
      tensors.warn(fmt::format("the default '{}' is not applied: requests may set it", printable(key)));
  }
  return out;
}

}  // namespace

Checkpoint make_gguf_checkpoint(const std::shared_ptr<const GgufFile>& file, const std::string& where, bool with_text,
                                const SpecWishes& wishes) {
  Checkpoint out;
  TensorTable tensors = gguf_tensor_table(*file, where);
  out.spec = read_spec(*file, tensors, wishes);
  out.weights = collect_weights(out.spec, tensors);
  const ModelConfig& config = out.spec.config;
  out.parts_left_out.assign(tensors.parts_left_out().begin(), tensors.parts_left_out().end());
  tensors.refuse_unused(config.architecture);
  out.name = file->get_string("general.name").value_or(std::filesystem::path(where).stem().string());
  out.file_bytes = file->file_bytes();
  out.chat_template = file->get_string("tokenizer.chat_template").value_or("");
  if (with_text) {
    out.tokenizer = fit_vocabulary(read_gguf_tokenizer(*file, where), config.vocab_size, out.chat_template, where);
  }
  out.generation = read_generation(*file, tensors);
  out.pooling = read_pooling(*file, out.spec, where);
  out.warnings = tensors.warnings();
  out.files = file;
  out.mappings = file->mappings();
  out.release = [file](std::span<const std::byte> data) { file->release(data); };
  return out;
}

Checkpoint read_gguf_checkpoint(const std::filesystem::path& path, bool with_text, const SpecWishes& wishes) {
  return make_gguf_checkpoint(open_gguf(path), path.string(), with_text, wishes);
}

}  // namespace quire
