#include "server/model_host.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/log.h"
#include "core/model/layers/drafted_model.h"
#include "core/text/tools/call_marks.h"
#include "server/fleet/event_publisher.h"
#include "server/fleet/model_content.h"
#include "server/fleet/redis_store.h"

namespace quire {

namespace {

constexpr std::int64_t kMostAdapterRank = 256;

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

bool wants_next_tokens(const HostedModelSpec& spec) {
  return spec.engine.speculation.method == SpeculationMethod::kNextTokens;
}

// The same for daemons on several machines: by what the files hold, and what else decides what is computed from them.
std::string shared_version_of(const HostedModelSpec& spec, const std::function<bool()>& interrupted) {
  const std::string drafter =
      spec.model.draft_model.empty() ? "" : content_version(spec.model.draft_model, interrupted);
  return content_version(spec.model.path, interrupted) + '|' + drafter + '|' +
         std::to_string(spec.engine.scheduler.max_model_len) + '|' + std::to_string(wants_next_tokens(spec) ? 1 : 0);
}

// "{model}" in the topic stands for the model's name.
std::string topic_of(const CacheEventOptions& options, const HostedModelSpec& spec) {
  constexpr std::string_view kModel = "{model}";
  std::string topic = options.topic;
  if (const std::size_t at = topic.find(kModel); at != std::string::npos) topic.replace(at, kModel.size(), spec.name);
  return topic;
}

// A model's files, mapped and checked, and the backend that will compute it.
class OpenedHost final : public OpenedModel {
 public:
  OpenedHost(const HostedModelSpec& spec, const BackendOptions& backend)
      : spec_(spec),
        loaded_(open_model(spec.model.path, true, spec.engine.scheduler.max_model_len, wants_next_tokens(spec))),
        loaded_drafter_(open_drafter(*loaded_, spec.model.path, spec.model.draft_model)),
        backend_(create_backend(backend)) {
    const ModelInfo& info = loaded_->info();
    if (wants_next_tokens(spec) && info.has_head && !info.has_next_tokens)
      throw StartupError(spec.model.path.string() +
                         ": has no block that predicts further tokens, which speculation.method: mtp drafts with; take "
                         "prompt_lookup or none");
  }

  MemoryNeeds needs() const override {
    const SchedulerOptions& scheduler = spec_.engine.scheduler;
    const auto adapters = spec_.takes_adapters() ? static_cast<std::uint64_t>(spec_.model.adapter_memory) : 0;
    const ServingLimits limits{scheduler.max_num_seqs, scheduler.max_num_batched_tokens, scheduler.max_model_len,
                               adapters};
    return memory_needs(*loaded_, *backend_, spec_.engine.kv_cache, limits, loaded_drafter_.get());
  }

  std::unique_ptr<RunningModel> start(const MemoryPlan& plan, const std::function<bool()>& interrupted) override {
    log::info("{} on {}: {}", spec_.model.path.string(), backend_->name(), plan.describe());
    for (const std::string& part : loaded_->info().parts_left_out)
      log::warn("{}: the file has {}, which Quire does not compute; the text model is served",
                spec_.model.path.string(), part);
    return std::make_unique<ModelHost>(spec_, std::move(loaded_), std::move(backend_), plan, interrupted,
                                       std::move(loaded_drafter_));
  }

