#include "server/hub/ollama_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <system_error>

#include "core/base/files/regular_file.h"
#include "core/base/json/json.h"
#include "core/base/result.h"

namespace quire::hub {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostManifestBytes = std::size_t{1} << 20;
constexpr std::string_view kUsualHost = "registry.ollama.ai";
constexpr std::string_view kUsualOwner = "library";
constexpr std::string_view kLatest = ":latest";
constexpr std::size_t kNumDigits = 64;

// The name that Ollama shows for manifests/HOST/OWNER/NAME/TAG; nothing if the path has another form.
std::optional<std::string> name_of(const fs::path& manifest) {
  std::vector<std::string> parts;
  for (const fs::path& part : manifest)
    parts.push_back(part.string());
  if (parts.size() != 4) return std::nullopt;
  std::string name = parts[2] + ":" + parts[3];
  if (parts[0] != kUsualHost) return parts[0] + "/" + parts[1] + "/" + name;
  return parts[1] == kUsualOwner ? name : parts[1] + "/" + name;
}

// blobs/sha256-DIGITS; nothing if the digest has another form.
std::optional<fs::path> blob_of(const fs::path& folder, const std::string& digest) {
  constexpr std::string_view kAlgorithm = "sha256:";
  if (!digest.starts_with(kAlgorithm)) return std::nullopt;
  const std::string digits = digest.substr(kAlgorithm.size());
  if (digits.size() != kNumDigits || digits.find_first_not_of("0123456789abcdef") != std::string::npos)
    return std::nullopt;
  return folder / "blobs" / ("sha256-" + digits);
}

std::string text_member(const Json& object, const char* name) {
  const auto member = object.find(name);
  return member == object.end() || !member->is_string() ? std::string() : member->get<std::string>();
}

// The error completes a sentence whose subject is the model.
tl::expected<OllamaModel, std::string> read_manifest(const fs::path& folder, const fs::path& file, std::string name) {
  const auto text = read_regular_file(file, kMostManifestBytes);
  if (!text) return tl::unexpected("has a manifest that " + text.error());
  const auto manifest = parse_json(*text);
  if (!manifest || !manifest->is_object() || !manifest->contains("layers") || !manifest->at("layers").is_array())
    return tl::unexpected(std::string("has a manifest that is none"));
  OllamaModel model{.name = std::move(name), .path = {}};
  for (const Json& layer : manifest->at("layers")) {
    if (!layer.is_object()) continue;
    const std::string type = text_member(layer, "mediaType");
    if (type.ends_with(".image.adapter")) {
      return tl::unexpected(std::string("has an adapter: serve both files, with --model and --adapters NAME=FILE"));
    }
    if (!type.ends_with(".image.model")) continue;
    const auto blob = blob_of(folder, text_member(layer, "digest"));
    if (!model.path.empty() || !blob) return tl::unexpected(std::string("has several files, or a digest that is none"));
    std::error_code failed;
    model.num_bytes = fs::file_size(*blob, failed);
    if (failed) return tl::unexpected(fmt::format("lacks its file {}: {}", blob->string(), failed.message()));
    model.path = *blob;
  }
  if (model.path.empty()) return tl::unexpected(std::string("has no GGUF file"));
  return model;
}

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

fs::path ollama_folder() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? std::string() : std::string(value);
  };
  if (const std::string folder = variable("OLLAMA_MODELS"); !folder.empty()) return folder;
  std::vector<fs::path> usual = {"/usr/share/ollama/.ollama/models"};
  if (const std::string home = variable("HOME"); !home.empty())
    usual.insert(usual.begin(), fs::path(home) / ".ollama/models");
  const auto found = std::find_if(usual.begin(), usual.end(), [](const fs::path& folder) {
    std::error_code failed;
    return fs::is_directory(folder / "manifests", failed);
  });
  return found == usual.end() ? fs::path() : *found;
}

OllamaStore read_ollama_store(const fs::path& folder) {
  OllamaStore store;
  std::error_code failed;
  fs::recursive_directory_iterator files(folder / "manifests", failed);
  for (const fs::recursive_directory_iterator end; !failed && files != end; files.increment(failed)) {
    if (!files->is_regular_file()) continue;
    auto name = name_of(files->path().lexically_relative(folder / "manifests"));
    if (!name) continue;
    auto model = read_manifest(folder, files->path(), *name);
    if (model)
      store.models.push_back(*std::move(model));
    else
      store.complaints.push_back(*name + " " + model.error());
  }
  if (failed) throw StartupError(fmt::format("'{}' is no store of Ollama's: {}", folder.string(), failed.message()));
  std::ranges::sort(store.models, {}, &OllamaModel::name);
  std::ranges::sort(store.complaints);
  return store;
}

std::string serving_configuration(const std::vector<OllamaModel>& models) {
  std::string text = "models:\n";
  for (const OllamaModel& model : models) {
    text += fmt::format("  - name: {}\n    path: {}\n    preload: false\n    sleep_after: 5m\n", quoted(model.name),
                        quoted(model.path.string()));
    if (model.name.ends_with(kLatest))
      text += fmt::format("    aliases: [{}]\n", quoted(model.name.substr(0, model.name.size() - kLatest.size())));
  }
  return text;
}

}  // namespace quire::hub
