#include "server/api/constraints.h"

namespace quire {

std::shared_ptr<const Grammar> read_constraint(FieldReader& reader, const ServedModel&) {
  if (const Json* format = reader.object("response_format")) {
    FieldReader inner(*format, "response_format.");
    const auto type = inner.word("type", {"text", "json_object", "json_schema"});
    if (inner.error()) {
      reader.fail("response_format", inner.error()->message);
    } else if (type != "text") {
      reader.refuse("response_format", "this build has no constrained decoding");
    }
  }
  for (const char* name : {"structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
                           "guided_json_object", "grammar", "json_schema"}) {
    reader.refuse(name, "this build has no constrained decoding");
  }
  return nullptr;
}

}  // namespace quire
