// The pages made from the reference's tables: the API as an OpenAPI 3.1 document, and the tables of server/API.md. Pure
// functions; any thread.
#pragma once

#include <string>
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

// "## Completions: POST /v1/completions"
std::string heading(const FieldTable& table);
// The page with its tables generated again: the first table below the heading of each field table, and of "##
// Endpoints". The rest is unchanged, and so is a heading of fields that no table has.
std::string with_tables(std::string_view page);
std::string_view support_word(Support support);
// Values of a field in words: "number, 0 to 2".
std::string type_words(const FieldType& type);

}  // namespace quire::reference
