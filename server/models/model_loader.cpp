#include "server/models/model_loader.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <filesystem>

namespace quire {

namespace {

Error load_refusal(const std::string& name, ErrorKind kind, const char* code, const std::string& why) {
  return Error{kind, "The model '" + name + "' was not loaded: " + why, code, "", std::nullopt};
}

// Runs `work` and returns its exception as an admin's error; nothing if it succeeded. Interrupted passes through.
template <class Work>
std::optional<Error> refused_by(const std::string& name, const Work& work) {
  try {
    work();
    return std::nullopt;
  } catch (const MemoryShortage& error) {
    return load_refusal(name, ErrorKind::kNoMemory, "insufficient_memory", error.what());
  } catch (const std::bad_alloc&) {
    return load_refusal(name, ErrorKind::kNoMemory, "insufficient_memory", "the system gave no memory");
  } catch (const StartupError& error) {
    return load_refusal(name, ErrorKind::kInvalidRequest, "invalid_model", error.what());
  } catch (const std::exception& error) {
    return load_refusal(name, ErrorKind::kInternal, "model_load_failed", error.what());
  }
}

// A share was planned before the model's needs were known.
KvCacheOptions pool_of(const HostedModelSpec& spec, const MemoryNeeds& needs) {
  KvCacheOptions pool = spec.engine.kv_cache;
  const bool is_share = !spec.is_only && spec.kv_memory == 0 && pool.memory > 0;
  if (is_share) pool.memory = useful_kv_bytes(needs, pool.block_size, pool.memory);
  return pool;
}

MachineMemory less(MachineMemory memory, std::uint64_t promised) {
  memory.available -= std::min(memory.available, promised);
  return memory;
}

}  // namespace

void check_names(const std::vector<HostedModelSpec>& specs) {
  for (auto spec = specs.begin(); spec != specs.end(); ++spec) {
    if (const auto twice = repeated_name(*spec)) {
      throw StartupError(fmt::format("model '{}': the name '{}' is given twice, as a name, an alias or an adapter",
                                     spec->name, *twice));
    }
    if (std::any_of(specs.begin(), spec, [&](const HostedModelSpec& other) { return share_a_name(other, *spec); })) {
      throw StartupError(
          fmt::format("models: the name '{}', or one of its aliases or adapters, belongs to two", spec->name));
    }
  }
}

void name_failures(const HostedModelSpec& spec, const std::function<void()>& work) {
  try {
    work();
  } catch (const StartupError& error) {
    if (spec.is_only) throw;
    throw StartupError(fmt::format("model '{}': {}", spec.name, error.what()));
  }
}

ModelLoader::ModelLoader(ModelOpener open, std::function<MachineMemory()> measure,
                         std::function<MachineMemory()> measure_host, std::shared_ptr<WorkThread> thread,
                         OnReleased on_released)
    : open_(std::move(open)),
      ledger_(std::move(measure)),
      host_ledger_(std::move(measure_host)),
      thread_(std::move(thread)),
      on_released_(std::move(on_released)) {}

ModelLoader::Opened ModelLoader::open_all(Specs& specs, const EngineOptions& general) const {
  check_names(specs);
  std::vector<std::unique_ptr<OpenedModel>> opened;
  for (const HostedModelSpec& spec : specs) {
    if (!spec.preload && !std::filesystem::exists(spec.model.path)) {
      throw StartupError(fmt::format("model '{}': there is no '{}'", spec.name, spec.model.path.string()));
    }
    opened.push_back(spec.preload ? open_(spec) : nullptr);
  }
  plan_start(specs, general.kv_cache.memory, opened);
  return opened;
}

void ModelLoader::check(Specs specs, const EngineOptions& general) const {
  const auto opened = open_all(specs, general);
  std::uint64_t promised = 0;
  std::uint64_t promised_on_host = 0;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (!opened[i]) continue;
    name_failures(specs[i], [&] {
      const MemoryNeeds needs = opened[i]->needs();
      const MemoryPlan plan = plan_memory(needs, pool_of(specs[i], needs), less(ledger_.left(), promised),
                                          less(host_ledger_.left(), promised_on_host));
      promised += plan.total_bytes();
      promised_on_host += needs.host_bytes;
      opened[i]->check();
    });
  }
}

