#include "core/model/tools/inspect.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/encode/towers/hf_tower.h"
#include "core/model/formats/files/model_path.h"
#include "core/model/formats/gguf/gguf.h"
#include "core/model/formats/hf/json_file.h"
#include "core/model/formats/hf/safetensors.h"
#include "core/model/layers/drafted_model.h"
#include "core/model/layers/model_identity.h"

namespace quire {

namespace {

using nlohmann::json;

constexpr std::size_t kShownElements = 6;

template <class T>
std::string show_one(const T& value) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return fmt::format("\"{}\"", printable(value));
  } else {
    return fmt::format("{}", value);
  }
}

template <class T>
std::string show(const T& value) {
  return show_one(value);
}

template <class T>
std::string show(const std::vector<T>& values) {
  std::string out = "[";
  for (std::size_t i = 0; i < std::min(values.size(), kShownElements); ++i) {
    // A plain T first: vector<bool> hands out proxies.
    const T value = values[i];
    out += (i == 0 ? "" : ", ") + show_one(value);
  }
  if (values.size() > kShownElements) out += fmt::format(", ... {} in all", values.size());
  return out + "]";
}

// A key of the file's metadata, as text and as JSON.
struct Entry {
  std::string key;
  std::string text;
  json value;
};

struct Tensor {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;
  std::uint64_t bytes = 0;
};

// The files' content, independent of their format.
struct Contents {
  std::string format;
  std::string order;  // order of a shape's dimensions
  std::uint64_t bytes = 0;
  std::vector<Entry> metadata;
  std::vector<Tensor> tensors;
};

// Long lists, such as vocabularies, are shown by their length.
template <class T>
json to_json_value(const T& value) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return printable(value);
  } else {
    return value;
  }
}

template <class T>
json to_json_value(const std::vector<T>& values) {
  if (values.size() > kShownElements) return {{"num_elements", values.size()}};
  json list = json::array();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T value = values[i];
    list.push_back(to_json_value(value));
  }
  return list;
}

Contents read_gguf(const std::filesystem::path& path) {
  const auto file = open_gguf(path);
  Contents contents{fmt::format("GGUF v{}", file->version()), "innermost", file->file_bytes(), {}, {}};
  for (const auto& [key, value] : file->metadata()) {
    contents.metadata.push_back({printable(key), std::visit([](const auto& v) { return show(v); }, value),
                                 std::visit([](const auto& v) { return to_json_value(v); }, value)});
  }
  for (const GgufTensor& tensor : file->tensors()) {
    std::string type =
        tensor.type ? std::string(dtype_info(*tensor.type).name) : fmt::format("type {}", tensor.ggml_type);
    contents.tensors.push_back({printable(tensor.name), std::move(type), tensor.shape, tensor.data.size()});
  }
  return contents;
}

Contents read_directory(const std::filesystem::path& path) {
  Contents contents{"Hugging Face directory", "outermost", 0, {}, {}};
  const auto config = read_json_file(path / "config.json");
  if (!config) {
    throw StartupError(fmt::format("{}: is missing{}", (path / "config.json").string(), instead_of_config(path)));
  }
  for (const auto& [key, value] : config->items())
    contents.metadata.push_back({printable(key), printable(value.dump()), value});
  for (const auto& file : open_safetensors_directory(path)) {
    contents.bytes += file->mapping().bytes().size();
    for (const StoredTensor& tensor : file->tensors()) {
      contents.tensors.push_back(
          {printable(tensor.name), std::string(tensor.type_name), tensor.shape, tensor.data.size()});
    }
  }
  return contents;
}

Contents read_contents(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? read_directory(path) : read_gguf(path);
}

// "tensors: 40 (Q8_0 29: 4.8 MiB, F32 9: 9.0 KiB)"
std::string summary(const std::vector<Tensor>& tensors) {
  std::map<std::string, std::pair<std::int64_t, std::uint64_t>> types;
  for (const Tensor& tensor : tensors) {
    auto& [count, bytes] = types[tensor.type];
    ++count;
    bytes += tensor.bytes;
  }
  std::string out;
  for (const auto& [type, total] : types)
    out += fmt::format("{}{} {}: {}", out.empty() ? "" : ", ", type, total.first, format_bytes(total.second));
  return fmt::format("tensors: {}{}\n", tensors.size(), out.empty() ? "" : " (" + out + ")");
}

