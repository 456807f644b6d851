// peek_model: the model that a body will turn out to ask, found without parsing all of it. Any thread.
#pragma once

#include <string_view>

#include "server/api/common/model_table.h"

namespace quire {

// Null where that is not known before the body is parsed.
const TableEntry* peek_model(const ModelTable& models, std::string_view body);

}  // namespace quire
