#include "server/model_host.h"

#include <chrono>
#include <ctime>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/log.h"
#include "core/model/memory_plan.h"

namespace quire {

namespace {

std::string read_template(const ModelOptions& options, const LoadedModel& model) {
  if (options.chat_template.empty()) {
    return model.chat_template().empty() ? std::string(kDefaultChatTemplate) : model.chat_template();
  }
  std::ifstream file(options.chat_template);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) throw StartupError("model.chat_template: cannot read '" + options.chat_template.string() + "'");
  return text.str();
}

std::shared_ptr<const ChatTemplate> parse_template(const ModelOptions& options, const LoadedModel& model) {
  auto parsed = ChatTemplate::parse(read_template(options, model));
  if (!parsed) throw StartupError("the chat template cannot be used: " + parsed.error().message);
  return std::make_shared<const ChatTemplate>(std::move(*parsed));
}

// Tells one model's blocks on disk from another's: the names, sizes and times of its files.
std::string version_of(const std::filesystem::path& path) {
  std::string version;
  const auto add = [&](const std::filesystem::path& file) {
    version += file.filename().string() + ' ' + std::to_string(std::filesystem::file_size(file)) + ' ' +
               std::to_string(std::filesystem::last_write_time(file).time_since_epoch().count()) + '\n';
  };
  if (!std::filesystem::is_directory(path)) {
    add(path);
    return version;
  }
  std::set<std::filesystem::path> files;  // in an order that does not depend on the file system
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.is_regular_file()) files.insert(entry.path());
  }
  for (const auto& file : files)
    add(file);
  return version;
}

}  // namespace

ModelHost::ModelHost(const ServeOptions& options, std::function<bool()> stopping) {
  loaded_ = open_model(options.model.path);
  backend_ = create_backend(options.backend);
  const ServingLimits limits{options.engine.scheduler.max_num_seqs, options.engine.scheduler.max_num_batched_tokens,
                             options.engine.scheduler.max_model_len};
  const MemoryPlan plan = plan_memory(memory_needs(*loaded_, *backend_, options.engine.kv_cache, limits),
                                      options.engine.kv_cache, machine_memory());
  log::info("{} on {}: {}", options.model.path.string(), backend_->name(), plan.describe());
  const std::string version = version_of(options.model.path);
  const auto progress = [&stopping, told = Clock::now()](std::uint64_t done, std::uint64_t total) mutable {
    if (stopping()) throw Interrupted{};
    if (Clock::now() - told < std::chrono::seconds(1)) return;
    told = Clock::now();
    log::info("loading weights: {}%", 100 * done / total);
  };
  model_ = loaded_->build(*backend_, progress, {options.model.packed_cache, version});
  KvLayout layout = model_->kv_layout();
  layout.num_blocks = plan.num_blocks;
  layout.block_size = plan.block_size;
  layout.dtype = options.engine.kv_cache.dtype;
  const auto ends = loaded_->tokenizer()->end_of_generation();
  EngineOptions engine = options.engine;
  engine.model_version = version;
  engine_ = std::make_unique<Engine>(*model_, *backend_, backend_->allocate_kv(layout),
                                     std::vector<TokenId>(ends.begin(), ends.end()), engine);
  grammar_compiler_ = std::make_shared<const GrammarCompiler>(std::make_shared<TokenVocabulary>(*loaded_->tokenizer()));
  created_ = static_cast<std::int64_t>(std::time(nullptr));
  engine_->start();
}

std::shared_ptr<const Service> ModelHost::service(const ModelOptions& options) const {
  auto service = std::make_shared<Service>();
  service->models = ModelTable({describe(options)});
  service->engine_stats = [this] { return engine_->stats(); };
  service->healthy = [this] { return engine_->healthy(); };
  service->step_trace = &engine_->step_trace();
  return service;
}

std::shared_ptr<const ServedModel> ModelHost::describe(const ModelOptions& options) const {
  auto served = std::make_shared<ServedModel>();
  const bool is_folder = std::filesystem::is_directory(options.path);
  served->name =
      (is_folder ? std::filesystem::absolute(options.path / ".").parent_path().filename() : options.path.stem())
          .string();
  if (!options.alias.empty()) {
    served->name = options.alias.front();
    served->aliases.assign(options.alias.begin() + 1, options.alias.end());
  }
  served->created = created_;
  served->info = loaded_->info();
  served->tokenizer = loaded_->tokenizer();
  served->chat_template = parse_template(options, *loaded_);
  served->template_capabilities = probe_capabilities(*served->chat_template);
  served->tool_format = served->template_capabilities.tool_format;
  if (!options.tool_format.empty()) {
    const ToolFormat* named = find_tool_format(options.tool_format);
    if (named == nullptr) throw StartupError("model.tool_format: there is no format '" + options.tool_format + "'");
    served->tool_format = *named;
  }
  served->grammar_compiler = grammar_compiler_;
  served->defaults = loaded_->generation_defaults();
  served->max_model_len = engine_->limits().max_model_len;
  served->max_num_choices = engine_->limits().max_num_choices;
  served->queue = &engine_->queue();
  return served;
}

}  // namespace quire
