#include "server/model_host.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>

#include "core/base/log.h"
#include "core/grammar/compiler.h"
#include "core/model/encode/towers/hf_tower.h"
#include "core/model/formats/tensor_table.h"
#include "core/model/layers/adapters/read_adapter.h"
#include "core/model/layers/drafted_model.h"
#include "core/text/chat_template.h"
#include "core/text/chat_template_capabilities.h"
#include "core/text/tools/call_writer.h"
#include "server/join_fleet.h"
#include "server/modules/modules.h"

namespace quire {

namespace {

constexpr std::int64_t kMostAdapterRank = 256;

// A record of the log is a line with a time.
std::string in_one_line(std::string_view lines) {
  std::string text;
  for (const char letter : lines) {
    if (letter == '\n')
      text += "; ";
    else
      text += letter;
  }
  return text;
}

std::shared_ptr<const ChatTemplate> parse_template(HostedModelSpec spec, const LoadedModel& model) {
  if (!spec.template_text) read_template(spec);
  std::string own = model.chat_template().empty() ? std::string(kDefaultChatTemplate) : model.chat_template();
  auto parsed = ChatTemplate::parse(spec.template_text.value_or(std::move(own)), {.changes_values = true});
  if (!parsed) throw StartupError("the chat template cannot be used: " + parsed.error().message);
  return std::make_shared<const ChatTemplate>(std::move(*parsed));
}

// Null for an empty name: the chat template then selects the format. Throws StartupError for an unknown name.
const ToolFormat* named_tool_format(const ModelOptions& options) {
  if (options.tool_format.empty()) return nullptr;
  const ToolFormat* const named = find_tool_format(options.tool_format);
  if (named == nullptr) throw StartupError("model.tool_format: there is no format '" + options.tool_format + "'");
  return named;
}

void check_adapter_texts(const ModelOptions& options) {
  for (const std::string& text : options.adapters) {
    if (!adapter_path_of(text)) throw StartupError("model.adapters: '" + text + "' is not NAME=PATH");
  }
}

bool wants_next_tokens(const HostedModelSpec& spec) {
  return spec.engine.speculation.method == SpeculationMethod::kNextTokens;
}

SpecWishes wishes_of(const HostedModelSpec& spec) {
  return {.served_context = spec.engine.scheduler.max_model_len,
          .next_tokens = wants_next_tokens(spec),
          .ignore_unknown_keys = spec.model.ignore_unknown_keys};
}

// Whether blocks or packed weights are kept for, or shared with, another process.
bool leaves_process(const HostedModelSpec& spec) {
  const EngineOptions& engine = spec.engine;
  return !spec.model.packed_cache.empty() || !engine.kv_cache.disk_tier_path.empty() || engine.keeps_slots ||
         engine.shared_store != nullptr || engine.cache_events != nullptr;
}

// Folder that keeps the hashes of the model's files, so that a later start need not read them from end to end.
std::filesystem::path hashes_folder(const HostedModelSpec& spec) {
  if (!spec.model.packed_cache.empty()) return spec.model.packed_cache;
  return spec.engine.kv_cache.disk_tier_path;
}

// Replaces "{model}" in the topic by the model's name.
std::string topic_of(const CacheEventOptions& options, const HostedModelSpec& spec) {
  constexpr std::string_view kModel = "{model}";
  std::string topic = options.topic;
  if (const std::size_t at = topic.find(kModel); at != std::string::npos) topic.replace(at, kModel.size(), spec.name);
  return topic;
}

// Opens the model's vision tower, on a CPU backend if the model runs on a device. Null without one. A tower that was
// found beside the model and cannot be used is skipped with a warning; one that an option names is required.
std::shared_ptr<const ModelSight> open_sight(const ModelOptions& options, const ModelInfo& info, Backend& backend,
                                             const BackendOptions& backend_options) {
  if (!is_built(Module::kImages) || !options.uses_mmproj) return nullptr;
  const std::filesystem::path path = options.mmproj.empty() ? find_tower(options.path) : options.mmproj;
  if (path.empty()) return nullptr;
  try {
    return std::make_shared<const ModelSight>(path, options.picture_form, options.ignore_unknown_keys, info, backend,
                                              backend_options);
  } catch (const StartupError& error) {
    if (!options.mmproj.empty()) throw;
    log::warn("{}; the model is served without it (--no-mmproj says so, and no warning is written)", error.what());
    return nullptr;
  }
}

// A model's files, mapped and checked, and the backend that will compute it.
class OpenedHost final : public OpenedModel {
 public:
  OpenedHost(const HostedModelSpec& spec, const BackendOptions& backend)
      : spec_(spec),
        loaded_(open_model(spec.model.path, true, wishes_of(spec))),
        loaded_drafter_(
            open_drafter(*loaded_, spec.model.path, spec.model.draft_model, spec.model.ignore_unknown_keys)),
        backend_(create_backend(backend)),
        sight_(open_sight(spec.model, loaded_->info(), *backend_, backend)) {
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
    MemoryNeeds needs = memory_needs(*loaded_, *backend_, spec_.engine.kv_cache, limits, loaded_drafter_.get());
    if (sight_ != nullptr) {
      const std::int64_t context =
          std::min<std::int64_t>(scheduler.max_model_len > 0 ? scheduler.max_model_len : loaded_->info().max_context,
                                 loaded_->info().max_context);
      needs.beside_bytes += sight_->num_bytes(context) + static_cast<std::uint64_t>(spec_.engine.media_bytes);
    }
    return needs;
  }

