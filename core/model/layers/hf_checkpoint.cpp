#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/architectures/hf_config.h"
#include "core/model/formats/files/content_hash.h"
#include "core/model/formats/files/mapped_file.h"
#include "core/model/formats/files/model_path.h"
#include "core/model/formats/hf/directory_tensors.h"
#include "core/model/formats/hf/json_file.h"
#include "core/model/formats/hf/safetensors.h"
#include "core/model/formats/read_tokenizer.h"
#include "core/model/layers/checkpoint.h"

namespace quire {

namespace {

using Files = std::vector<std::unique_ptr<SafetensorsFile>>;
// Memory that the weights are views of.
struct Viewed {
  std::shared_ptr<const Files> files;
  std::shared_ptr<const Files> dense;
  std::shared_ptr<const TensorTable> table;
};

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

// Names of the folder's JSON files, and of the configurations of modules in folders below, in a fixed order.
std::set<std::filesystem::path> text_files(const std::filesystem::path& directory) {
  std::set<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_directory(ignored)) found.insert(at->path().filename() / "config.json");
    if (at->path().extension() == ".json") found.insert(at->path().filename());
  }
  return found;
}

std::string hash_texts(const std::filesystem::path& directory) {
  std::string out;
  for (const auto& name : text_files(directory)) {
    try {
      out += fmt::format("{} {}\n", name.string(), hex_digits(hash_content(MappedFile(directory / name).bytes())));
    } catch (const StartupError&) {  // absent, empty or unreadable
    }
  }
  return out;
}

std::string model_name(const std::filesystem::path& directory, const nlohmann::json& config) {
  const auto name = JsonObject(config, directory.string()).text("_name_or_path").value_or("");
  if (!name.empty()) return std::filesystem::path(name).filename().string();
  // The last component of a path with a trailing slash is empty.
  const auto path = directory.has_filename() ? directory : directory.parent_path();
  return path.filename().string();
}

}  // namespace

Checkpoint read_hf_checkpoint(const std::filesystem::path& directory, bool with_text, const SpecWishes& wishes) {
  const std::string where = directory.string();
  const auto config_path = directory / "config.json";
  const auto config = read_json_file(config_path);
  if (!config) {
    throw StartupError(fmt::format("{}: is missing{}", config_path.string(), instead_of_config(directory)));
  }
  Checkpoint out;
  const auto files = std::make_shared<const Files>(open_safetensors_directory(directory));
  const QuantConfig quantization = read_quantization(directory, *config);
  const auto tensors_owner = std::make_shared<TensorTable>(tensor_table(*files, quantization, where));
  TensorTable& tensors = *tensors_owner;
  const auto dense = std::make_shared<const Files>(open_dense_modules(directory));
  for (StoredTensor& tensor : dense_tensors(*dense, directory))
    tensors.add(std::move(tensor));
  SpecWishes own = wishes;
  const auto pooling_path = directory / "1_Pooling" / "config.json";
  const auto pooling = read_json_file(pooling_path);
  own.may_lack_head = pooling || is_there(directory / "modules.json");
  out.spec = read_hf_spec(*config, config_path.string(), tensors, own);
  out.weights = collect_weights(out.spec, tensors);
  out.parts_left_out.assign(tensors.parts_left_out().begin(), tensors.parts_left_out().end());
  tensors.refuse_unused(out.spec.config.architecture);

  const auto generation_path = directory / "generation_config.json";
  if (const auto generation = read_json_file(generation_path)) {
    out.generation = read_hf_generation(*generation, generation_path.string(), tensors);
  }
  if (pooling) out.pooling = read_hf_pooling(*pooling, pooling_path.string());
  if (out.spec.num_labels > 0) out.pooling = out.spec.is_causal ? Pooling::kLast : Pooling::kCls;
  out.chat_template = read_chat_template(directory);
  if (with_text) {
    out.tokenizer = fit_vocabulary(read_hf_tokenizer(directory), out.spec.config.vocab_size, out.chat_template, where);
  }
  out.name = model_name(directory, *config);
  out.warnings = tensors.warnings();
  for (const auto& file : *files)
    out.file_bytes += file->mapping().bytes().size();
  // Weights are views of the files and of the table's row makers.
  out.files = std::make_shared<const Viewed>(Viewed{files, dense, tensors_owner});
  for (const Files* part : {files.get(), dense.get()}) {
    for (const auto& file : *part)
      out.mappings.push_back(&file->mapping());
  }
  out.texts = hash_texts(directory);
  out.release = [files](std::span<const std::byte> data) { release(*files, data); };
  return out;
}

}  // namespace quire
