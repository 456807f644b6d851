#include "core/grammar/compiler.h"

#include <new>
#include <utility>

#include "core/grammar/build_program.h"
#include "core/grammar/json_schema/lexicon.h"
#include "core/grammar/mask/compiled.h"
#include "core/grammar/mask/context.h"

namespace quire {

namespace {

// Everything that makes two specifications differ, unambiguously.
std::string key_of(const GrammarSpec& spec) {
  std::string key = std::to_string(static_cast<int>(spec.kind));
  const auto add = [&key](const std::string& part) { key += ":" + std::to_string(part.size()) + ":" + part; };
  add(spec.text);
  add(spec.root);
  for (const std::string& choice : spec.choices)
    add(choice);
  key += "|";
  for (const StructuralTag& tag : spec.tags) {
    add(tag.begin);
    add(tag.schema);
    add(tag.end);
  }
  key += "|";
  for (const std::string& trigger : spec.triggers)
    add(trigger);
  add(spec.separator);
  add(spec.prefix);
  add(spec.suffix);
  for (const bool flag : {spec.free_text, spec.required, spec.parallel})
    key += flag ? '1' : '0';
  return key;
}

}  // namespace

struct GrammarCompiler::Shared {
  using Entry = std::pair<std::string, std::shared_ptr<const Grammar>>;
  grammar::Lexicon lexicon;
  std::mutex mutex;
  std::list<Entry> recent;  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> known;
};

GrammarCompiler::GrammarCompiler(std::shared_ptr<const TokenVocabulary> vocabulary, GrammarLimits limits)
    : vocabulary_(std::move(vocabulary)), limits_(limits), shared_(std::make_unique<Shared>()) {
  // Almost every grammar has plain strings: what the vocabulary does inside them is worked out before anyone waits for
  // it.
  grammar::ByteLexer& plain =
      *shared_->lexicon.lexer(shared_->lexicon.any_text(), grammar::ByteLexer::Encoding::kJsonString);
  grammar::prepare_profile(plain, plain.start(), nullptr, *vocabulary_);
}

GrammarCompiler::~GrammarCompiler() = default;

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile(const GrammarSpec& spec) const try {
  const std::string key = key_of(spec);
  {
    const std::lock_guard lock(shared_->mutex);
    const auto found = shared_->known.find(key);
    if (found != shared_->known.end()) {
      shared_->recent.splice(shared_->recent.begin(), shared_->recent, found->second);
      return found->second->second;
    }
  }
  std::shared_ptr<const Grammar> grammar;
  try {
    grammar::Budget budget(limits_);
    auto program = std::make_shared<grammar::Program>();
    program->mutex = shared_->lexicon.runtime_mutex();
    grammar::build_program(spec, shared_->lexicon, budget, *program);
    grammar = grammar::make_grammar(std::move(program), vocabulary_);
  } catch (const grammar::Refusal& refusal) {
    return invalid(refusal.pointer.empty() ? refusal.what() : refusal.pointer + ": " + refusal.what(), refusal.pointer);
  }
  const std::lock_guard lock(shared_->mutex);
  if (shared_->known.contains(key)) return grammar;
  shared_->recent.emplace_front(key, grammar);
  shared_->known[key] = shared_->recent.begin();
  if (shared_->recent.size() > limits_.max_cached_grammars) {
    shared_->known.erase(shared_->recent.back().first);
    shared_->recent.pop_back();
  }
  return grammar;
} catch (const std::bad_alloc&) {
  return failure(ErrorKind::kNoMemory, "The grammar needs more memory than there is.", "out_of_memory");
}

}  // namespace quire
