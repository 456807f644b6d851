#include "tests/server/fake_models.h"

namespace quire::test {

class FakeModels::Running final : public RunningModel {
 public:
  Running(FakeModels& models, const std::string& path) : models_(models), path_(path), engine_(says_name(path)) {
    models_.enter(path_, &engine_);
  }
  ~Running() override {
    engine_.stop();
    models_.leave(&engine_);
  }
  std::shared_ptr<ServedModel> describe(const HostedModelSpec& spec) const override {
    if (spec.model.tool_format == "unknown") throw StartupError("model.tool_format: there is no format 'unknown'");
    auto served = fake_model(const_cast<FakeEngine&>(engine_).queue());
    served->name = spec.name;
    served->aliases = spec.aliases;
    return served;
  }
  RequestQueue& queue() override { return engine_.queue(); }
  EngineStats stats() const override { return {}; }
  bool healthy() const override { return true; }
  StepTrace* step_trace() override { return &trace_; }
  void reconfigure(const EngineOptions& options) override {
    engine_.queue().reconfigure(options.queue, options.scheduler.key_weights);
  }
  void stop() override { engine_.stop(); }

 private:
  static FakeEngine::Script says_name(const std::string& path) {
    return [path](const Request& request, std::int32_t) {
      std::vector<TokenId> tokens;
      while (tokens.size() <= static_cast<std::size_t>(request.sampling.max_tokens)) {
        for (const TokenId token : bytes(path))
          tokens.push_back(token);
      }
      return tokens;
    };
  }

  FakeModels& models_;
  const std::string path_;
  FakeEngine engine_;
  StepTrace trace_;
};

class FakeModels::Opened final : public OpenedModel {
 public:
  Opened(FakeModels& models, std::string path) : models_(models), path_(std::move(path)) {}
  MemoryNeeds needs() const override {
    return {.weight_bytes = models_.weight_bytes,
            .activation_bytes = kMegabyte,
            .kv_block_bytes = kMegabyte,
            .useful_kv_tokens = 16 * 4096};
  }
  std::unique_ptr<RunningModel> start(const MemoryPlan&, const std::function<bool()>& interrupted) override {
    std::unique_lock lock(models_.mutex_);
    ++models_.num_begun_;
    models_.changed_.notify_all();
    // As often as a loader has done another tensor.
    while (models_.held_ && !interrupted())
      models_.changed_.wait_for(lock, std::chrono::milliseconds(1));
    if (interrupted()) throw Interrupted{};
    if (path_ == "broken") throw StartupError("broken: a tensor is cut off");
    ++models_.num_loads_;
    lock.unlock();
    return std::make_unique<Running>(models_, path_);
  }

 private:
  FakeModels& models_;
  std::string path_;
};

ModelOpener FakeModels::opener() {
  return [this](const HostedModelSpec& spec) -> std::unique_ptr<OpenedModel> {
    const std::string path = spec.model.path.string();
    if (path == "missing") throw StartupError("missing: there is no such file");
    return std::make_unique<Opened>(*this, path);
  };
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
