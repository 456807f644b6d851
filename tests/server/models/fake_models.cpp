#include "tests/server/models/fake_models.h"

namespace quire::test {

namespace {

// A matrix that only claims to take memory.
class FakeLinear final : public Linear {
 public:
  explicit FakeLinear(std::size_t bytes) : bytes_(bytes) {}
  std::int64_t in_features() const override { return 1; }
  std::int64_t out_features() const override { return 8; }
  std::size_t bytes() const override { return bytes_; }

 private:
  const std::size_t bytes_;
};

}  // namespace

class FakeModels::Running final : public RunningModel {
 public:
  Running(FakeModels& models, const HostedModelSpec& spec)
      : models_(models), path_(spec.model.path.string()), engine_(says_name(path_)) {
    if (spec.takes_adapters()) {
      adapters_ = std::make_shared<AdapterPool>(
          static_cast<std::uint64_t>(spec.model.adapter_memory),
          [&models](const std::filesystem::path& path) { return models.read_adapter(path); });
    }
    for (const AdapterPath& adapter : spec.adapters)
      adapters_->add(adapter.name, adapter.path);
    models_.enter(path_, &engine_);
  }
  ~Running() override {
    stop();
    models_.leave(&engine_);
  }
  std::shared_ptr<ServedModel> describe(const HostedModelSpec& spec) const override {
    if (spec.model.tool_format == "unknown") throw StartupError("model.tool_format: there is no format 'unknown'");
    auto served = fake_model(const_cast<FakeEngine&>(engine_).queue());
    served->name = spec.name;
    served->aliases = spec.aliases;
    served->take_adapter = adapter_taker(adapters_);
    return served;
  }
  RequestQueue& queue() override { return engine_.queue(); }
  EngineStats stats() const override { return engine_.stats(); }
  bool healthy() const override { return true; }
  StepTrace* step_trace() override { return &trace_; }
  void reconfigure(const EngineOptions& options) override {
    engine_.queue().reconfigure(options.queue, options.scheduler.key_weights);
  }
  AdapterPool* adapters() override { return adapters_.get(); }
  void stop() override {
    if (adapters_) adapters_->stop();
    engine_.stop();
  }

 private:
  static FakeEngine::Script says_name(const std::string& path) {
    return [path](const Request& request, std::int32_t) {
      std::vector<TokenId> tokens;
      const std::string text = request.adapter ? request.adapter->content_key() : path;
      while (tokens.size() <= static_cast<std::size_t>(request.sampling.max_tokens)) {
        for (const TokenId token : bytes(text))
          tokens.push_back(token);
      }
      return tokens;
    };
  }

  FakeModels& models_;
  const std::string path_;
  FakeEngine engine_;
  StepTrace trace_;
  std::shared_ptr<AdapterPool> adapters_;
};

class FakeModels::Opened final : public OpenedModel {
 public:
  Opened(FakeModels& models, const HostedModelSpec& spec)
      : models_(models), spec_(spec), path_(spec.model.path.string()) {}
  MemoryNeeds needs() const override {
    MemoryNeeds needs{.weight_bytes = models_.weight_bytes,
                      .activation_bytes = kMegabyte,
                      .kv_block_bytes = kMegabyte,
                      .useful_kv_tokens = 16 * 4096};
    needs.host_bytes = models_.host_bytes;
    return needs;
  }
  std::unique_ptr<RunningModel> start(const MemoryPlan&, const std::function<bool()>& interrupted) override {
    std::unique_lock lock(models_.mutex_);
    ++models_.num_begun_;
    models_.changed_.notify_all();
    // A loader checks between tensors.
    while (models_.held_ && !interrupted())
      models_.changed_.wait_for(lock, std::chrono::milliseconds(1));
    if (interrupted()) throw Interrupted{};
    if (path_ == "broken") throw StartupError("broken: a tensor is cut off");
    ++models_.num_loads_;
    lock.unlock();
    return std::make_unique<Running>(models_, spec_);
  }

 private:
  FakeModels& models_;
  const HostedModelSpec spec_;
  const std::string path_;
};

ModelOpener FakeModels::opener() {
  return [this](const HostedModelSpec& spec) -> std::unique_ptr<OpenedModel> {
    const std::string path = spec.model.path.string();
    if (path == "missing") throw StartupError("missing: there is no such file");
    return std::make_unique<Opened>(*this, spec);
  };
}

std::shared_ptr<const Adapter> FakeModels::read_adapter(const std::filesystem::path& path) {
  const std::lock_guard lock(mutex_);
  if (absent_.contains(path.string())) throw StartupError(path.string() + ": there is no such file");
  LowRank change;
  change.down = std::make_unique<FakeLinear>(kAdapterBytes);
  change.up = std::make_unique<FakeLinear>(0);
  Adapter::Group model;
  model[0].push_back(std::move(change));
  return std::make_shared<const Adapter>(std::vector<Adapter::Layer>(), std::move(model), path.filename().string());
}

void FakeModels::remove_adapter(const std::string& path) {
  const std::lock_guard lock(mutex_);
  absent_.insert(path);
}

void FakeModels::hold_loads() {
  const std::lock_guard lock(mutex_);
  held_ = true;
}

void FakeModels::release_loads() {
  {
    const std::lock_guard lock(mutex_);
    held_ = false;
  }
  changed_.notify_all();
}

void FakeModels::wait_loading(int count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_begun_ >= count; });
}

void FakeModels::wait_destroyed(int count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return num_destroyed_ >= count; });
}

int FakeModels::num_loads() const {
  const std::lock_guard lock(mutex_);
  return num_loads_;
}

int FakeModels::num_alive() const {
  const std::lock_guard lock(mutex_);
  return num_loads_ - num_destroyed_;
}

FakeEngine& FakeModels::engine(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return *engines_.at(path);
}

void FakeModels::enter(const std::string& path, FakeEngine* engine) {
  const std::lock_guard lock(mutex_);
  engines_[path] = engine;
}

void FakeModels::leave(FakeEngine* engine) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(engines_, [&](const auto& each) { return each.second == engine; });
    ++num_destroyed_;
  }
  changed_.notify_all();
}

}  // namespace quire::test
