#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/printable.h"
#include "core/base/result.h"
#include "core/model/architectures/generation_defaults.h"
#include "core/model/architectures/hf_config.h"
#include "core/model/architectures/hf_families.h"
#include "core/model/architectures/registry.h"
#include "core/model/formats/json_file.h"
#include "core/model/formats/quantized_tensors.h"
#include "core/model/formats/read_tokenizer.h"
#include "core/model/formats/safetensors.h"
#include "core/model/formats/sentence_modules.h"
#include "core/model/layers/checkpoint.h"

namespace quire {

namespace {

using Files = std::vector<std::unique_ptr<SafetensorsFile>>;
// What weights view.
struct Viewed {
  std::shared_ptr<const Files> files;
  std::shared_ptr<const Files> dense;
  std::shared_ptr<const TensorTable> table;
};

// The name that the file gives a tensor of GGUF's name. `prefix`: "model." in a causal language model, nothing in a
// bare one (embedding models are published so).
std::string hf_name(const std::string& gguf, const std::string& prefix) {
  std::string layer;
  std::string_view rest = gguf;
  if (rest.starts_with("blk.")) {
    const std::size_t dot = rest.find('.', 4);
    layer = fmt::format("layers.{}.", rest.substr(4, dot - 4));
    rest.remove_prefix(dot + 1);
  }
  const std::size_t dot = rest.rfind('.');
  for (int i = 0; i < kNumWeightRoles; ++i) {
    const RoleInfo& info = role_info(static_cast<WeightRole>(i));
    if (info.gguf != rest.substr(0, dot) || info.hf.empty()) continue;
    // '^' stands before the head's name, which has no prefix.
    if (info.hf.starts_with('^')) return fmt::format("{}{}", info.hf.substr(1), rest.substr(dot));
    return fmt::format("{}{}{}{}", prefix, layer, info.hf, rest.substr(dot));
  }
  return gguf;
}

// Old files carry the RoPE frequencies that follow from the configuration.
bool is_derived(const StoredTensor& tensor) {
  return tensor.name.ends_with("rotary_emb.inv_freq");
}

TensorTable tensor_table(const Files& files, const QuantConfig& quantization, const std::string& where) {
  std::vector<StoredTensor> tensors;
  for (const auto& file : files) {
    std::ranges::copy_if(file->tensors(), std::back_inserter(tensors), [](const auto& t) { return !is_derived(t); });
  }
  return {where, join_quantized(std::move(tensors), quantization, where)};
}

// A tied head may be stored under either name or both; the embedding counts where both are there.
void name_tensors(TensorTable& tensors, const ModelConfig& config) {
  const std::string prefix = tensors.contains("norm.weight") ? "" : "model.";
  const std::string embedding = prefix + "embed_tokens.weight";
  const std::string head = "lm_head.weight";
  const bool has_head = tensors.contains(head);
  const bool has_embedding = tensors.contains(embedding);
  if (!has_head && !has_embedding)
    throw StartupError(fmt::format("{}: the tensor '{}' is missing", tensors.where(), embedding));
  if (config.tied_head && has_head && has_embedding) tensors.take_matrix(head, config.vocab_size, config.hidden_size);
  const bool from_head = config.tied_head && !has_embedding;
  tensors.set_names(
      [=](const std::string& name) { return from_head && name == "token_embd.weight" ? head : hf_name(name, prefix); });
}

// Models of several media have their text part in an object of its own.
const nlohmann::json& text_config(const nlohmann::json& config) {
  const auto found = config.find("text_config");
  return found != config.end() && found->is_object() ? *found : config;
}

// Null for Llama, Qwen2 and Qwen3.
const HfFamily* find_family(const nlohmann::json& config, const std::string& where) {
  const JsonObject object(config, where);
  const std::string type = object.text("model_type").value_or("");
  if (type == "llama" || type == "qwen2" || type == "qwen3") return nullptr;
  if (const HfFamily* family = hf_family_of(config)) return family;
  object.fail(fmt::format("the model type '{}' is not supported; the nearest known one is '{}'", printable(type),
                          nearest_hf_family(type)));
}

QuantConfig read_quantization(const std::filesystem::path& directory, const nlohmann::json& config) {
  const QuantConfig stated = read_quant_config(config, (directory / "config.json").string());
  const auto path = directory / "hf_quant_config.json";
  const auto separate = read_json_file(path);
  if (stated.method != QuantConfig::Method::kNone || !separate) return stated;
  return read_separate_quant_config(*separate, path.string());
}

std::string read_chat_template(const std::filesystem::path& directory) {
  if (const auto text = read_text_file(directory / "chat_template.jinja")) return *text;
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const auto path = directory / name;
    const auto parsed = read_json_file(path);
    if (!parsed) continue;
    if (auto text = read_hf_chat_template(*parsed, path.string()); !text.empty()) return text;
  }
  return "";
}

void release(const Files& files, std::span<const std::byte> data) {
  for (const auto& file : files) {
    const auto bytes = file->mapping().bytes();
    if (data.data() >= bytes.data() && data.data() + data.size() <= bytes.data() + bytes.size())
      file->mapping().release(data);
  }
}

std::string model_name(const std::filesystem::path& directory, const nlohmann::json& config) {
  const auto name = JsonObject(config, directory.string()).text("_name_or_path").value_or("");
  if (!name.empty()) return std::filesystem::path(name).filename().string();
  // A path written with a slash at its end has an empty last part.
  const auto path = directory.has_filename() ? directory : directory.parent_path();
  return path.filename().string();
}

}  // namespace

