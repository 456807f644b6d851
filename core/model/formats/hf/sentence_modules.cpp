#include "core/model/formats/hf/directory_tensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/formats/hf/json_file.h"

namespace quire {

namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw StartupError(fmt::format("{}: {}", path.string(), what));
}

void check_dense(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  const auto config = read_json_file(path);
  if (!config) refuse(path, "is missing");
  const JsonObject object(*config, path.string());
  if (object.boolean("bias").value_or(true)) object.fail("a dense module with a bias is not supported");
  const std::string activation = object.text("activation_function").value_or("torch.nn.modules.activation.Tanh");
  if (!activation.ends_with(".Identity"))
    object.fail(fmt::format("the activation '{}' of a dense module is not supported", printable(activation)));
}

// The last component of a class's name.
std::string kind_of(const json& module, const std::filesystem::path& path) {
  const auto type = module.find("type");
  if (type == module.end() || !type->is_string()) refuse(path, "a module has no type");
  const auto name = type->get<std::string>();
  return name.substr(name.rfind('.') + 1);
}

}  // namespace

std::vector<std::unique_ptr<SafetensorsFile>> open_dense_modules(const std::filesystem::path& directory) {
  constexpr std::size_t kMostModules = 2;
  const auto path = directory / "modules.json";
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  const auto text = read_text_file(path);
  if (!text) return files;
  const json modules = json::parse(*text, nullptr, false);
  if (!modules.is_array()) refuse(path, "is no list of modules");
  for (const json& module : modules) {
    if (!module.is_object()) refuse(path, "holds a module that is no object");
    const std::string kind = kind_of(module, path);
    if (kind == "Transformer" || kind == "Pooling" || kind == "Normalize") continue;
    if (kind != "Dense") refuse(path, fmt::format("the module '{}' is not supported", printable(kind)));
    const auto name = module.find("path");
    if (name == module.end() || !name->is_string()) refuse(path, "a dense module has no path");
    const std::filesystem::path folder(name->get<std::string>());
    if (folder.has_parent_path() || folder == "..") refuse(path, "a dense module is not in a folder beside the file");
    check_dense(directory / folder);
    files.push_back(std::make_unique<SafetensorsFile>(directory / folder / "model.safetensors"));
  }
  if (files.size() > kMostModules) refuse(path, "more than two dense modules are not supported");
  return files;
}

std::vector<StoredTensor> dense_tensors(const std::vector<std::unique_ptr<SafetensorsFile>>& files,
                                        const std::filesystem::path& directory) {
  std::vector<StoredTensor> out;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto& tensors = files[i]->tensors();
    const auto found = std::ranges::find(tensors, "linear.weight", &StoredTensor::name);
    if (found == tensors.end() || tensors.size() != 1)
      refuse(directory / "modules.json", "a dense module does not hold one tensor 'linear.weight'");
    out.push_back(*found);
    out.back().name = fmt::format("dense_{}.weight", i + 2);
  }
  return out;
}

}  // namespace quire
