#include "core/model/layers/adapters/adapter_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "core/base/log.h"
#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/architectures/spec_reader.h"
#include "core/model/formats/files/content_hash.h"
#include "core/model/formats/files/mapped_file.h"
#include "core/model/formats/gguf/gguf.h"
#include "core/model/formats/hf/safetensors.h"
#include "core/model/layers/adapters/peft_config.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

// A task's name and prompt are for people.
void refuse_unknown_keys(const GgufFile& file, bool ignore_unknown_keys) {
  constexpr std::string_view kKnown[] = {"adapter.type", "adapter.lora.alpha", "adapter.lora.task_name",
                                         "adapter.lora.prompt_prefix"};
  for (const auto& [key, value] : file.metadata()) {
    if (!key.starts_with("adapter.") || std::ranges::find(kKnown, key) != std::end(kKnown)) continue;
    if (!ignore_unknown_keys)
      throw StartupError(
          fmt::format("{}: the metadata key '{}' is not supported: it may change what the adapter computes; {}",
                      file.where(), printable(key), kWayOutOfUnknownKeys));
    log::warn("{}: the metadata key '{}' is not known and is ignored", file.where(), printable(key));
  }
}

AdapterFile open_gguf_adapter(const fs::path& path, bool ignore_unknown_keys) {
  const auto gguf = GgufFile::open(path);
  AdapterFile out{.where = path.string(), .owner = gguf, .tensors = {}, .scale = {}, .gguf_architecture = {}};
  if (gguf->get_string("general.type").value_or("") != "adapter" ||
      gguf->get_string("adapter.type").value_or("") != "lora")
    out.fail("this is no LoRA adapter ('general.type' and 'adapter.type' say so)");
  if (gguf->find("adapter.alora.invocation_tokens") != nullptr)
    out.fail("adapters that some tokens switch on are not supported");
  refuse_unknown_keys(*gguf, ignore_unknown_keys);
  out.gguf_architecture = gguf->get_string("general.architecture").value_or("");
  if (out.gguf_architecture.empty()) out.fail("'general.architecture' is missing");
  const auto alpha = gguf->get_float("adapter.lora.alpha");
  if (!alpha) out.fail("'adapter.lora.alpha' is missing");
  // llama.cpp's rule: without an alpha, the change is not scaled.
  out.scale = [alpha = *alpha](const std::string& /*module*/, std::int64_t rank) {
    return alpha == 0.0 ? 1.0 : alpha / static_cast<double>(rank);
  };
  for (const GgufTensor& tensor : gguf->tensors()) {
    StoredTensor& stored = out.tensors.emplace_back();
    stored.name = tensor.name;
    stored.type = tensor.type;
    stored.shape.assign(tensor.shape.rbegin(), tensor.shape.rend());
    // Some writers add dimensions of 1 to a matrix.
    while (stored.shape.size() > 2 && stored.shape.front() == 1)
      stored.shape.erase(stored.shape.begin());
    stored.data = tensor.data;
  }
  return out;
}

AdapterFile open_peft_adapter(const fs::path& directory, bool ignore_unknown_keys) {
  AdapterFile out{.where = directory.string(), .owner = nullptr, .tensors = {}, .scale = {}, .gguf_architecture = {}};
  const auto config = std::make_shared<const PeftConfig>(directory, ignore_unknown_keys);
  out.scale = [config](const std::string& module, std::int64_t rank) { return config->scale(module, rank); };
  if (!is_there(directory / "adapter_model.safetensors")) {
    const bool is_pickled = is_there(directory / "adapter_model.bin");
    out.fail(is_pickled ? "its weights are a pickle of PyTorch (adapter_model.bin): convert them to safetensors"
                        : "adapter_model.safetensors is missing");
  }
  const auto file = std::make_shared<SafetensorsFile>(directory / "adapter_model.safetensors");
  out.tensors = file->tensors();
  out.owner = file;
  return out;
}

struct ChangedPart {
  std::string name;    // name of the changed matrix, from "layers" on
  std::string module;  // its whole name
  bool is_up = false;  // the tensor is the second matrix of the pair
};

ChangedPart part_of(const AdapterFile& file, const std::string& name) {
  using Ending = std::pair<std::string_view, bool>;
  constexpr Ending kGguf[] = {{".lora_a", false}, {".lora_b", true}};
  constexpr Ending kPeft[] = {{".lora_A.weight", false},
                              {".lora_B.weight", true},
                              {".lora_A.default.weight", false},
                              {".lora_B.default.weight", true}};
  for (const auto& [ending, is_up] : file.is_gguf() ? std::span<const Ending>(kGguf) : std::span<const Ending>(kPeft)) {
    if (!name.ends_with(ending)) continue;
    const std::string changed = name.substr(0, name.size() - ending.size());
    if (file.is_gguf()) return {changed, changed, is_up};
    constexpr std::string_view kWrapper = "base_model.model.";
    const std::string module = changed.starts_with(kWrapper) ? changed.substr(kWrapper.size()) : changed;
    const std::size_t layers = changed.rfind("layers.");
    return {layers != std::string::npos ? changed.substr(layers) : changed.substr(changed.rfind('.') + 1), module,
            is_up};
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
    const ChangedPart part = part_of(*this, tensor.name);
    AdapterPair& pair = out[part.name];
    (part.is_up ? pair.up : pair.down) = &tensor;
    pair.module = part.module;
  }
  return out;
}

// Every item is preceded by its length, so that different lists never give the same bytes.
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

AdapterFile open_adapter(const fs::path& path, bool ignore_unknown_keys) {
  std::error_code failed;
  return fs::is_directory(path, failed) ? open_peft_adapter(path, ignore_unknown_keys)
                                        : open_gguf_adapter(path, ignore_unknown_keys);
}

}  // namespace quire
