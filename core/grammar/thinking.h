// allow_thinking: a Grammar for texts with a reasoning section, such as "<think>...</think>": constraints on the text
// begin after the section, and the section's length can be bounded. Any thread. Invariant: never fails open: if another
// grammar follows, the section ends with its marker only, between two tokens, and never with the end of the generation
// unless `may_end_text`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/grammar/grammar.h"
#include "core/text/tokenizer.h"

namespace quire {

struct ThinkingSection {
  std::string begin;  // "<think>"
  std::string end;    // "</think>"; not empty
  // True if the prompt has opened the section. Else it begins with the text, if the text begins with `begin`.
  bool is_open = false;
  std::optional<std::int32_t> max_tokens;  // limit of reasoning tokens; `end` is then forced
  bool may_end_text = false;               // the generation may end inside it, even if a grammar follows
};

// `rest` constrains the text after the section, or all of it if there is no section; null: free text.
std::shared_ptr<const Grammar> allow_thinking(std::shared_ptr<const Tokenizer> tokenizer,
                                              const ThinkingSection& section, std::shared_ptr<const Grammar> rest);

}  // namespace quire
