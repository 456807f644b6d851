#include <utility>

#include "core/engine/cpu_executor.h"

namespace quire {

std::unique_ptr<Executor> executor_for(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage,
                                       const SchedulerOptions& scheduler, const KvCounts& counts) {
  return make_cpu_executor(model, backend, std::move(storage), scheduler, counts);
}

}  // namespace quire
