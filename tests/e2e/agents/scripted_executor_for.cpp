// quire-scripted links this file instead of core/executor/executor_for.cpp. Its device generates the texts in the file
// QUIRE_SCRIPT, [{"after","say"}], as tokens of the model QUIRE_MODEL.
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "core/executor/cpu_executor.h"
#include "core/model/layers/loaded_model.h"
#include "tests/support/scripted_executor.h"

namespace quire {

std::unique_ptr<Executor> executor_for(Model& model, Backend& backend, std::unique_ptr<KvStorage> storage,
                                       const SchedulerOptions& scheduler, const KvCounts& counts) {
  const char* const path = std::getenv("QUIRE_SCRIPT");
  const char* const text_model = std::getenv("QUIRE_MODEL");
  if (path == nullptr || text_model == nullptr) throw std::runtime_error("QUIRE_SCRIPT and QUIRE_MODEL are not set");
  std::ifstream file(path);
  std::vector<test::ScriptLine> script;
  for (const auto& line : nlohmann::json::parse(file))
    script.push_back({line.at("after").get<std::string>(), line.at("say").get<std::string>()});
  return std::make_unique<test::ScriptedExecutor>(
      make_cpu_executor(model, backend, std::move(storage), scheduler, counts), open_model(text_model)->tokenizer(),
      std::move(script));
}

}  // namespace quire
