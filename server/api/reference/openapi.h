// The API as an OpenAPI 3.1 document, made from the reference's tables. Pure; any thread.
#pragma once

#include "server/api/common/json.h"
#include "server/api/reference/field_table.h"

namespace quire::reference {

Json openapi_document();
// The JSON schema (draft 2020-12) of a field's value; the row's example fits it unless the row is refused.
Json field_schema(const FieldRow& row);

}  // namespace quire::reference
