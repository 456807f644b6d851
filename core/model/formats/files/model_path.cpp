#include "core/model/formats/files/model_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "core/base/ascii.h"
#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/formats/files/mapped_file.h"

namespace quire {

namespace {

// "Qwen/Qwen2.5-0.5B-Instruct": an owner and a name, but no file's path.
bool looks_like_repository(const std::string& text) {
  const auto slashes = std::count(text.begin(), text.end(), '/');
  return slashes == 1 && !text.starts_with('/') && !text.starts_with('.') && !text.ends_with('/') &&
         !text.ends_with(".gguf") && !std::filesystem::exists(std::filesystem::path(text).parent_path());
}

}  // namespace

void require_model_path(const std::filesystem::path& path) {
  if (is_there(path)) return;
  const std::string text = printable(path.string());
  if (looks_like_repository(text)) {
    throw StartupError(
        fmt::format("{0}: no such file; --hf {0} downloads and serves the Hugging Face repository of that name", text));
  }
  throw StartupError(fmt::format("{}: no such file or directory", text));
}

namespace {

// The folder's names in an order independent of the file system.
std::set<std::string> names_in(const std::filesystem::path& directory) {
  std::set<std::string> names;
  std::error_code failed;
  for (auto entry = std::filesystem::directory_iterator(directory, failed);
       !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed))
    names.insert(entry->path().filename().string());
  return names;
}

// The first name with this beginning and end.
std::string find_name(const std::set<std::string>& names, std::string_view begin, std::string_view end) {
  const auto found = std::ranges::find_if(
      names, [&](const std::string& name) { return name.starts_with(begin) && name.ends_with(end); });
  return found == names.end() ? "" : *found;
}

// The model's file; if there is none, any GGUF file, such as a tower.
std::string find_gguf(const std::set<std::string>& names) {
  const auto found = std::ranges::find_if(
      names, [](const std::string& name) { return name.ends_with(".gguf") && !name.starts_with("mmproj"); });
  return found != names.end() ? *found : find_name(names, "", ".gguf");
}

std::string point_to_gguf(const std::filesystem::path& directory, const std::string& name) {
  return fmt::format(": it is a folder of GGUF files: give the path of one of them, such as {}",
                     printable((directory / name).string(), 400));
}

}  // namespace

std::filesystem::path find_mmproj(const std::filesystem::path& model) {
  std::error_code failed;
  const bool is_folder = std::filesystem::is_directory(model, failed);
  if (!is_folder && model.extension() != ".gguf") return {};
  const std::filesystem::path folder = is_folder ? model : model.parent_path();
  const std::set<std::string> names = names_in(folder.empty() ? "." : folder);
  // The hub's order of preference.
  for (const std::string_view type : {"f16", "f32", "q8_0", ""}) {
    for (const std::string& name : names) {
      const std::string lower = lowered(name);
      const bool is_type = type.empty() || lower.find(type) != std::string::npos;
      if (is_type && lower.starts_with("mmproj") && lower.ends_with(".gguf")) return folder / name;
    }
  }
  return {};
}

std::string instead_of_config(const std::filesystem::path& directory) {
  const std::set<std::string> names = names_in(directory);
  if (const std::string gguf = find_gguf(names); !gguf.empty()) return point_to_gguf(directory, gguf);
  if (names.contains("adapter_config.json"))
    return ": it is the folder of a LoRA adapter: serve the model that it was made for, with --adapters NAME=PATH";
  if (names.contains("snapshots")) {
    const std::set<std::string> snapshots = names_in(directory / "snapshots");
    return fmt::format(
        ": it is a repository of the hub's cache: give the path of a snapshot in it, such as {}",
        printable((directory / "snapshots" / (snapshots.empty() ? "" : *snapshots.begin())).string(), 400));
  }
  if (names.contains("params.json"))
    return ": the model is in its maker's own format (params.json): download the repository's files for transformers";
  if (names.contains("model_index.json"))
    return ": it is a pipeline of diffusers, which makes pictures: Quire serves language models";
  if (names.empty()) return ": the folder is empty: download the model into it";
  return "";
}

std::string instead_of_weights(const std::filesystem::path& directory) {
  const std::set<std::string> names = names_in(directory);
  if (!find_name(names, "model-", ".safetensors").empty())
    return ": there are shards without their index: download model.safetensors.index.json too";
  if (const std::string gguf = find_gguf(names); !gguf.empty()) return point_to_gguf(directory, gguf);
  std::string pickled = find_name(names, "pytorch_model", ".bin");
  if (pickled.empty()) pickled = find_name(names, "consolidated", ".pth");
  if (!pickled.empty())
    return fmt::format(": its weights are a pickle of PyTorch ({}): convert them to safetensors", printable(pickled));
  if (names.contains("consolidated.safetensors"))
    return ": its weights are in their maker's own format (consolidated.safetensors): download the files for "
           "transformers";
  if (names.contains("adapter_model.safetensors"))
    return ": it is the folder of a LoRA adapter: serve the model that it was made for, with --adapters NAME=PATH";
  return ": download the weights too";
}

}  // namespace quire
