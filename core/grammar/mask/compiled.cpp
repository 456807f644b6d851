#include "core/grammar/compile_steps.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "core/grammar/grammar.h"
#include "core/grammar/machine/lent.h"
#include "core/grammar/machine/machine.h"
#include "core/grammar/mask/filler.h"

namespace quire::grammar {

namespace {

constexpr std::size_t kCompactAt = 1u << 9;  // entries; above it, a generation's stack is compacted
constexpr std::size_t kMergeAt = 16;         // threads; above it, equivalent ones are merged
constexpr std::size_t kMaxForcedBytes = 1u << 10;

class CompiledState final : public GrammarState {
 public:
  CompiledState(std::shared_ptr<const Program> program, std::shared_ptr<const TokenVocabulary> vocabulary,
                std::shared_ptr<GrammarWorkspace> workspace, GrammarFailure failed)
      : mutex_(program->mutex),
        prepared_(program->prepared),
        vocabulary_(std::move(vocabulary)),
        workspace_(std::move(workspace)),
        failed_(std::move(failed)),
        machine_(std::move(program)) {
    within_allowance([&] { threads_ = machine_.start(); });
  }

  void assign(const GrammarState& other) override {
    const auto& from = static_cast<const CompiledState&>(other);
    machine_.assign(from.machine_);
    threads_ = from.threads_;
    compact_at_ = from.compact_at_;
    merge_at_ = from.merge_at_;
    ended_ = from.ended_;
    exhausted_ = from.exhausted_;
  }

  void fill_mask(std::span<std::uint32_t> mask) override {
    const bool filled = within_allowance([&] { fill_allowed(mask); });
    if (!filled) std::fill(mask.begin(), mask.end(), 0);
  }

  bool accept(TokenId token) override {
    bool accepted = false;
    within_allowance([&] { accepted = advance(token); });
    return accepted;
  }

  bool exhausted() const override { return exhausted_; }

  bool finished() const override { return ended_ || Machine::only_done(threads_); }

  std::span<const TokenId> forced_tokens() override {
    forced_.clear();
    if (!within_allowance([&] { find_forced(); })) forced_.clear();
    return forced_;
  }

 private:
  // False if the allowance is exceeded: the state must not be used any more.
  template <class Work>
  bool within_allowance(const Work& work) {
    if (exhausted_) return false;
    const std::lock_guard lock(*mutex_);
    try {
      work();
    } catch (const Exhausted&) {
      exhausted_ = true;
      if (failed_ != nullptr) failed_->store(true);
    }
    if (prepared_ != nullptr) prepared_->trim();
    return !exhausted_;
  }

  void fill_allowed(std::span<std::uint32_t> mask) {
    std::fill(mask.begin(), mask.end(), 0);
    if (!ended_) MaskFiller(machine_, *vocabulary_, *workspace_).fill(threads_, mask);
    if (!ended_ && !machine_.complete(threads_)) return;
    for (const TokenId end : vocabulary_->end_tokens())
      mask[static_cast<std::size_t>(end.value) / 32] |= 1u << end.value % 32;
  }

  bool advance(TokenId token) {
    if (vocabulary_->is_end(token)) {
      if (!ended_ && !machine_.complete(threads_)) return false;
      ended_ = true;
      return true;
    }
    const std::string_view bytes = vocabulary_->bytes(token);
    if (ended_ || bytes.empty()) return false;
    machine_.allowance().renew();
    const Stack::Mark mark = machine_.stack().mark();
    Lent<Threads> now(workspace_->now);
    *now = threads_;
    if (!machine_.read(bytes, *now)) {
      machine_.stack().release(mark);
      return false;
    }
    threads_.swap(*now);
    const bool merges = threads_.size() > merge_at_;
    if (merges) {
      machine_.merge(threads_);
      merge_at_ = std::max(kMergeAt, 2 * threads_.size());
    }
    if (machine_.stack().num_entries() > compact_at_) {
      if (!merges) machine_.compact(threads_);
      compact_at_ = std::max(kCompactAt, 2 * machine_.stack().num_entries());
    }
    return true;
  }

  void find_forced() {
    const Stack::Mark mark = machine_.stack().mark();
    Lent<Threads> now(workspace_->now);
    Lent<std::string> text(workspace_->text);
    if (!ended_) *now = threads_;
    while (text->size() < kMaxForcedBytes && !now->empty() && !machine_.complete(*now) && force(*now, *text)) {
    }
    const bool to_the_end = Machine::only_done(*now);
    machine_.stack().release(mark);
    split(*text, to_the_end);
  }

  // Moves over the only byte that can follow, or inside JSON strings the only character in its usual spelling; false if
  // there are several.
  bool force(Threads& now, std::string& text) {
    Lent<std::vector<std::string>> ways(workspace_->ways);
    find_ways(now, *ways);
    Lent<Threads> tried(workspace_->tried);
    Lent<Threads> only(workspace_->only);
    const std::string* found = nullptr;
    for (const std::string& way : *ways) {
      *tried = now;
      if (!machine_.read(way, *tried)) continue;
      if (found != nullptr) return false;
      only->swap(*tried);
      found = &way;
    }
    if (found == nullptr) return false;
    now.swap(*only);
    text += *found;
    return true;
  }

