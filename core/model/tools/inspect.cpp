#include "core/model/tools/inspect.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "core/base/printable.h"
#include "core/base/result.h"
#include "core/model/formats/gguf_shards.h"
#include "core/model/formats/json_file.h"
#include "core/model/formats/safetensors.h"

namespace quire {

namespace {

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

std::string tensor_line(std::string_view name, std::string_view type, const std::vector<std::int64_t>& shape,
                        std::size_t bytes) {
  const std::string dims = fmt::format("[{}]", fmt::join(shape, ", "));
  return fmt::format("  {:<44} {:<6} {:<18} {}\n", printable(name), type, dims, format_bytes(bytes));
}

std::string describe_gguf(const std::filesystem::path& path) {
  const auto file = open_gguf(path);
  std::string out = fmt::format("{}: GGUF v{}, {}\n\nmetadata: {} keys\n", path.string(), file->version(),
                                format_bytes(file->file_bytes()), file->metadata().size());
  for (const auto& [key, value] : file->metadata()) {
    out += fmt::format("  {} = {}\n", printable(key), std::visit([](const auto& v) { return show(v); }, value));
  }
  out += fmt::format("\ntensors: {}, dimensions innermost first\n", file->tensors().size());
  for (const GgufTensor& tensor : file->tensors()) {
    const std::string type =
        tensor.type ? std::string(dtype_info(*tensor.type).name) : fmt::format("type {}", tensor.ggml_type);
    out += tensor_line(tensor.name, type, tensor.shape, tensor.data.size());
  }
  return out;
}

std::string describe_directory(const std::filesystem::path& path) {
  std::string out = fmt::format("{}: Hugging Face directory\n\nconfig.json:\n", path.string());
  const auto config = read_json_file(path / "config.json");
  if (!config) throw StartupError(fmt::format("{}: is missing", (path / "config.json").string()));
  for (const auto& [key, value] : config->items()) {
    out += fmt::format("  {} = {}\n", printable(key), printable(value.dump()));
  }
  for (const auto& file : open_safetensors_directory(path)) {
    out += fmt::format("\ntensors: {} in {}, dimensions outermost first\n", file->tensors().size(),
                       format_bytes(file->mapping().bytes().size()));
    for (const StoredTensor& tensor : file->tensors()) {
      out += tensor_line(tensor.name, tensor.type_name, tensor.shape, tensor.data.size());
    }
  }
  return out;
}

std::string describe_model(const ModelInfo& info) {
  std::string left_out;
  for (const std::string& part : info.parts_left_out)
    left_out += fmt::format("not computed: {}\n", part);
  return left_out + fmt::format(
                        "model: {}, {}, {:.1f} million parameters, mostly {}\n"
                        "{} layers, hidden size {}, {} key-value heads of {}, vocabulary {}, context {}\n",
                        printable(info.name), info.architecture, static_cast<double>(info.num_parameters) / 1e6,
                        info.file_type, info.kv_layout.num_layers, info.hidden_size, info.kv_layout.num_kv_heads,
                        info.kv_layout.head_dim, info.vocab_size, info.max_context);
}

// What a sequence keeps, group by group.
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

}  // namespace

std::string inspect_model(const std::filesystem::path& path, const Backend& backend, const KvCacheOptions& options,
                          const ServingLimits& limits, const MachineMemory& machine) {
  std::error_code ignored;
  std::string out = std::filesystem::is_directory(path, ignored) ? describe_directory(path) : describe_gguf(path);
  try {
    const auto model = open_model(path);
    out += "\n" + describe_model(model->info()) + describe_groups(model->info(), backend, options);
    const MemoryPlan plan = plan_memory(memory_needs(*model, backend, options, limits), options, machine);
    out += fmt::format("\nmemory plan on {}:\n{}\n", backend.name(), plan.describe());
  } catch (const StartupError& error) {
    out += fmt::format("\ncannot be served: {}\n", error.what());
  }
  return out;
}

}  // namespace quire
