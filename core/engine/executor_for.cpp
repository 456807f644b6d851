#include <utility>

#include "core/engine/cpu_executor.h"

namespace quire {

std::unique_ptr<Executor> executor_for(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage,
                                       const SchedulerOptions& scheduler, std::int64_t num_states) {
  return make_cpu_executor(model, backend, std::move(storage), scheduler, num_states);
}

}  // namespace quire
