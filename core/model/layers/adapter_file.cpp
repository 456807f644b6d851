#include "core/model/layers/adapter_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "core/base/result.h"
#include "core/model/formats/content_hash.h"
#include "core/model/formats/gguf.h"
#include "core/model/formats/json_file.h"
#include "core/model/formats/safetensors.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

AdapterFile open_gguf_adapter(const fs::path& path) {
  const auto gguf = GgufFile::open(path);
  AdapterFile out{.where = path.string(), .owner = gguf, .tensors = {}, .scale = {}, .gguf_architecture = {}};
  if (gguf->get_string("general.type").value_or("") != "adapter" ||
      gguf->get_string("adapter.type").value_or("") != "lora")
    out.fail("this is no LoRA adapter ('general.type' and 'adapter.type' say so)");
  if (gguf->metadata().contains("adapter.alora.invocation_tokens"))
    out.fail("adapters that some tokens switch on are not supported");
  out.gguf_architecture = gguf->get_string("general.architecture").value_or("");
  if (out.gguf_architecture.empty()) out.fail("'general.architecture' is missing");
  const auto alpha = gguf->get_float("adapter.lora.alpha");
  if (!alpha) out.fail("'adapter.lora.alpha' is missing");
  // llama.cpp's rule: without an alpha, the change is taken as it is.
  out.scale = [alpha = *alpha](std::int64_t rank) { return alpha == 0.0 ? 1.0 : alpha / static_cast<double>(rank); };
  for (const GgufTensor& tensor : gguf->tensors()) {
    StoredTensor& stored = out.tensors.emplace_back();
    stored.name = tensor.name;
    stored.type = tensor.type;
    stored.shape.assign(tensor.shape.rbegin(), tensor.shape.rend());
    stored.data = tensor.data;
  }
  return out;
}

bool is_set(const nlohmann::json* value) {
  return value != nullptr && !value->empty() && *value != false && *value != "none";
}

AdapterFile open_peft_adapter(const fs::path& directory) {
  AdapterFile out{.where = directory.string(), .owner = nullptr, .tensors = {}, .scale = {}, .gguf_architecture = {}};
  const auto raw = read_json_file(directory / "adapter_config.json");
  if (!raw) out.fail("adapter_config.json is missing");
  const JsonObject config(*raw, (directory / "adapter_config.json").string());
  if (config.text("peft_type").value_or("LORA") != "LORA") config.fail("'peft_type' is not LORA");
  for (const char* key : {"use_dora", "bias", "fan_in_fan_out", "lora_bias", "rank_pattern", "alpha_pattern",
                          "modules_to_save", "layer_replication", "alora_invocation_tokens"}) {
    if (is_set(config.find(key))) config.fail(fmt::format("'{}' is not supported", key));
  }
  const double alpha = config.number("lora_alpha").value_or(8.0);
  const bool by_root = config.boolean("use_rslora").value_or(false);
  out.scale = [=](std::int64_t rank) {
    return alpha / (by_root ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
  };
  const auto file = std::make_shared<SafetensorsFile>(directory / "adapter_model.safetensors");
  out.tensors = file->tensors();
  out.owner = file;
  return out;
}

// The changed matrix's name, and whether the tensor is the second of the two.
std::pair<std::string, bool> parts_of(const AdapterFile& file, const std::string& name) {
  using Ending = std::pair<std::string_view, bool>;
  constexpr Ending kGguf[] = {{".lora_a", false}, {".lora_b", true}};
  constexpr Ending kPeft[] = {{".lora_A.weight", false},
                              {".lora_B.weight", true},
                              {".lora_A.default.weight", false},
                              {".lora_B.default.weight", true}};
  for (const auto& [ending, is_up] : file.is_gguf() ? std::span<const Ending>(kGguf) : std::span<const Ending>(kPeft)) {
    if (!name.ends_with(ending)) continue;
    std::string changed = name.substr(0, name.size() - ending.size());
    if (file.is_gguf()) return {changed, is_up};
    const std::size_t layers = changed.rfind("layers.");
    return {layers != std::string::npos ? changed.substr(layers) : changed.substr(changed.rfind('.') + 1), is_up};
  }
  file.fail(fmt::format("'{}' is no part of a LoRA adapter", name));
}

}  // namespace

void AdapterFile::fail(const std::string& what) const {
  throw StartupError(fmt::format("{}: {}", where, what));
}

std::map<std::string, AdapterPair> AdapterFile::pairs() const {
  std::map<std::string, AdapterPair> out;
  for (const StoredTensor& tensor : tensors) {
    const auto [name, is_up] = parts_of(*this, tensor.name);
    (is_up ? out[name].up : out[name].down) = &tensor;
  }
  return out;
}

// Every part has its length before it, so that no two lists of parts are the same bytes.
std::string AdapterFile::content_key(std::span<const float> used_scales) const {
  std::string parts;
  const auto add = [&](std::span<const std::byte> bytes) {
    parts += fmt::format("{} {}\n", bytes.size(), hex_digits(hash_content(bytes)));
  };
  parts += gguf_architecture + '\n';
  add(std::as_bytes(used_scales));
  for (const StoredTensor& tensor : tensors) {
    add(std::as_bytes(std::span(tensor.name)));
    add(std::as_bytes(std::span(tensor.shape)));
    parts += fmt::format("{}\n", tensor.type ? dtype_info(*tensor.type).name : "");
    add(tensor.data);
  }
  return hex_digits(hash_content(std::as_bytes(std::span(parts))));
}

AdapterFile open_adapter(const fs::path& path) {
  std::error_code failed;
  return fs::is_directory(path, failed) ? open_peft_adapter(path) : open_gguf_adapter(path);
}

}  // namespace quire
