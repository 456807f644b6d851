// peek_model: finds the model that a body names, without parsing all of it. Any thread.
#pragma once

#include <string_view>

#include "server/api/common/model_table.h"

namespace quire {

// Null if the answer needs a parse of the whole body.
const TableEntry* peek_model(const ModelTable& models, std::string_view body);

}  // namespace quire
