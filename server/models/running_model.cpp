#include "server/models/running_model.h"

#include <utility>

namespace quire {

ModelFacts facts_of(const ModelInfo& info) {
  return {.architecture = info.architecture,
          .name = info.name,
          .file_type = info.file_type,
          .num_parameters = info.num_parameters,
          .file_bytes = info.file_bytes,
          .vocab_size = info.vocab_size,
          .hidden_size = info.hidden_size,
          .pooling = info.pooling,
          .is_causal = info.is_causal,
          .has_head = info.has_head,
          .has_next_tokens = info.has_next_tokens};
}

std::function<std::optional<TakenAdapter>(const std::string& name)> adapter_taker(std::shared_ptr<AdapterPool> pool) {
  if (pool == nullptr) return nullptr;
  return [pool = std::move(pool)](const std::string& name) -> std::optional<TakenAdapter> {
    auto taken = pool->take(name);
    if (!taken) return std::nullopt;
    TakenAdapter adapter{std::move(taken->adapter), nullptr};
    if (taken->wait != nullptr) {
      adapter.wait = [wait = std::move(taken->wait)](AdapterWait::Done done) { wait->begin(std::move(done)); };
    }
    return adapter;
  };
}

}  // namespace quire
