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

// How a call writes its arguments.
struct ArgumentForm {
  enum class Kind {
    kJson,    // one JSON object
    kTagged,  // key_begin key key_end value_begin value value_end, for each argument; then call_end
    kBraced,  // {key: value, ...}: bare keys, strings between quotes of the form's own
    kPython,  // key=value, ...): literals of Python
    kXml,     // <key>value</key>, ..., mark before each tag; members and items as tags again; then call_end
  };
  Kind kind = Kind::kJson;
  std::string key_begin, key_end, value_begin, value_end, call_end;
  std::vector<std::string> ends;  // kTagged: what closes calls; not behind a value_end inside a value
  std::string attribute;          // kTagged: of a key that says what its value is, as `string="`; empty: keys have none
  std::string text_word;          // the attribute's word for text
  bool own_lines = false;         // kTagged: a line end at each side of a value is not the value's
  std::string quote;              // kBraced
  std::string mark;               // kXml
};

// Arguments as a rule that others call by its name: what its form makes of values of the schema.
struct ArgumentRule {
  std::string name;
  ArgumentForm form;
  std::string schema;  // JSON text
  bool exact = true;   // a keyword that the form cannot hold is refused; else it is left out
};

// One way to wrap constrained content in text: `begin` content `end`. The content is a JSON value, or, where rules are
// given, a text by these GBNF rules (from their rule "root"), which may call the specification's arguments.
struct StructuralTag {
  std::string begin;
  std::string schema;  // JSON text of the value's schema
  std::string end;
  std::string rules = {};
};

// A beginning of a text, as a regular expression, behind which the text has the form of GBNF rules.
struct TextOpening {
  std::string text;
  std::string rules;
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
  bool spaced = false;    // without free text: white space stands before and between tags, not `separator`
  // With free_text: a text that begins with a match of one of these, none of which begins another match, has behind
  // it, and to its end, the form of its rules. With opening_anywhere a match is one more trigger: it may stand
  // anywhere, and free text may follow what has the rules' form. Without free_text: they are tags like others.
  std::vector<TextOpening> openings;
  bool opening_anywhere = false;
  std::string separator;                // between tags where there is no free text
  std::vector<ArgumentRule> arguments;  // that rules call
  // Without free_text: the text may be one of this instead of tags, behind `answer_begin` or not.
  std::shared_ptr<const GrammarSpec> answer;
  std::string answer_begin;
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
