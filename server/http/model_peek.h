// peek_model: finds the model that a body names, without parsing all of it. Any thread.
#pragma once

#include <string_view>

#include "server/api/common/model_table.h"

namespace quire {

// Null where only parsing the whole body can tell.
const TableEntry* peek_model(const ModelTable& models, std::string_view body);

}  // namespace quire
