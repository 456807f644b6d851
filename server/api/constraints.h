// What a request demands of the shape of its text (response_format, structured_outputs, guided_*, grammar), compiled
// for the model's vocabulary. Pure function; any thread.
#pragma once

#include <memory>

#include "core/grammar/grammar.h"
#include "server/api/field_reader.h"
#include "server/api/served_model.h"

namespace quire {

// Null where the request leaves its text free. Errors stay in the reader.
std::shared_ptr<const Grammar> read_constraint(FieldReader& reader, const ServedModel& model);

}  // namespace quire
