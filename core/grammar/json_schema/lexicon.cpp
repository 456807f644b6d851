#include "core/grammar/json_schema/lexicon.h"

namespace quire::grammar {

namespace {

// Most automata that are kept; further ones are built again for each use.
constexpr std::size_t kMaxEntries = 4096;
constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

std::size_t bytes_of(const std::string& name, const Dfa& dfa) {
  return name.size() + sizeof(std::uint32_t) * (dfa.next.size() + dfa.accept.size());
}

}  // namespace

Lexicon::Lexicon() {
  any_text_ = dfa("any text", [] { return std::make_shared<Dfa>(grammar::any_text()); });
}

DfaPtr Lexicon::dfa(const std::string& name, const std::function<DfaPtr()>& make) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = named_.find(name);
    if (found != named_.end()) return found->second;
  }
  DfaPtr made = make();
  if (made == nullptr) return made;
  const std::size_t num_bytes = bytes_of(name, *made);
  const std::lock_guard lock(mutex_);
  if (named_.size() >= kMaxEntries || num_bytes_ + num_bytes > kMaxBytes) {
    named_.clear();
    entries_.clear();
    num_bytes_ = 0;
    if (any_text_ != nullptr) entries_.try_emplace(any_text_.get(), Entry{any_text_, {}});
  }
  const auto [kept, fresh] = named_.try_emplace(name, made);
  if (fresh) {
    entries_.try_emplace(made.get(), Entry{made, {}});
    num_bytes_ += num_bytes;
  }
  return kept->second;
}

LexerPtr Lexicon::lexer(const DfaPtr& dfa, ByteLexer::Encoding encoding) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(dfa.get());
  if (found == entries_.end()) return std::make_shared<ByteLexer>(dfa, encoding);
  LexerPtr& kept = found->second.lexers[encoding == ByteLexer::Encoding::kUtf8 ? 0 : 1];
  if (kept == nullptr) kept = std::make_shared<ByteLexer>(dfa, encoding);
  return kept;
}

}  // namespace quire::grammar
