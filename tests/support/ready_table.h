// ready_table: a table of one model that is ready, for tests without LiveModels. Any thread.
#pragma once

#include <memory>
#include <utility>

#include "server/api/common/model_table.h"

namespace quire::test {

inline ModelTable ready_table(std::shared_ptr<const ServedModel> model) {
  TableEntry entry;
  entry.name = model->name;
  entry.aliases = model->aliases;
  entry.created = model->created;
  entry.info = model->info;
  entry.max_model_len = model->max_model_len;
  entry.served = std::move(model);
  return ModelTable({std::move(entry)});
}

}  // namespace quire::test
