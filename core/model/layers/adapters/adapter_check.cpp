#include "core/model/layers/adapters/adapter_check.h"

#include "core/base/result.h"
#include "core/model/layers/adapters/read_adapter.h"
#include "core/model/layers/checkpoint.h"

namespace quire {

void require_adapters(const Backend& backend) {
  if (!backend.has(Ability::kAdapters))
    throw StartupError(backend.name() + " does not compute adapters: set backend.device to cpu");
}

void check_adapter(const std::filesystem::path& adapter, const std::filesystem::path& model, Backend& backend,
                   std::int64_t max_rank) {
  require_adapters(backend);
  std::error_code ignored;
  const bool is_directory = std::filesystem::is_directory(model, ignored);
  const Checkpoint checkpoint = is_directory ? read_hf_checkpoint(model, false) : read_gguf_checkpoint(model, false);
  read_adapter(adapter, checkpoint.spec, backend, max_rank);
}

}  // namespace quire
