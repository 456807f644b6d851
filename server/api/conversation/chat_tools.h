// A chat's tools: the tools that the request offers, the constraint that makes the model call them, and the reader of
// its calls. Any thread.
#pragma once

#include <memory>

#include "core/text/tools/output_parser.h"
#include "server/api/common/field_reader.h"
#include "server/api/common/served_model.h"
#include "server/api/generation/constraints.h"

namespace quire {

struct ToolFields {
  enum class Choice { kNone, kAuto, kRequired };
  Json tools;  // checked and unchanged; null if no call is allowed
  Choice choice = Choice::kAuto;
  bool parallel = true;
  bool constrained = false;   // some calls must fit their schemas: required, named, or a strict tool's
  bool as_functions = false;  // requested by `functions` and `function_call`
  bool offered() const { return !tools.is_null(); }
};

// Reads tools, tool_choice and parallel_tool_calls, or their first form; a named choice leaves that tool only. Errors
// stay in the reader.
ToolFields read_tool_fields(FieldReader& reader);
// Reads those of `chat`, which were made from another form; errors name its tool i by paths[i].
ToolFields read_translated_tools(FieldReader& reader, const Json& chat, const std::vector<std::string>& paths);

// The format of calls: the model's own, or JSON if they are constrained and it has none.
const ToolFormat& call_format(const ServedModel& model, const ToolFields& fields);

// The grammar that holds constrained calls to their tools' schemas and any other call, once begun, to a form that
// parses; null if calls are free. `answer`: the constraint of a text without calls; null: none.
std::shared_ptr<const Grammar> tool_constraint(FieldReader& reader, const ServedModel& model, const ToolFields& fields,
                                               const TextConstraint* answer);

}  // namespace quire
