// The API as an OpenAPI 3.1 document, made from the reference's tables. Pure; any thread.
#pragma once

#include <string_view>

#include "server/api/common/json.h"
#include "server/api/reference/operation_table.h"

namespace quire::reference {

// Whether the build answers a method at a path of the tables.
using IsServed = bool (*)(std::string_view method, std::string_view path);
// The document has no operations that are not served.
Json openapi_document(IsServed is_served);
// The JSON schema (draft 2020-12) of a field's value; the row's example fits it unless the row is refused.
Json field_schema(const Field& row);

}  // namespace quire::reference