// A single model takes the memory it is given, or all that is free.
void ModelLoader::plan_start(Specs& specs, std::int64_t kv_budget, const Opened& opened) const {
  if (specs.size() == 1 && specs.front().is_only) return;
  std::vector<KvClaim> claims;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    claims.push_back({specs[i].name, specs[i].kv_memory, specs[i].kv_share, std::nullopt});
    if (opened[i]) claims.back().needs = opened[i]->needs();
  }
  const std::int32_t block_size = specs.empty() ? 1 : specs.front().engine.kv_cache.block_size;
  const std::vector<std::int64_t> sizes = share_kv(claims, kv_budget, block_size, ledger_.left());
  for (std::size_t i = 0; i < specs.size(); ++i)
    specs[i].engine.kv_cache.memory = sizes[i];
}

BroughtUp ModelLoader::bring_up(const HostedModelSpec& spec, std::unique_ptr<OpenedModel> opened,
                                const std::function<bool()>& interrupted) {
  const MemoryNeeds needs = opened->needs();
  const MemoryPlan plan = plan_memory(needs, pool_of(spec, needs), ledger_.left(), host_ledger_.left());
  Promises promises{ledger_.promise(plan.total_bytes()), host_ledger_.promise(needs.host_bytes)};
  std::unique_ptr<RunningModel> model = opened->start(plan, interrupted);
  BroughtUp loaded;
  loaded.promised = plan.total_bytes();
  loaded.promised_on_host = needs.host_bytes;
  // The promises move with the model: the pointer itself may live longer.
  loaded.running = {
      model.release(), [this, thread = thread_, promises = std::move(promises)](RunningModel* ended) mutable {
        // A job must be copyable, but `Ended` is not.
        auto held = std::make_shared<Ended>(Ended{std::unique_ptr<RunningModel>(ended), std::move(promises)});
        thread->post([this, held] { bury(*held); });
      }};
  auto served = loaded.running->describe(spec);
  served->queue = std::shared_ptr<RequestQueue>(loaded.running, &loaded.running->queue());
  loaded.served = std::move(served);
  const std::lock_guard lock(mutex_);
  std::erase_if(alive_, [](const std::weak_ptr<RunningModel>& each) { return each.expired(); });
  alive_.push_back(loaded.running);
  return loaded;
}

std::optional<Result<BroughtUp>> ModelLoader::load(const HostedModelSpec& spec, const std::stop_token& stop) {
  try {
    BroughtUp loaded;
    const auto error = refused_by(spec.name, [&] {
      loaded = bring_up(spec, open_(spec), [&] { return ending_.load() || stop.stop_requested(); });
    });
    if (error) return tl::make_unexpected(*error);
    return loaded;
  } catch (const Interrupted&) {
    ::malloc_trim(0);
    return std::nullopt;
  }
}

std::optional<Error> ModelLoader::refusal_without(const HostedModelSpec& spec, std::uint64_t promised,
                                                  std::uint64_t promised_on_host) const {
  return refused_by(spec.name, [&] {
    const MemoryNeeds needs = open_(spec)->needs();
    plan_memory(needs, pool_of(spec, needs), ledger_.left_without(promised),
                host_ledger_.left_without(promised_on_host));
  });
}

void ModelLoader::bury(Ended& ended) {
  const RunningModel* const model = ended.model.get();
  ended.model->stop();
  ended.model.reset();
  ended.promises = {};
  ::malloc_trim(0);  // returns its small allocations to the system too
  on_released_(model);
}

void ModelLoader::stop_all() {
  std::vector<std::shared_ptr<RunningModel>> alive;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& each : alive_) {
      if (auto model = each.lock()) alive.push_back(std::move(model));
    }
  }
  for (const auto& model : alive)
    model->stop();
}

}  // namespace quire
