// ModelHost: what serves one model, from its file to its engine, in the order in which the parts need each other. One
// thread at a time, except what service() hands out. It outlives every Service it made.
#pragma once

#include <functional>
#include <memory>

#include "server/http/server_state.h"
#include "server/serve.h"

namespace quire {

// Thrown out of a model's loading when the server is told to end meanwhile.
struct Interrupted {};

class ModelHost {
 public:
  // Loads the model and starts its engine. Throws StartupError, and Interrupted once `stopping` says so.
  ModelHost(const ServeOptions& options, std::function<bool()> stopping);

  // The model under the names and with the chat template that the options give it. Throws StartupError.
  std::shared_ptr<const Service> service(const ModelOptions& options) const;
  // Takes over what can change while the engine runs: the queue's bounds and the keys' weights.
  void reconfigure(const EngineOptions& options) { engine_->reconfigure(options.queue, options.scheduler.key_weights); }
  StepTrace& step_trace() { return engine_->step_trace(); }
  // Ends the engine's thread: nothing is sent any more.
  void stop() { engine_->stop(); }

 private:
  std::shared_ptr<const ServedModel> describe(const ModelOptions& options) const;

  std::shared_ptr<const LoadedModel> loaded_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<const GrammarCompiler> grammar_compiler_;
  std::int64_t created_ = 0;  // Unix seconds
};

}  // namespace quire