Checkpoint read_hf_checkpoint(const std::filesystem::path& directory, bool with_text, const SpecWishes& wishes) {
  const std::string where = directory.string();
  const auto config_path = directory / "config.json";
  const auto config = read_json_file(config_path);
  if (!config) throw StartupError(fmt::format("{}: is missing", config_path.string()));
  Checkpoint out;
  nlohmann::json text = text_config(*config);
  const HfFamily* family = find_family(text, config_path.string());
  if (family == nullptr) {
    out.spec = plain_spec(read_hf_config(*config, config_path.string()));
    check_spec(out.spec, config_path.string());
  }

  const auto files = std::make_shared<const Files>(open_safetensors_directory(directory));
  const QuantConfig quantization = read_quantization(directory, *config);
  const auto tensors_owner = std::make_shared<TensorTable>(tensor_table(*files, quantization, where));
  TensorTable& tensors = *tensors_owner;
  const auto dense = std::make_shared<const Files>(open_dense_modules(directory));
  for (StoredTensor& tensor : dense_tensors(*dense, directory))
    tensors.add(std::move(tensor));
  if (family == nullptr) {
    name_tensors(tensors, out.spec.config);
    read_dense_sizes(tensors, out.spec);
  } else {
    text = with_class_defaults(text, *family);
    const JsonObject object(text, config_path.string());
    const auto metadata = translate_hf_config(text, object, *family, tensors);
    translate_hf_tensors(object, *family, tensors);
    out.spec = read_spec(*metadata, tensors, wishes);
    refuse_unknown_hf_keys(text, object);
    if (family->swaps_halves) {
      for (RopeConfig& rope : out.spec.ropes)
        rope.style = RopeStyle::kHalf;
    }
  }
  out.weights = collect_weights(out.spec, tensors);
  out.parts_left_out.assign(tensors.parts_left_out().begin(), tensors.parts_left_out().end());
  tensors.refuse_unused(out.spec.config.architecture);

  const auto generation_path = directory / "generation_config.json";
  if (const auto generation = read_json_file(generation_path)) {
    out.generation =
        checked_defaults(read_hf_generation(*generation, generation_path.string()), generation_path.string());
  }
  const auto pooling_path = directory / "1_Pooling" / "config.json";
  if (const auto pooling = read_json_file(pooling_path)) out.pooling = read_hf_pooling(*pooling, pooling_path.string());
  if (out.spec.num_labels > 0) out.pooling = out.spec.is_causal ? Pooling::kLast : Pooling::kCls;
  if (with_text) {
    out.tokenizer = read_hf_tokenizer(directory);
    check_vocabulary(*out.tokenizer, out.spec.config.vocab_size, where);
  }
  out.chat_template = read_chat_template(directory);
  out.name = model_name(directory, *config);
  for (const auto& file : *files)
    out.file_bytes += file->mapping().bytes().size();
  // Weights are views of the files and of what the table makes rows with.
  out.files = std::make_shared<const Viewed>(Viewed{files, dense, tensors_owner});
  out.release = [files](std::span<const std::byte> data) { release(*files, data); };
  return out;
}

}  // namespace quire