  void find_ways(const Threads& now, std::vector<std::string>& ways) {
    Lent<std::u32string> characters(workspace_->characters);
    if (find_next_characters(now, *characters)) {
      for (const char32_t c : *characters)
        ways.push_back(canonical_json(c));
      ways.emplace_back(1, '"');
      return;
    }
    ByteSet first;
    for (const Thread& thread : now)
      machine_.first_bytes(thread, first);
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      if (first.has(static_cast<std::uint8_t>(byte))) ways.emplace_back(1, static_cast<char>(byte));
    }
  }

  // The few characters that may follow, if all threads stand between two characters of a JSON string.
  bool find_next_characters(const Threads& threads, std::u32string& found) const {
    constexpr std::size_t kMost = 16;
    return std::all_of(threads.begin(), threads.end(), [&](const Thread& thread) {
      if (thread.position != Position::kString && thread.position != Position::kKey) return false;
      const ByteLexer& lexer = thread.position == Position::kKey ? *machine_.program().objects[thread.shape].keys
                                                                 : *machine_.string_of(thread).lexer;
      return !lexer.inside(thread.state) && lexer.add_few_characters(thread.state, kMost, found);
    });
  }

  // The longest tokens for the text. The last one may be the beginning of a longer token, so it is left to the model
  // unless the text ends with it.
  void split(std::string_view text, bool to_the_end) {
    const Trie& trie = vocabulary_->trie();
    while (!text.empty()) {
      std::uint32_t node = 0;
      std::size_t depth = 0;
      std::size_t longest = 0;
      std::int32_t best = -1;
      while (depth < text.size()) {
        std::uint32_t child = node + 1;
        while (child < trie[node].end && trie[child].byte != static_cast<std::uint8_t>(text[depth]))
          child = trie[child].end;
        if (child >= trie[node].end) break;
        node = child;
        ++depth;
        if (trie.tokens_at(node).empty()) continue;
        best = trie.tokens_at(node).front();
        longest = depth;
      }
      if (best < 0) break;
      const bool reaches_end = depth == text.size();
      if (reaches_end && !to_the_end) break;
      forced_.push_back(TokenId{best});
      text.remove_prefix(longest);
    }
  }

  std::shared_ptr<std::mutex> mutex_;
  std::shared_ptr<PreparedMemory> prepared_;
  std::shared_ptr<const TokenVocabulary> vocabulary_;
  std::shared_ptr<GrammarWorkspace> workspace_;
  GrammarFailure failed_;
  Machine machine_;
  Threads threads_;
  std::vector<TokenId> forced_;
  std::size_t compact_at_ = kCompactAt;
  std::size_t merge_at_ = kMergeAt;
  bool ended_ = false;
  bool exhausted_ = false;
};

class CompiledGrammar final : public Grammar {
 public:
  CompiledGrammar(std::shared_ptr<const Program> program, std::shared_ptr<const TokenVocabulary> vocabulary)
      : program_(std::move(program)),
        vocabulary_(std::move(vocabulary)),
        workspace_(std::make_shared<GrammarWorkspace>()) {
    if (program_->prepared == nullptr) return;
    const std::lock_guard lock(*program_->mutex);
    program_->prepared->watch(workspace_);
    for (const LexerPtr& lexer : program_->lexers())
      program_->prepared->watch(lexer);
  }

  CompiledGrammar(const CompiledGrammar& shared, std::shared_ptr<const Grammar> kept, GrammarFailure failed)
      : program_(shared.program_),
        vocabulary_(shared.vocabulary_),
        workspace_(shared.workspace_),
        kept_(std::move(kept)),
        failed_(std::move(failed)) {}

  std::unique_ptr<GrammarState> start() const override {
    return std::make_unique<CompiledState>(program_, vocabulary_, workspace_, failed_);
  }

 private:
  std::shared_ptr<const Program> program_;
  std::shared_ptr<const TokenVocabulary> vocabulary_;
  std::shared_ptr<GrammarWorkspace> workspace_;
  std::shared_ptr<const Grammar> kept_;  // grammar whose memory is charged
  GrammarFailure failed_;
};

}  // namespace

std::shared_ptr<const Grammar> make_grammar(std::shared_ptr<const Program> program,
                                            std::shared_ptr<const TokenVocabulary> vocabulary) {
  return std::make_shared<CompiledGrammar>(std::move(program), std::move(vocabulary));
}

std::shared_ptr<const Grammar> note_failure(std::shared_ptr<const Grammar> made, GrammarFailure failed) {
  const auto& shared = static_cast<const CompiledGrammar&>(*made);
  return std::make_shared<CompiledGrammar>(shared, std::move(made), std::move(failed));
}

}  // namespace quire::grammar
