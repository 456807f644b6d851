// What quire-deferred is linked with instead of core/engine/executor_for.cpp: a device that completes late, with two
// steps in flight. QUIRE_DEFERRED_SEED: another order of completion. QUIRE_DEFERRED_DEPTH: 1 for one step in flight.
#include <cstdlib>
#include <utility>

#include "core/engine/cpu_executor.h"
#include "tests/support/deferred_executor.h"

namespace quire {

std::unique_ptr<Executor> executor_for(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage,
                                       const SchedulerOptions& scheduler, const KvCounts& counts) {
  const auto number = [](const char* name, int otherwise) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::atoi(text) : otherwise;
  };
  return std::make_unique<test::DeferredExecutor>(
      make_cpu_executor(model, backend, std::move(storage), scheduler, counts),
      static_cast<std::uint32_t>(number("QUIRE_DEFERRED_SEED", 1)), number("QUIRE_DEFERRED_DEPTH", 2));
}

}  // namespace quire
