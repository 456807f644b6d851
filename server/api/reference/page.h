// The tables of server/API.md: the endpoints, and each table of fields below its heading. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "server/api/reference/operation_table.h"

namespace quire::reference {

// "## Completions: POST /v1/completions"
std::string heading(const FieldTable& table);
// The page with its tables generated again: the first table below the heading of each field table, and of "##
// Endpoints". The rest is unchanged, and so is a heading of fields that no table has.
std::string with_tables(std::string_view page);
std::string_view support_word(Support support);
// Values of a field in words: "number, 0 to 2".
std::string type_words(const FieldType& type);

}  // namespace quire::reference
