// Expander::located: runs a piece of work and adds the keyword's pointer to its Refusal if it has none yet.
#pragma once

#include <string>
#include <utility>

#include "core/grammar/json_schema/expander.h"

namespace quire::grammar {

template <class F>
auto Expander::located(const Json& schema, const std::string& keyword, F run) const {
  try {
    return run();
  } catch (const Refusal& refusal) {
    if (!refusal.pointer.empty()) throw;
    throw Refusal(refusal.what(), document_.pointer(schema) + "/" + keyword);
  }
}

}  // namespace quire::grammar
