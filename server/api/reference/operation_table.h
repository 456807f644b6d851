// The operations of the API as data, with the tables of their fields (server/api/fields). /openapi.json and the tables
// of server/API.md are made from it. Immutable; any thread.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "server/api/fields/field.h"

namespace quire::reference {

using fields::Field;
using fields::FieldTable;
using fields::FieldType;
using fields::Kind;
using fields::Support;

enum class Audience { kOpen, kKey, kMetrics, kAdmin };
// kText: no JSON. kEvents: an object, or server-sent events where `stream` is true. kLines: Ollama's lines of JSON.
enum class AnswerForm { kJson, kEvents, kLines, kList, kText };
enum class ErrorShape { kOpenAi, kAnthropic, kOllama };

struct OperationRow {
  std::string_view method;
  std::string_view paths;  // divided by ", "; the first is the one to use, the others do the same
  std::string_view text;
  std::string_view tag;
  std::span<const FieldTable* const> body = {};  // the first table's row of a name counts; empty: no body
  std::string_view required = {};                // fields of the body, divided by ", "
  AnswerForm answer = AnswerForm::kJson;
  std::string_view members = {};  // fields of every answer, divided by ", "
  std::string_view query = {};    // parameters, divided by ", "
  Audience audience = Audience::kKey;
  ErrorShape errors = ErrorShape::kOpenAi;
};

std::vector<OperationRow> operations();

extern const std::span<const OperationRow> kServerOperations;  // about the server itself

}  // namespace quire::reference
