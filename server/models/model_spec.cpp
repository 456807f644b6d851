#include "server/models/model_spec.h"

#include <algorithm>

#include "core/base/files/regular_file.h"
#include "core/base/result.h"

namespace quire {

namespace {

std::vector<std::string> names_of(const HostedModelSpec& spec) {
  std::vector<std::string> names{spec.name};
  names.insert(names.end(), spec.aliases.begin(), spec.aliases.end());
  for (const AdapterPath& adapter : spec.adapters)
    if (!spec.is_canary) names.push_back(adapter.name);
  return names;
}

// A malformed entry is refused when the model is loaded.
void add_adapters(HostedModelSpec& spec) {
  for (const std::string& text : spec.model.adapters) {
    if (auto adapter = adapter_path_of(text)) spec.adapters.push_back(*std::move(adapter));
  }
}

// Naming a draft model turns it on, unless another method is asked for.
void choose_drafts(HostedModelSpec& spec) {
  SpeculationMethod& method = spec.engine.speculation.method;
  if (!spec.model.draft_model.empty() && method == SpeculationMethod::kNone) method = SpeculationMethod::kDraftModel;
}

}  // namespace

std::optional<KvDType> kv_dtype_of(std::string_view name) {
  for (const auto& [known, dtype] : kKvDTypes) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

bool is_model_name(std::string_view name) {
  constexpr std::size_t kLongest = 128;
  return !name.empty() && name.size() <= kLongest && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_.:/@+").find(c) != std::string_view::npos;
  });
}

std::optional<AdapterPath> adapter_path_of(std::string_view text) {
  const std::size_t separator = text.find('=');
  if (separator == std::string_view::npos || separator + 1 == text.size() || !is_model_name(text.substr(0, separator)))
    return std::nullopt;
  return AdapterPath{.name = std::string(text.substr(0, separator)), .path = text.substr(separator + 1)};
}

bool answers_to(const HostedModelSpec& spec, std::string_view name) {
  return std::ranges::any_of(names_of(spec), [&](const std::string& each) { return each == name; });
}

std::optional<std::string> repeated_name(const HostedModelSpec& spec) {
  const std::vector<std::string> names = names_of(spec);
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (std::find(names.begin(), name, *name) != name) return *name;
  }
  return std::nullopt;
}

bool share_a_name(const HostedModelSpec& a, const HostedModelSpec& b) {
  return std::ranges::any_of(names_of(a), [&](const std::string& name) { return answers_to(b, name); });
}

HostedModelSpec spec_of(const ModelEntry& entry, const EngineOptions& engine) {
  HostedModelSpec spec;
  spec.name = entry.name;
  spec.aliases = entry.model.alias;
  spec.model = entry.model;
  add_adapters(spec);
  spec.engine = engine;
  spec.engine.kv_cache.memory = entry.kv_memory;
  spec.engine.kv_cache.num_blocks = 0;
  if (std::string& tier = spec.engine.kv_cache.disk_tier_path; !tier.empty()) {
    // Each model has a folder: a model would delete another's blocks as leftovers.
    std::string folder = entry.name;
    std::replace(folder.begin(), folder.end(), '/', '_');
    tier = (std::filesystem::path(tier) / folder).string();
  }
  if (entry.max_model_len) spec.engine.scheduler.max_model_len = *entry.max_model_len;
  if (entry.max_num_seqs) spec.engine.scheduler.max_num_seqs = static_cast<std::int32_t>(*entry.max_num_seqs);
  if (entry.kv_dtype) spec.engine.kv_cache.dtype = *entry.kv_dtype;
  if (entry.max_queued_requests) spec.engine.queue.max_queued_requests = *entry.max_queued_requests;
  if (entry.max_queue_time) {
    spec.engine.queue.max_queue_time_s = std::chrono::duration<double>(*entry.max_queue_time).count();
  }
  spec.kv_memory = entry.kv_memory;
  spec.kv_share = entry.kv_share;
  spec.sleep_after = entry.sleep_after;
  spec.preload = entry.preload;
  choose_drafts(spec);
  return spec;
}

HostedModelSpec spec_of_only(const ModelOptions& model, const EngineOptions& engine) {
  HostedModelSpec spec;
  const bool is_folder = std::filesystem::is_directory(model.path);
  spec.name =
      (is_folder ? std::filesystem::absolute(model.path / ".").parent_path().filename() : model.path.stem()).string();
  if (!model.alias.empty()) {
    spec.name = model.alias.front();
    spec.aliases.assign(model.alias.begin() + 1, model.alias.end());
  }
  spec.model = model;
  add_adapters(spec);
  spec.engine = engine;
  spec.is_only = true;
  choose_drafts(spec);
  return spec;
}

void read_template(HostedModelSpec& spec) {
  constexpr std::size_t kMostBytes = std::size_t{4} << 20;
  const std::filesystem::path& path = spec.model.chat_template;
  if (path.empty()) return;
  auto text = read_regular_file(path, kMostBytes);
  if (!text) throw StartupError("model.chat_template: '" + path.string() + "' " + text.error());
  if (text->find_first_not_of(" \t\r\n") == std::string::npos)
    throw StartupError("model.chat_template: '" + path.string() + "' is empty");
  spec.template_text = *std::move(text);
}

}  // namespace quire
