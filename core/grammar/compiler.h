// GrammarCompiler: compiles a client's constraint on the text into a Grammar for one vocabulary. Any thread. Invariant:
// never fails open: a keyword that cannot be enforced is refused with its JSON pointer. Compiled grammars are kept by
// content and shared; compile on a text thread, never on the engine's.
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

// Form in which a call writes its arguments.
struct ArgumentForm {
  enum class Kind {
    kJson,    // a JSON object
    kTagged,  // key_begin key key_end value_begin value value_end, for each argument; then call_end
    kBraced,  // {key: value, ...}: bare keys, strings between quotes of the form's own
    kPython,  // key=value, ...): Python's literals
    kXml,     // <key>value</key>, ..., mark before each tag; members and items are tags again; then call_end
  };
  Kind kind = Kind::kJson;
  std::string key_begin, key_end, value_begin, value_end, call_end;
  std::vector<std::string> ends;  // kTagged: texts that close calls, except after a value_end inside a value
  std::string attribute;  // kTagged: attribute of keys with the value's type, such as `string="`; empty: keys have none
  std::string text_word;  // the attribute's word for text
  bool own_lines = false;  // kTagged: a line end on each side of a value does not belong to it
  std::string quote;       // kBraced
  std::string mark;        // kXml
};

// Arguments as a rule that other rules call by its name: the form's text of the schema's values.
struct ArgumentRule {
  std::string name;
  ArgumentForm form;
  std::string schema;  // JSON text
  bool exact = true;   // a keyword that the form cannot enforce is refused; else it is ignored
};

// Constrained content wrapped in text: `begin` content `end`. The content is a JSON value or, if rules are given, a
// text by these GBNF rules (from their rule "root"), which may call the specification's arguments.
struct StructuralTag {
  std::string begin;
  std::string schema;  // JSON text of the value's schema
  std::string end;
  std::string rules = {};
};

// A beginning of a text, as a regular expression; the text after it has the form of GBNF rules.
struct TextOpening {
  std::string text;
  std::string rules;
};

struct GrammarSpec {
  enum class Kind { kJsonSchema, kJsonObject, kRegex, kEbnf, kGbnf, kChoice, kStructural };
  Kind kind = Kind::kJsonObject;
  std::string text;                  // kJsonSchema: the schema's JSON text; kRegex, kEbnf, kGbnf: their source
  std::string root = "root";         // kEbnf, kGbnf: the first rule
  std::vector<std::string> choices;  // kChoice: exactly one of these texts
  bool compact = false;              // no whitespace between JSON tokens

  // kStructural: text that contains tagged values, such as tool calls. If `free_text` is set, free text may stand
  // before, between and after them; it ends at the first of `triggers`, each of which begins some tag's `begin`.
  std::vector<StructuralTag> tags;
  std::vector<std::string> triggers;
  bool free_text = true;
  bool required = false;  // at least one tag
  bool parallel = true;   // several tags are allowed
  bool stops = false;     // the text ends with its first tag; with free_text
  bool spaced = false;    // without free text: white space before and between tags, in place of `separator`
  // With free_text: a text that begins with a match of one of these (no match begins another) continues, up to its end,
  // in the form of its rules. With opening_anywhere a match is a trigger like others: it may stand anywhere, and free
  // text may follow its rules' text. Without free_text: they are tags like others.
  std::vector<TextOpening> openings;
  bool opening_anywhere = false;
  std::string separator;                // text between tags, without free text
  std::vector<ArgumentRule> arguments;  // arguments that rules call
  // Without free_text: the text may be this answer instead of tags, after `answer_begin` or without it.
  std::shared_ptr<const GrammarSpec> answer;
  std::string answer_begin;
};

// Memory of a compiler's grammars, besides that of the requests that follow them.
struct GrammarMemory {
  std::size_t num_bytes = 0;           // tables of cached and used grammars
  std::size_t num_prepared_bytes = 0;  // masks prepared for them during generation
};

class GrammarCompiler {
 public:
  explicit GrammarCompiler(std::shared_ptr<const TokenVocabulary> vocabulary, GrammarLimits limits = {});
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // Errors: kInvalidRequest; param is the JSON pointer of the keyword that cannot be enforced ("#/properties/a/not"),
  // if there is one. A grammar that no text satisfies is refused too. If `limit` is reached first, the code is
  // WorkLimit::kCode; other refusals are cached like grammars. If grammars in use take all the memory, kRateLimited for
  // the client's own share, else kUnavailable.
  Result<std::shared_ptr<const Grammar>> compile(const GrammarSpec& spec, const WorkLimit& limit = {}) const;
  const TokenVocabulary& vocabulary() const { return *vocabulary_; }
  GrammarMemory memory() const;

 private:
  class Memory;
  struct Shared;  // lexers shared by the grammars, and the cached grammars
  struct Lease;
  Result<void> extend(Lease& lease, std::size_t num_bytes) const;
  std::shared_ptr<const TokenVocabulary> vocabulary_;
  GrammarLimits limits_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace quire
