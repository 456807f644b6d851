// quire-deferred links this file instead of core/executor/executor_for.cpp. Its device completes late, with two steps
// in flight. QUIRE_DEFERRED_SEED: another order of completion.
#include <cstdlib>
#include <utility>

#include "core/executor/cpu_executor.h"
#include "tests/support/deferred_executor.h"

namespace quire {

std::unique_ptr<Executor> executor_for(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage,
                                       const SchedulerOptions& scheduler, const KvCounts& counts) {
  const char* const seed = std::getenv("QUIRE_DEFERRED_SEED");
  return std::make_unique<test::DeferredExecutor>(
      make_cpu_executor(model, backend, std::move(storage), scheduler, counts),
      seed == nullptr ? 1U : static_cast<std::uint32_t>(std::atoi(seed)));
}

}  // namespace quire
