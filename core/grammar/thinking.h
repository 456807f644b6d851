// allow_thinking: a Grammar for texts with a reasoning section, as "<think>...</think>": what is demanded of the text
// begins after the section, and the section's length can be bounded. Any thread.
// Invariant: never fails open: while another grammar waits for its turn, the section ends with its marker only, at a
// token's border, and never with the end of the generation unless `may_end_text`.
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
  // The prompt has opened the section. Otherwise it begins where the text does, if the text begins with `begin`.
  bool is_open = false;
  std::optional<std::int32_t> max_tokens;  // of reasoning; then `end` is forced
  bool may_end_text = false;               // the generation may end inside it, whatever follows the section
};

// `rest` constrains the text after the section, and all of it where there is no section; null: it is free.
std::shared_ptr<const Grammar> allow_thinking(std::shared_ptr<const Tokenizer> tokenizer,
                                              const ThinkingSection& section, std::shared_ptr<const Grammar> rest);

}  // namespace quire
