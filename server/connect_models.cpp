#include "server/connect_models.h"

#include "server/ops/keys/admin.h"

namespace quire {

void connect_models(ServerState& state, LiveModels& models) {
  state.waker.wake = [&models](const std::string& name, const std::string& key_name, std::int64_t body_bytes,
                               ModelWaker::Done done) { models.wake_for(name, key_name, body_bytes, std::move(done)); };
  state.admin.models = [&models] { return models.report(); };
  state.admin.order = [&models](const ModelOrder& order, LiveModels::Done done) {
    const std::string& name = order.model.name;
    switch (order.what) {
      case ModelOrder::What::kLoad: return models.load(order.model, std::move(done));
      case ModelOrder::What::kUnload: return models.unload(name, std::move(done));
      case ModelOrder::What::kSleep: return models.sleep(name, std::move(done));
      case ModelOrder::What::kWake: return models.wake(name, std::move(done));
      case ModelOrder::What::kReplace:
        if (order.share) return models.split(name, order.model.model.path, *order.share, std::move(done));
        return models.replace(name, order.model.model.path, order.in_place, std::move(done));
    }
  };
  state.admin.order_adapter = [&models](const AdapterOrder& order, LiveModels::Done done) {
    if (order.unloads) return models.unload_adapter(order.adapter.name, std::move(done));
    models.load_adapter(order.model, order.adapter, order.in_place, std::move(done));
  };
  state.waker.longest_wait = [&models](const std::string& name) { return models.longest_wait(name); };
}

}  // namespace quire
