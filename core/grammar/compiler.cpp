#include "core/grammar/compiler.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <new>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/grammar/build_program.h"
#include "core/grammar/json_schema/lexicon.h"
#include "core/grammar/mask/compiled.h"
#include "core/grammar/mask/context.h"

namespace quire {

namespace {

void add_part(std::string& key, const std::string& part) {
  key += ":" + std::to_string(part.size()) + ":" + part;
}

void add_calls(std::string& key, const TaggedCalls& calls) {
  key += calls.is_begun ? "b" : "c";
  key += calls.parallel ? "+" : "1";
  for (const std::string* part : {&calls.name_begin, &calls.name_end, &calls.key_begin, &calls.key_end,
                                  &calls.value_begin, &calls.value_end, &calls.call_end})
    add_part(key, *part);
  for (const std::string& name : calls.names)
    add_part(key, name);
}

// Everything that makes two specifications differ, unambiguously.
std::string key_of(const GrammarSpec& spec) {
  std::string key = std::to_string(static_cast<int>(spec.kind));
  const auto add = [&key](const std::string& part) { add_part(key, part); };
  add(spec.text);
  add(spec.root);
  for (const std::string& choice : spec.choices)
    add(choice);
  key += "|";
  for (const StructuralTag& tag : spec.tags) {
    add(tag.begin);
    add(tag.schema);
    add(tag.end);
    add(tag.rules);
    if (tag.calls) add_calls(key, *tag.calls);
  }
  key += "|";
  for (const std::string& trigger : spec.triggers)
    add(trigger);
  add(spec.separator);
  add(spec.prefix);
  add(spec.suffix);
  for (const bool flag : {spec.free_text, spec.required, spec.parallel, spec.stops, spec.compact})
    key += flag ? '1' : '0';
  return key;
}

}  // namespace

struct GrammarCompiler::Shared {
  using Outcome = Result<std::shared_ptr<const Grammar>>;

  // The outcomes used most recently, as many as fit the bounds. Requires `mutex`.
  class Recent {
   public:
    const Outcome* find(const std::string& key) {
      const auto found = known_.find(key);
      if (found == known_.end()) return nullptr;
      entries_.splice(entries_.begin(), entries_, found->second);
      return &found->second->outcome;
    }

    void add(const std::string& key, const Outcome& outcome, std::size_t num_steps, const GrammarLimits& limits) {
      if (known_.contains(key)) return;
      entries_.push_front({key, outcome, num_steps});
      known_[entries_.front().key] = entries_.begin();
      num_bytes_ += entries_.front().num_bytes();
      num_steps_ += num_steps;
      while (!entries_.empty() && (entries_.size() > limits.max_cached_grammars ||
                                   num_bytes_ > limits.max_cached_bytes || num_steps_ > limits.max_cached_steps)) {
        drop_last();
      }
    }

   private:
    struct Entry {
      std::string key;
      Outcome outcome;
      std::size_t num_steps;

      // A grammar is measured by its steps, a refusal by its text: it repeats names of the schema.
      std::size_t num_bytes() const {
        return key.size() + (outcome ? 0 : outcome.error().message.size() + outcome.error().param.size());
      }
    };

    void drop_last() {
      const Entry& last = entries_.back();
      num_bytes_ -= last.num_bytes();
      num_steps_ -= last.num_steps;
      known_.erase(last.key);
      entries_.pop_back();
    }

    std::list<Entry> entries_;  // most recently used first
    std::unordered_map<std::string_view, std::list<Entry>::iterator> known_;
    std::size_t num_bytes_ = 0;
    std::size_t num_steps_ = 0;
  };

  grammar::Lexicon lexicon;
  std::mutex mutex;
  Recent grammars;
  Recent refusals;  // apart: they push no grammar out
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

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile(const GrammarSpec& spec, const WorkLimit& limit) const
    try {
  const std::string key = key_of(spec);
  {
    const std::lock_guard lock(shared_->mutex);
    for (Shared::Recent* recent : {&shared_->grammars, &shared_->refusals}) {
      if (const Shared::Outcome* known = recent->find(key)) return *known;
    }
  }
  Shared::Outcome outcome;
  grammar::Budget budget(limits_, limit);
  try {
    auto program = std::make_shared<grammar::Program>();
    program->mutex = shared_->lexicon.runtime_mutex();
    const std::size_t max_spaces = std::min<std::size_t>(limits_.max_spaces, grammar::kMaxSpaces);
    program->max_spaces = static_cast<std::uint16_t>(spec.compact ? 0 : max_spaces);
    grammar::build_program(spec, shared_->lexicon, budget, *program);
    outcome = grammar::make_grammar(std::move(program), vocabulary_);
  } catch (const grammar::Interrupted& interrupted) {
    return failure(ErrorKind::kUnavailable, interrupted.what(), WorkLimit::kCode);
  } catch (const grammar::Refusal& refusal) {
    outcome =
        invalid(refusal.pointer.empty() ? refusal.what() : refusal.pointer + ": " + refusal.what(), refusal.pointer);
  }
  const std::lock_guard lock(shared_->mutex);
  if (outcome) {
    shared_->grammars.add(key, outcome, budget.spent(), limits_);
  } else {
    shared_->refusals.add(key, outcome, 0, limits_);
  }
  return outcome;
} catch (const std::bad_alloc&) {
  return failure(ErrorKind::kNoMemory, "The grammar needs more memory than there is.", "out_of_memory");
}

}  // namespace quire