std::string describe_contents(const std::filesystem::path& path, const Contents& contents,
                              const InspectOptions& shown) {
  std::string out = fmt::format("{}: {}, {}\n", path.string(), contents.format, format_bytes(contents.bytes));
  if (shown.metadata) {
    out += fmt::format("\nmetadata: {} keys\n", contents.metadata.size());
    for (const Entry& entry : contents.metadata)
      out += fmt::format("  {} = {}\n", entry.key, entry.text);
  }
  if (!shown.tensors) return out + summary(contents.tensors);
  out += fmt::format("\ntensors: {}, dimensions {} first\n", contents.tensors.size(), contents.order);
  for (const Tensor& tensor : contents.tensors) {
    const std::string dims = fmt::format("[{}]", fmt::join(tensor.shape, ", "));
    out += fmt::format("  {:<44} {:<6} {:<18} {}\n", tensor.name, tensor.type, dims, format_bytes(tensor.bytes));
  }
  return out;
}

std::string describe_model(const ModelInfo& info) {
  std::string left_out;
  for (const std::string& part : info.parts_left_out)
    left_out += fmt::format("not computed: {}\n", part);
  for (const std::string& warning : info.warnings)
    left_out += fmt::format("warning: {}\n", warning);
  return left_out + fmt::format(
                        "model: {}, {}, {:.1f} million parameters, mostly {}\n"
                        "{} layers, hidden size {}, {} key-value heads of {}, vocabulary {}, context {}\n",
                        printable(info.name), info.architecture, static_cast<double>(info.num_parameters) / 1e6,
                        info.file_type, info.kv_layout.num_layers, info.hidden_size, info.kv_layout.num_kv_heads,
                        info.kv_layout.head_dim, info.vocab_size, info.max_context);
}

json model_to_json(const ModelInfo& info) {
  return {{"name", printable(info.name)},
          {"architecture", info.architecture},
          {"file_type", info.file_type},
          {"num_parameters", info.num_parameters},
          {"num_layers", info.kv_layout.num_layers},
          {"hidden_size", info.hidden_size},
          {"num_kv_heads", info.kv_layout.num_kv_heads},
          {"head_dim", info.kv_layout.head_dim},
          {"vocab_size", info.vocab_size},
          {"max_context", info.max_context},
          {"generates", info.has_head && info.is_causal},
          {"parts_left_out", info.parts_left_out},
          {"warnings", info.warnings}};
}

json plan_to_json(const MemoryPlan& plan, const std::string& backend) {
  return {{"backend", backend},
          {"weight_bytes", plan.needs.weight_bytes},
          {"activation_bytes", plan.needs.activation_bytes},
          {"adapter_bytes", plan.needs.adapter_bytes},
          {"beside_bytes", plan.needs.beside_bytes},
          {"host_bytes", plan.needs.host_bytes},
          {"kv_bytes", plan.kv_bytes()},
          {"state_bytes", plan.states_bytes()},
          {"total_bytes", plan.total_bytes()},
          {"available_bytes", plan.machine.available},
          {"num_blocks", plan.num_blocks},
          {"block_size", plan.block_size},
          {"kv_tokens", plan.kv_tokens()}};
}

// State that a sequence keeps, by group of layers.
std::string describe_groups(const ModelInfo& info, const Backend& backend, const KvCacheOptions& options) {
  std::string out;
  for (const KvGroupSpec& group : info.kv_groups) {
    if (group.kind == KvGroupKind::kState) {
      const auto bytes = static_cast<std::uint64_t>(group.state_floats) * sizeof(float);
      out += fmt::format("{} layers keep a state: {} for each sequence\n", group.num_layers, format_bytes(bytes));
      continue;
    }
    const std::size_t bytes = backend.kv_block_bytes({.num_layers = group.num_layers,
                                                      .num_blocks = 1,
                                                      .block_size = options.block_size,
                                                      .num_kv_heads = group.num_kv_heads,
                                                      .head_dim = group.head_dim,
                                                      .dtype = options.dtype,
                                                      .value_dim = group.value_dim});
    const std::string what = group.kind == KvGroupKind::kLatent ? "one row" : "K and V";
    const std::string tokens =
        group.kind == KvGroupKind::kWindow ? fmt::format("the last {} tokens", group.window) : "all tokens";
    out += fmt::format("{} layers keep {} of {}: {} for {} tokens\n", group.num_layers, what, tokens,
                       format_bytes(bytes), options.block_size);
  }
  return out;
}

