#include "server/serve.h"

#include <sys/resource.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <set>
#include <sstream>

#include "core/base/log.h"
#include "core/model/memory_plan.h"
#include "server/http/server.h"
#include "server/ops/systemd.h"

namespace quire {

namespace {

// What the end takes beyond the drain.
constexpr std::chrono::seconds kTimeToEnd{5};

// Thrown out of a model's loading when a signal arrives meanwhile.
struct Interrupted {};

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

// What serves one model, in the order in which the parts need each other.
class ModelHost {
 public:
  ModelHost(const ServeOptions& options, const Server& server) {
    loaded_ = open_model(options.model.path);
    backend_ = create_backend(options.backend);
    const ServingLimits limits{options.engine.scheduler.max_num_seqs, options.engine.scheduler.max_num_batched_tokens,
                               options.engine.scheduler.max_model_len};
    const MemoryPlan plan = plan_memory(memory_needs(*loaded_, *backend_, options.engine.kv_cache, limits),
                                        options.engine.kv_cache, machine_memory());
    log::info("{} on {}: {}", options.model.path.string(), backend_->name(), plan.describe());
    model_ = loaded_->build(*backend_, [&server](std::uint64_t, std::uint64_t) {
      if (server.stopping()) throw Interrupted{};
    });
    KvLayout layout = model_->kv_layout();
    layout.num_blocks = plan.num_blocks;
    layout.block_size = plan.block_size;
    layout.dtype = options.engine.kv_cache.dtype;
    const auto ends = loaded_->tokenizer()->end_of_generation();
    EngineOptions engine = options.engine;
    engine.model_version = version_of(options.model.path);
    engine_ = std::make_unique<Engine>(*model_, *backend_, backend_->allocate_kv(layout),
                                       std::vector<TokenId>(ends.begin(), ends.end()), engine);
    served_ = describe(options.model);
    engine_->start();
  }

  std::shared_ptr<const Service> service() {
    auto service = std::make_shared<Service>();
    service->models = ModelTable({served_});
    service->engine_stats = [this] { return engine_->stats(); };
    service->healthy = [this] { return engine_->healthy(); };
    return service;
  }

  const std::string& name() const { return served_->name; }

  // Ends the engine's thread: nothing is sent any more.
  void stop() { engine_->stop(); }

 private:
  std::shared_ptr<const ServedModel> describe(const ModelOptions& options) {
    auto served = std::make_shared<ServedModel>();
    const bool is_folder = std::filesystem::is_directory(options.path);
    served->name =
        (is_folder ? std::filesystem::absolute(options.path / ".").parent_path().filename() : options.path.stem())
            .string();
    if (!options.alias.empty()) {
      served->name = options.alias.front();
      served->aliases.assign(options.alias.begin() + 1, options.alias.end());
    }
    served->created = static_cast<std::int64_t>(std::time(nullptr));
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
    served->grammar_compiler =
        std::make_shared<const GrammarCompiler>(std::make_shared<TokenVocabulary>(*served->tokenizer));
    served->defaults = loaded_->generation_defaults();
    served->max_model_len = engine_->limits().max_model_len;
    served->max_num_choices = engine_->limits().max_num_choices;
    served->queue = &engine_->queue();
    return served;
  }

  std::shared_ptr<const LoadedModel> loaded_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<const ServedModel> served_;
};

// What a person who just started it can paste into another terminal.
void print_hint(const ServerOptions& options, std::uint16_t port) {
  const std::string& host = options.host;
  if (port == 0 || !options.tls.certificate.empty() || !options.security.keys.empty()) return;
  const std::string reachable = host == "0.0.0.0" || host == "::" ? "127.0.0.1" : host;
  log::info(
      "a chat page is at http://{0}:{1}/ and the API below http://{0}:{1}/v1; try: curl "
      "http://{0}:{1}/v1/chat/completions "
      R"(-H 'Content-Type: application/json' -d '{{"messages":[{{"role":"user","content":"What is a KV block?"}}]}}')",
      reachable, port);
}

// Each connection is a descriptor, and the usual soft limit of 1,024 is less than what can be served.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Twice in each period that the supervisor asked for, as sd_watchdog_enabled(3) advises.
void feed_watchdog(Server& server, ServiceNotifier& notifier) {
  const auto period = watchdog_period();
  if (!period) return;
  server.repeat(*period / 2, [&server, &notifier, watchdog = Watchdog()]() mutable {
    const auto service = server.state().service();
    if (watchdog.is_alive(service->engine_stats(), service->healthy())) notifier.alive();
  });
}

}  // namespace

int serve(const ServeOptions& options) {
  raise_descriptor_limit();
  ServiceNotifier notifier;  // outlives the server, whose threads use it
  std::unique_ptr<ModelHost> host;
  std::size_t num_cut = 0;
  {
    Server server(options.server, take_handed_sockets());
    server.handle_signals();
    server.on_drain([&] {
      notifier.stopping();
      notifier.extend(options.server.drain.delay + options.server.drain.deadline + kTimeToEnd);
    });
    server.start();
    try {
      const auto started = Clock::now();
      host = std::make_unique<ModelHost>(options, server);
      server.serve(host->service());
      // Only now: whoever reads it is served.
      log::info("{} is ready after {} ms", host->name(),
                std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - started).count());
      print_hint(options.server, server.port());
      notifier.ready();
      feed_watchdog(server, notifier);
    } catch (const Interrupted&) {
      log::info("interrupted while loading");
    }
    num_cut = server.wait();
    // First the engine's thread ends, which posts to the server's loops; then the server, whose sessions hold
    // references into the engine; then the engine.
    if (host) host->stop();
  }
  if (num_cut > 0) log::warn("{} requests were cut", num_cut);
  return num_cut > 0 ? kExitCut : kExitDrained;
}

}  // namespace quire
