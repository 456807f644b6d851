// Lexicon: automata and lexers that many grammars share (patterns, formats, numbers), with the masks prepared for them.
// Any thread; the lexers it hands out are read under runtime_mutex().
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "core/grammar/machine/byte_lexer.h"
#include "core/grammar/regex/dfa.h"

namespace quire::grammar {

class Lexicon {
 public:
  Lexicon();
  // The automaton of that name, made on first use (outside the lock: making may take long or throw Refusal).
  DfaPtr dfa(const std::string& name, const std::function<DfaPtr()>& make);
  // The lexer over an automaton that this lexicon keeps, or a fresh one for another.
  LexerPtr lexer(const DfaPtr& dfa, ByteLexer::Encoding encoding);
  const DfaPtr& any_text() const { return any_text_; }
  const std::shared_ptr<std::mutex>& runtime_mutex() const { return runtime_mutex_; }

 private:
  struct Entry {
    DfaPtr dfa;
    LexerPtr lexers[2];  // by encoding
  };
  std::mutex mutex_;
  std::shared_ptr<std::mutex> runtime_mutex_ = std::make_shared<std::mutex>();
  DfaPtr any_text_;
  std::unordered_map<std::string, DfaPtr> named_;
  std::size_t num_bytes_ = 0;  // names and tables of the automata
  std::unordered_map<const Dfa*, Entry> entries_;
};

}  // namespace quire::grammar