 private:
  const HostedModelSpec spec_;
  std::shared_ptr<const LoadedModel> loaded_;
  std::shared_ptr<const LoadedModel> loaded_drafter_;  // null: none
  std::unique_ptr<Backend> backend_;
};

// Special tokens are no text, but for those that calls and reasoning are marked with: a grammar of calls lets a model
// write them.
std::shared_ptr<const TokenVocabulary> vocabulary_of(const Tokenizer& tokenizer) {
  std::vector<std::string> bytes(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view text = tokenizer.token_bytes(TokenId{id});
    if (!tokenizer.is_special(TokenId{id}) || is_call_mark(text)) bytes[static_cast<std::size_t>(id)] = text;
  }
  const auto ends = tokenizer.end_of_generation();
  return std::make_shared<const TokenVocabulary>(bytes, std::vector<TokenId>(ends.begin(), ends.end()));
}

}  // namespace

ModelOpener open_hosts(const BackendOptions& backend, const RedisStoreOptions& shared_store,
                       const CacheEventOptions& cache_events) {
  std::shared_ptr<CacheEventPublisher> publisher;
  if (!cache_events.endpoint.empty()) publisher = std::make_shared<CacheEventPublisher>(cache_events);
  SharedStoreFactory store;
  if (shared_store.server.is_given()) {
    store = [shared_store](std::function<void()> ready) {
      return std::make_unique<RedisStore>(shared_store, std::move(ready));
    };
  }
  return [backend, store, publisher, cache_events, turns = std::make_shared<StepTurns>()](const HostedModelSpec& spec) {
    HostedModelSpec hosted = spec;
    hosted.engine.shared_store = store;
    if (publisher != nullptr) {
      hosted.engine.cache_events = std::make_shared<ModelEvents>(publisher, topic_of(cache_events, spec));
    }
    hosted.engine.turns = turns;
    return std::make_unique<OpenedHost>(hosted, backend);
  };
}

ModelHost::ModelHost(const HostedModelSpec& spec, std::shared_ptr<const LoadedModel> loaded,
                     std::unique_ptr<Backend> backend, const MemoryPlan& plan, const std::function<bool()>& interrupted,
                     std::shared_ptr<const LoadedModel> loaded_drafter)
    : loaded_(std::move(loaded)), loaded_drafter_(std::move(loaded_drafter)), backend_(std::move(backend)) {
  const std::string version = version_of(spec.model.path);
  const std::string drafter_version = loaded_drafter_ == nullptr ? "" : version_of(spec.model.draft_model);
  model_ = build(spec, version, drafter_version, interrupted);
  load_adapters(spec);
  KvLayout layout = plan.num_window_parts > 0 ? model_->kv_split().full : model_->kv_layout();
  layout.num_blocks = plan.num_blocks;
  layout.block_size = plan.block_size;
  layout.dtype = spec.engine.kv_cache.dtype;
  const auto ends = loaded_->tokenizer()->end_of_generation();
  EngineOptions engine = spec.engine;
  engine.model_version = version + drafter_version;  // a block's bytes are of both
  if (engine.shared_store) engine.model_version = shared_version_of(spec, interrupted);
  engine.num_states = plan.num_states;
  engine.num_window_parts = plan.num_window_parts;
  if (engine.cache_events && adapters_)
    engine.cache_events = std::make_shared<NamedAdapterEvents>(engine.cache_events, adapters_);
  engine_ = std::make_unique<Engine>(*model_, *backend_, backend_->allocate_kv(layout),
                                     std::vector<TokenId>(ends.begin(), ends.end()), engine);
  if (loaded_->info().has_head) {
    GrammarLimits limits;
    limits.max_spaces = static_cast<std::size_t>(engine.max_json_spaces);
    grammar_compiler_ = std::make_shared<const GrammarCompiler>(vocabulary_of(*loaded_->tokenizer()), limits);
  }
  const auto* const dtype = std::find_if(std::begin(kKvDTypes), std::end(kKvDTypes),
                                         [&](const auto& each) { return each.second == layout.dtype; });
  cache_ = {plan.block_size, plan.num_blocks, std::string(dtype == std::end(kKvDTypes) ? "" : dtype->first),
            spec.engine.kv_cache.enable_prefix_caching && loaded_->info().is_causal};
  weight_bytes_ = plan.needs.weight_bytes;
  created_ = static_cast<std::int64_t>(std::time(nullptr));
  engine_->start();
}

std::unique_ptr<Model> ModelHost::build(const HostedModelSpec& spec, const std::string& version,
                                        const std::string& drafter_version,
                                        const std::function<bool()>& interrupted) const {
  const auto progress = [&interrupted, told = Clock::now()](std::uint64_t done, std::uint64_t total) mutable {
    if (interrupted()) throw Interrupted{};
    if (Clock::now() - told < std::chrono::seconds(1)) return;
    told = Clock::now();
    log::info("loading weights: {}%", 100 * done / total);
  };
  const PackedCacheOptions cache{spec.model.packed_cache, version};
  if (loaded_drafter_ == nullptr) return loaded_->build(*backend_, progress, cache);
  log::info("{} drafts for {}", spec.model.draft_model.string(), spec.name);
  return build_with_drafter(*loaded_, *loaded_drafter_, *backend_, progress, cache,
                            {spec.model.packed_cache, drafter_version});
}

// What an admin loaded later is there again after a sleep; its file is read once it is asked for.
void ModelHost::load_adapters(const HostedModelSpec& spec) {
  for (const std::string& text : spec.model.adapters) {
    if (!adapter_path_of(text)) throw StartupError("model.adapters: '" + text + "' is not NAME=PATH");
  }
  if (!spec.takes_adapters()) return;
  model_->allow_adapters(kMostAdapterRank);
  adapters_ = std::make_shared<AdapterPool>(
      static_cast<std::uint64_t>(spec.model.adapter_memory),
      [model = model_.get()](const std::filesystem::path& path) { return model->load_adapter(path); });
  for (const AdapterPath& wanted : spec.adapters) {
    if (!wanted.is_configured) {
      adapters_->add_unread(wanted.name, wanted.path);
      continue;
    }
    const std::int64_t rank = adapters_->add(wanted.name, wanted.path);
    log::info("adapter {}: {} of rank {}", wanted.name, wanted.path.string(), rank);
  }
}

// What waits for an adapter is called back first: its request waits for the model instead, or is refused.
void ModelHost::stop() {
  if (adapters_) adapters_->stop();
  if (engine_) engine_->stop();
}

std::shared_ptr<ServedModel> ModelHost::describe(const HostedModelSpec& spec) const {
  auto served = std::make_shared<ServedModel>();
  served->name = spec.name;
  served->aliases = spec.aliases;
  served->created = created_;
  served->info = loaded_->info();
  served->adapters = adapters_;
  served->has_draft_model = loaded_drafter_ != nullptr;
  served->tokenizer = loaded_->tokenizer();
  served->chat_template = parse_template(spec.model, *loaded_);
  served->template_capabilities = probe_capabilities(*served->chat_template);
  served->tool_format = served->template_capabilities.tool_format;
  if (!spec.model.tool_format.empty()) {
    const ToolFormat* named = find_tool_format(spec.model.tool_format);
    if (named == nullptr) throw StartupError("model.tool_format: there is no format '" + spec.model.tool_format + "'");
    served->tool_format = *named;
  }
  served->grammar_compiler = grammar_compiler_;
  served->defaults = loaded_->generation_defaults();
  served->tasks = read_text_tasks(spec.model.path, *served->tokenizer);
  served->tasks.num_labels = loaded_->info().num_labels;
  served->fingerprint = engine_->limits().fingerprint;
  served->max_model_len = engine_->limits().max_model_len;
  served->max_num_choices = engine_->limits().max_num_choices;
  return served;
}

}  // namespace quire
