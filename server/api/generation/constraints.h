// The constraints of a request on its text (response_format, structured_outputs, guided_*, grammar), compiled for the
// model's vocabulary. Pure functions; any thread; meant for text threads, because compiling takes time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/grammar/compiler.h"
#include "server/api/common/field_reader.h"
#include "server/api/common/served_model.h"

namespace quire {

// A constraint on a text: the request's field, its specification, and the compiled grammar.
struct TextConstraint {
  std::string field;
  GrammarSpec spec;
  std::shared_ptr<const Grammar> grammar;
};

// Null where the request leaves its text free. Errors stay in the reader.
std::shared_ptr<const TextConstraint> read_constraint(FieldReader& reader, const ServedModel& model);

// Compiles a constraint that `field` holds; if some of it cannot be enforced, the error names the field and the JSON
// pointer in it.
std::shared_ptr<const TextConstraint> compile_constraint(FieldReader& reader, const ServedModel& model,
                                                         const std::string& field, GrammarSpec spec);

// A structural tag: text that is free until a trigger, then a tagged JSON value, as {"structures","triggers"} or as
// {"format"}, the form of vLLM and SGLang that replaced it. nullopt: the text is free, or there is an error in the
// reader.
std::optional<GrammarSpec> read_structural_tag(FieldReader& tag);

}  // namespace quire