  void check() const override {
    parse_template(spec_, *loaded_);
    named_tool_format(spec_.model);
    check_adapter_texts(spec_.model);
    for (const AdapterPath& adapter : spec_.adapters)
      check_adapter(adapter.path, spec_.model.path, *backend_, kMostAdapterRank);
  }

  std::unique_ptr<RunningModel> start(const MemoryPlan& plan, const std::function<bool()>& interrupted) override {
    log::info("{} on {}: {}", spec_.model.path.string(), backend_->name(), in_one_line(plan.describe()));
    for (const std::string& part : loaded_->info().parts_left_out) {
      const bool is_read = sight_ != nullptr && part == kVisionPart;
      if (is_read) continue;
      log::warn("{}: the file has {}, which Quire does not compute; the text model is served",
                spec_.model.path.string(), part);
    }
    for (const std::string& warning : loaded_->info().warnings)
      log::warn("{}: {}", spec_.model.path.string(), warning);
    return std::make_unique<ModelHost>(spec_, std::move(loaded_), std::move(backend_), plan, interrupted,
                                       std::move(loaded_drafter_), std::move(sight_));
  }

 private:
  const HostedModelSpec spec_;
  std::shared_ptr<const LoadedModel> loaded_;
  std::shared_ptr<const LoadedModel> loaded_drafter_;  // null: none
  std::unique_ptr<Backend> backend_;
  std::shared_ptr<const ModelSight> sight_;  // null: it reads text only
};

// Under a grammar a model writes no special tokens, except those that mark calls and reasoning.
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
  BlockSharing sharing;
  if constexpr (is_built(Module::kFleet)) sharing = share_blocks(shared_store, cache_events);
  return [backend, sharing, cache_events, turns = std::make_shared<StepTurns>()](const HostedModelSpec& spec) {
    HostedModelSpec hosted = spec;
    hosted.engine.shared_store = sharing.store;
    if (sharing.events) hosted.engine.cache_events = sharing.events(topic_of(cache_events, spec));
    hosted.engine.turns = turns;
    return std::make_unique<OpenedHost>(hosted, backend);
  };
}

ModelHost::ModelHost(const HostedModelSpec& spec, std::shared_ptr<const LoadedModel> loaded,
                     std::unique_ptr<Backend> backend, const MemoryPlan& plan, const std::function<bool()>& interrupted,
                     std::shared_ptr<const LoadedModel> loaded_drafter, std::shared_ptr<const ModelSight> sight)
    : loaded_(std::move(loaded)),
      loaded_drafter_(std::move(loaded_drafter)),
      sight_(std::move(sight)),
      backend_(std::move(backend)) {
  tasks_ = read_text_tasks(spec.model.path, *loaded_->tokenizer());
  tasks_.num_labels = loaded_->info().num_labels;
  EngineOptions engine = spec.engine;
  engine.identity = build(spec, interrupted);
  load_adapters(spec);
  KvLayout layout = plan.num_window_parts > 0 ? model_->kv_split().full : model_->kv_layout();
  layout.num_blocks = plan.num_blocks;
  layout.block_size = plan.block_size;
  layout.dtype = spec.engine.kv_cache.dtype;
  const auto ends = loaded_->tokenizer()->end_of_generation();
  engine.num_states = plan.num_states;
  engine.num_window_parts = plan.num_window_parts;
  if constexpr (is_built(Module::kFleet)) {
    if (engine.cache_events && adapters_) engine.cache_events = name_adapters(engine.cache_events, adapters_);
  }
  if (sight_ != nullptr) engine.encoder = &sight_->backend();
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

// Packed weights are found by the content of the files; a start without them reads the files beside packing.
ModelIdentity ModelHost::build(const HostedModelSpec& spec, const std::function<bool()>& interrupted) {
  const auto poll = [&interrupted] {
    if (interrupted()) throw Interrupted{};
  };
  const auto progress = [&poll, told = Clock::now()](std::uint64_t done, std::uint64_t total) mutable {
    poll();
    if (Clock::now() - told < std::chrono::seconds(1)) return;
    told = Clock::now();
    log::info("loading weights: {}%", 100 * done / total);
  };
  std::optional<ContentReading> reading;
  std::optional<ContentReading> reading_drafter;
  ModelIdentity identity{.model = private_content()};
  if (sight_ != nullptr)
    identity.encoder = leaves_process(spec) ? sight_->content(hashes_folder(spec)) : "of one process";
  if (leaves_process(spec)) {
    reading.emplace(loaded_, hashes_folder(spec));
    if (loaded_drafter_ != nullptr) reading_drafter.emplace(loaded_drafter_, hashes_folder(spec));
  }
  const auto finish = [&] {
    if (reading) identity.model = reading->wait(poll);
    if (reading_drafter) identity.draft_model = reading_drafter->wait(poll);
    reading.reset();
    reading_drafter.reset();
  };
  if (!spec.model.packed_cache.empty()) finish();
  const PackedCacheOptions cache{spec.model.packed_cache, spec.model.packed_cache_bytes, identity.model};
  if (loaded_drafter_ == nullptr) {
    model_ = loaded_->build(*backend_, progress, cache);
  } else {
    log::info("{} drafts for {}", spec.model.draft_model.string(), spec.name);
    model_ = build_with_drafter(*loaded_, *loaded_drafter_, *backend_, progress, cache,
                                {cache.folder, cache.max_bytes, identity.draft_model});
  }
  finish();
  return identity;
}

// Adapters loaded through /admin are added again after a sleep, but their files are read only when requested.
void ModelHost::load_adapters(const HostedModelSpec& spec) {
  check_adapter_texts(spec.model);
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

// The adapters stop first: requests that wait for one then wait for the model instead, or are refused.
void ModelHost::stop() {
  if (adapters_) adapters_->stop();
  if (engine_) engine_->stop();
}

std::shared_ptr<ServedModel> ModelHost::describe(const HostedModelSpec& spec) const {
  auto served = std::make_shared<ServedModel>();
  served->name = spec.name;
  served->aliases = spec.aliases;
  served->created = created_;
  served->info = facts_of(loaded_->info());
  served->take_adapter = adapter_taker(adapters_);
  served->has_draft_model = loaded_drafter_ != nullptr;
  served->tokenizer = loaded_->tokenizer();
  served->chat_template = parse_template(spec, *loaded_);
  served->template_capabilities = probe_capabilities(*served->chat_template);
  if (const ToolFormat* const named = named_tool_format(spec.model)) served->template_capabilities.tool_format = *named;
  served->tool_format = served->template_capabilities.tool_format;
  served->grammar_compiler = grammar_compiler_;
  served->defaults = loaded_->generation_defaults();
  if (sight_ != nullptr) served->sight = sight_->view();
  served->tasks = tasks_;
  served->fingerprint = engine_->limits().fingerprint;
  served->max_model_len = engine_->limits().max_model_len;
  served->max_num_choices = engine_->limits().max_num_choices;
  return served;
}

}  // namespace quire