// The identity in a daemon with these options.
std::string identity_of(const std::shared_ptr<const LoadedModel>& model,
                        const std::shared_ptr<const LoadedModel>& drafter, const Backend& backend,
                        const KvCacheOptions& options, const MemoryPlan& plan) {
  ModelIdentity identity{.model = ContentReading(model, {}).wait(),
                         .draft_model = {},
                         .arithmetic = backend.name(),
                         .block_size = options.block_size,
                         .cache_type = options.dtype,
                         .has_window_parts = plan.num_window_parts > 0};
  if (drafter != nullptr) identity.draft_model = ContentReading(drafter, {}).wait();
  return hex_digits(identity.key());
}

constexpr std::string_view kServedBeside =
    "\nIt reads images for a language model, whose own file is served: quire serve MODEL.gguf --mmproj FILE\n";

// A tower that cannot be served leaves a model of text.
std::string described_or_refused(const std::filesystem::path& tower) {
  try {
    return describe_tower(tower);
  } catch (const StartupError& error) {
    return fmt::format("images cannot be read: {}\n", error.what());
  }
}

json tower_or_refusal(const std::filesystem::path& tower) {
  try {
    return tower_to_json(tower);
  } catch (const StartupError& error) {
    return {{"path", tower.string()}, {"refusal", error.what()}};
  }
}

}  // namespace

std::string inspect_model(const std::filesystem::path& path, const Backend& backend, const KvCacheOptions& options,
                          const ServingLimits& limits, const MachineMemory& machine, const InspectOptions& shown,
                          const std::filesystem::path& drafter) {
  std::string out = describe_contents(path, read_contents(path), shown);
  try {
    if (is_tower_file(path)) return out + "\n" + describe_tower(path) + std::string(kServedBeside);
    const auto model = open_model(path);
    out += "\n" + describe_model(model->info()) + describe_groups(model->info(), backend, options);
    if (const auto tower = find_tower(path); !tower.empty())
      out += fmt::format("\nreads images by {}\n{}", tower.string(), described_or_refused(tower));
    const auto loaded_drafter = open_drafter(*model, path, drafter);
    if (loaded_drafter != nullptr) out += "\ndrafts by " + describe_model(loaded_drafter->info());
    const MemoryPlan plan =
        plan_memory(memory_needs(*model, backend, options, limits, loaded_drafter.get()), options, machine);
    out += fmt::format("\nmemory plan on {}:\n{}\n", shown.device.empty() ? backend.name() : shown.device,
                       plan.describe());
    if (shown.device.empty())
      out += fmt::format("identity: {}\n", identity_of(model, loaded_drafter, backend, options, plan));
  } catch (const StartupError& error) {
    out += fmt::format("\ncannot be served: {}\n", error.what());
  }
  return out;
}

std::string inspect_model_as_json(const std::filesystem::path& path, const Backend& backend,
                                  const KvCacheOptions& options, const ServingLimits& limits,
                                  const MachineMemory& machine, const std::filesystem::path& drafter,
                                  const std::string& device) {
  const Contents contents = read_contents(path);
  json out = {{"path", path.string()}, {"format", contents.format}, {"bytes", contents.bytes}};
  for (const Entry& entry : contents.metadata)
    out["metadata"][entry.key] = entry.value;
  out["tensors"] = json::array();
  for (const Tensor& tensor : contents.tensors) {
    out["tensors"].push_back(
        {{"name", tensor.name}, {"type", tensor.type}, {"shape", tensor.shape}, {"bytes", tensor.bytes}});
  }
  try {
    if (is_tower_file(path)) {
      out["tower"] = tower_to_json(path);
      return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
    }
    const auto model = open_model(path);
    out["model"] = model_to_json(model->info());
    const auto loaded_drafter = open_drafter(*model, path, drafter);
    if (const auto tower = find_tower(path); !tower.empty()) out["tower"] = tower_or_refusal(tower);
    if (loaded_drafter != nullptr) out["draft_model"] = model_to_json(loaded_drafter->info());
    const MemoryPlan plan =
        plan_memory(memory_needs(*model, backend, options, limits, loaded_drafter.get()), options, machine);
    out["plan"] = plan_to_json(plan, device.empty() ? backend.name() : device);
    if (device.empty()) out["identity"] = identity_of(model, loaded_drafter, backend, options, plan);
  } catch (const StartupError& error) {
    out["refusal"] = error.what();
  }
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

MachineMemory planned_gpu(std::uint64_t bytes) {
  const auto left = static_cast<std::uint64_t>(static_cast<double>(bytes) * CudaOptions().memory);
  return {.available = left, .limited_by = fmt::format("a GPU of {}", format_bytes(bytes))};
}

}  // namespace quire
