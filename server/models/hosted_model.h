// HostedModel: one model of the process, loaded or not: what an operator wants of it, its state, its engine while it
// runs, and the calls that wait for its operation. ModelOutcome: what one step of an operation leaves to be done
// without LiveModels' mutex. Values: for the thread that holds this mutex.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "server/api/common/model_table.h"
#include "server/models/model_loader.h"
#include "server/models/model_report.h"

namespace quire {

// Called when an operation ends, with the error if it failed.
using ModelDone = std::function<void(std::optional<Error> error)>;

// Callbacks to call and models to release after the mutex is unlocked, by the destructor.
struct ModelOutcome {
  std::vector<std::pair<ModelDone, std::optional<Error>>> reports;
  std::vector<std::shared_ptr<RunningModel>> dropped;
  ~ModelOutcome();
  void report(ModelDone done, std::optional<Error> error = std::nullopt);
  void report(std::vector<ModelDone>& all, const std::optional<Error>& error = std::nullopt);
};

struct HostedModel {
  // The next state of a draining model.
  enum class After { kSleep, kUnload, kLoad };

  HostedModelSpec spec;
  ModelState state = ModelState::kSleeping;
  std::int64_t created = 0;
  std::string failure;
  std::optional<Clock::time_point> failed_at;
  std::shared_ptr<RunningModel> running;      // null: not ready
  std::shared_ptr<const ServedModel> served;  // the API's view of `running`; null: not ready
  std::optional<ModelFacts> info;
  std::int64_t max_model_len = 0;
  std::uint64_t promised = 0;                // bytes, while it runs
  std::uint64_t promised_on_host = 0;        // beside a GPU
  std::stop_source loading;                  // stops the load or replacement under way
  bool begun = false;                        // the load runs on the thread `models`; false: it waits for that thread
  bool replacing = false;                    // its replacement is being loaded meanwhile
  double canary_share = 0.0;                 // the share of its conversations that its canary gets
  const RunningModel* draining = nullptr;    // only compared, never dereferenced
  const RunningModel* makes_room = nullptr;  // model whose released memory lets the load resume
  After after = After::kSleep;
  std::optional<HostedModelSpec> fallback;       // state before a replacement in place
  std::vector<ModelDone> callers;                // callbacks of the operation under way
  std::vector<ModelDone> waiting;                // requests, and callers of wake(), that wait until it is ready
  std::shared_ptr<RequestQueue> waiting_places;  // limits the requests in `waiting`; holds no request itself
  std::uint64_t last_steps = 0;
  Clock::time_point active_at{};

  explicit HostedModel(HostedModelSpec wanted);

  bool is_loading() const { return state == ModelState::kLoading || state == ModelState::kWaking; }
  bool is_busy() const;      // an operation is under way that excludes others
  bool can_give_up() const;  // the operation can be cancelled: a load, or leading to one
  // Returns whether it may release its memory: it is unused, and served the request it was loaded for.
  bool is_idle(Clock::time_point now);
  // Notes when it last had work.
  void note_work(Clock::time_point now);
  // Makes it ready with the model that was loaded.
  void put(BroughtUp loaded);
  // Applies the settings that a reload may change, and keeps the memory that the plan gave. `view`: of the running
  // model; null: it does not run.
  void take_over(const HostedModelSpec& wanted, std::shared_ptr<ServedModel> view);
  TableEntry row() const;
  ModelReport report() const;
  Error not_loaded() const;                         // the error for requests
  bool failed_lately(Clock::time_point now) const;  // too lately for another try
};

}  // namespace quire
