// GrammarCompiler: turns what a client asks of a generation's text into a Grammar for one vocabulary. Any thread.
// Invariant: never fails open: what cannot be enforced is refused, with the JSON pointer of the keyword at fault.
// Compiled grammars are kept by content and shared; compiling is meant for a text thread, never for the engine's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/grammar/grammar.h"
#include "core/grammar/limits.h"
#include "core/grammar/mask/vocabulary.h"

namespace quire {

// One way to wrap a constrained JSON value in text: `begin` value `end`.
struct StructuralTag {
  std::string begin;
  std::string schema;  // JSON text of the value's schema
  std::string end;
};

struct GrammarSpec {
  enum class Kind { kJsonSchema, kJsonObject, kRegex, kEbnf, kGbnf, kChoice, kStructural };
  Kind kind = Kind::kJsonObject;
  std::string text;                  // kJsonSchema: the schema's JSON text; kRegex, kEbnf, kGbnf: their source
  std::string root = "root";         // kEbnf, kGbnf: the rule to begin with
  std::vector<std::string> choices;  // kChoice: exactly one of these texts

  // kStructural: text in which tagged values stand, as tool calls do. Free text may stand before, between and after
  // them where `free_text` is set; it ends at the first of `triggers`, each of which begins some tag's `begin`.
  std::vector<StructuralTag> tags;
  std::vector<std::string> triggers;
  bool free_text = true;
  bool required = false;  // at least one tag
  bool parallel = true;   // more than one tag allowed
  bool stops = false;     // the text ends with its first tag; with free_text
  std::string separator;  // between tags where there is no free text
  std::string prefix;     // before the first tag and
  std::string suffix;     // after the last one, where there is no free text
};

// What a compiler's grammars take beside the requests that follow them.
struct GrammarMemory {
  std::size_t num_bytes = 0;           // tables of those that are kept or in use
  std::size_t num_prepared_bytes = 0;  // what was prepared for them as texts were followed
};

class GrammarCompiler {
 public:
  explicit GrammarCompiler(std::shared_ptr<const TokenVocabulary> vocabulary, GrammarLimits limits = {});
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Errors: kInvalidRequest; param is the JSON pointer of the keyword that cannot be enforced ("#/properties/a/not"),
  // where there is one. A grammar that no text satisfies is refused too. Where `limit` is reached first, the code is
  // WorkLimit::kCode; any other refusal of a grammar is kept as grammars are. Where the grammars in use take all the
  // memory, the client's own kRateLimited, else all of them kUnavailable.
  Result<std::shared_ptr<const Grammar>> compile(const GrammarSpec& spec, const WorkLimit& limit = {}) const;
  const TokenVocabulary& vocabulary() const { return *vocabulary_; }
  GrammarMemory memory() const;

 private:
  class Memory;
  struct Shared;  // lexers that grammars have in common, and the compiled grammars
  struct Lease;
  Result<void> extend(Lease& lease, std::size_t num_bytes) const;
  std::shared_ptr<const TokenVocabulary> vocabulary_;
  GrammarLimits limits_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace quire
