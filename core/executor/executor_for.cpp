#include <utility>

#include "core/executor/cpu_executor.h"
#include "core/executor/device_executor.h"

namespace quire {

std::unique_ptr<Executor> executor_for(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage,
                                       const SchedulerOptions& scheduler, const KvCounts& counts) {
  if (backend.steps() == nullptr) return make_cpu_executor(model, backend, std::move(storage), scheduler, counts);
  const ExecutorLimits limits = executor_limits(model, *storage, scheduler);
  return std::make_unique<DeviceExecutor>(
      model, backend, executor_memory(model, backend, std::move(storage), scheduler, counts), limits);
}

}  // namespace quire
