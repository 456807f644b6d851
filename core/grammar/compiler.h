// GrammarCompiler: compiles a client's constraint on the text into a Grammar for one vocabulary. Any thread. Invariant:
// never fails open: what cannot be enforced is refused, with the JSON pointer of the keyword at fault. Compiled
// grammars are kept by content and shared; compiling is meant for a text thread, never for the engine's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/grammar/grammar.h"
#include "core/grammar/limits.h"
#include "core/grammar/mask/vocabulary.h"

namespace quire {

// Calls whose arguments stand in tags, as some models write them: name_begin name name_end, for each argument key_begin
// key key_end value_begin text value_end, then call_end; white space in between.
struct TaggedCalls {
  std::vector<std::string> names;
  std::string name_begin, name_end, key_begin, key_end, value_begin, value_end, call_end;
  bool is_begun = false;  // the tag's `begin` was the name_begin of the only call
  bool parallel = true;   // else: more than one call
};

// One way to wrap constrained content in text: `begin` content `end`. The content is a JSON value, or, where one of
// these is given, calls in tags or a text by GBNF rules (from their rule "root").
struct StructuralTag {
  std::string begin;
  std::string schema;  // JSON text of the value's schema
  std::string end;
  std::optional<TaggedCalls> calls = {};
  std::string rules = {};
};

struct GrammarSpec {
  enum class Kind { kJsonSchema, kJsonObject, kRegex, kEbnf, kGbnf, kChoice, kStructural };
  Kind kind = Kind::kJsonObject;
  std::string text;                  // kJsonSchema: the schema's JSON text; kRegex, kEbnf, kGbnf: their source
  std::string root = "root";         // kEbnf, kGbnf: the rule to begin with
  std::vector<std::string> choices;  // kChoice: exactly one of these texts
  bool compact = false;              // no whitespace between the tokens of JSON

  // kStructural: text in which tagged values stand, as tool calls do. Free text may stand before, between and after
  // them where `free_text` is set; it ends at the first of `triggers`, each of which begins some tag's `begin`.
  std::vector<StructuralTag> tags;
  std::vector<std::string> triggers;
  bool free_text = true;
  bool required = false;  // at least one tag
  bool parallel = true;   // more than one tag allowed
  bool stops = false;     // the text ends with its first tag; with free_text
  // With free_text: a text that begins with a match of this regular expression, none of which begins another, has
  // behind it, and to its end, the form of these GBNF rules. Empty: there is no such beginning. With opening_anywhere a
  // match is one more trigger: it may stand anywhere, and free text may follow what has the rules' form.
  std::string opening;
  std::string opening_rules;
  bool opening_anywhere = false;
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
