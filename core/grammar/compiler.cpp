#include "core/grammar/compiler.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/grammar/compile_steps.h"
#include "core/grammar/json_schema/lexicon.h"
#include "core/grammar/mask/context.h"

namespace quire {

namespace {

void add_part(std::string& key, const std::string& part) {
  key += ":" + std::to_string(part.size()) + ":" + part;
}

void add_argument(std::string& key, const ArgumentRule& rule) {
  const ArgumentForm& form = rule.form;
  key += std::to_string(static_cast<int>(form.kind)) + (rule.exact ? "e" : "-") + (form.own_lines ? "l" : "-");
  for (const std::string* part :
       {&rule.name, &rule.schema, &form.key_begin, &form.key_end, &form.value_begin, &form.value_end, &form.call_end,
        &form.attribute, &form.text_word, &form.quote, &form.mark})
    add_part(key, *part);
  for (const std::string& end : form.ends)
    add_part(key, end);
  key += '|';
}

constexpr std::chrono::seconds kRetryAfter{1};
constexpr std::size_t kMostClients = 64;  // clients remembered per grammar without need

tl::unexpected<Error> too_costly() {
  return invalid(
      "The grammar is too ambiguous: an earlier request of yours with it was ended because following it would have "
      "held up others. Let the alternatives of its rules begin differently",
      {}, "grammar_too_costly");
}

// Memory that every grammar is charged in advance, so that none is compiled without memory for it.
constexpr std::size_t kLeastBytes = std::size_t{16} << 10;

// Bytes of a grammar's tables beyond kLeastBytes.
std::size_t more_bytes(const grammar::Program& program) {
  const std::lock_guard lock(*program.mutex);  // shared lexers grow while texts are followed
  return std::max(program.num_bytes(), kLeastBytes) - kLeastBytes;
}

// A key that is equal only for equal specifications.
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
  }
  key += "|";
  for (const std::string& trigger : spec.triggers)
    add(trigger);
  add(spec.separator);
  for (const TextOpening& opening : spec.openings) {
    add(opening.text);
    add(opening.rules);
  }
  key += "|";
  for (const ArgumentRule& rule : spec.arguments)
    add_argument(key, rule);
  for (const bool flag :
       {spec.free_text, spec.required, spec.parallel, spec.stops, spec.compact, spec.opening_anywhere, spec.spaced})
    key += flag ? '1' : '0';
  add(spec.answer_begin);
  if (spec.answer != nullptr) add(key_of(*spec.answer));
  return key;
}

}  // namespace

// Memory of all grammars' tables, in total and by the client that each was compiled for. Any thread.
class GrammarCompiler::Memory {
 public:
  enum class Full { kNo, kClient, kAll };

  explicit Memory(const GrammarLimits& limits) : limits_(limits) {}

  // Charges the client, unless a bound would be exceeded.
  Full take(const std::string& client, std::size_t num_bytes) {
    const std::lock_guard lock(mutex_);
    const auto own = by_client_.find(client);
    if ((own == by_client_.end() ? 0 : own->second) + num_bytes > limits_.max_client_bytes) return Full::kClient;
    if (num_bytes_ + num_bytes > limits_.max_bytes) return Full::kAll;
    by_client_[client] += num_bytes;
    num_bytes_ += num_bytes;
    return Full::kNo;
  }
  void give_back(const std::string& client, std::size_t num_bytes) {
    if (num_bytes == 0) return;
    const std::lock_guard lock(mutex_);
    num_bytes_ -= num_bytes;
    const auto own = by_client_.find(client);
    if ((own->second -= num_bytes) == 0) by_client_.erase(own);
  }
  std::size_t num_bytes() const {
    const std::lock_guard lock(mutex_);
    return num_bytes_;
  }

 private:
  const GrammarLimits limits_;
  mutable std::mutex mutex_;
  std::map<std::string, std::size_t> by_client_;
  std::size_t num_bytes_ = 0;
};

// A grammar and the memory charged for it.
struct GrammarCompiler::Lease {
  Lease(std::shared_ptr<Memory> of, std::string whose) : memory(std::move(of)), client(std::move(whose)) {}
  ~Lease() { memory->give_back(client, num_bytes); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  const std::shared_ptr<Memory> memory;
  const std::string client;
  std::size_t num_bytes = 0;
  std::shared_ptr<const Grammar> grammar;
};

struct GrammarCompiler::Shared {
  explicit Shared(const GrammarLimits& limits)
      : prepared(std::make_shared<grammar::PreparedMemory>(limits.max_prepared_bytes)),
        memory(std::make_shared<Memory>(limits)) {}

  using Outcome = Result<std::shared_ptr<const Grammar>>;

  // The most recently used outcomes, as many as fit the bounds. Requires `mutex`.
  class Recent {
   public:
    // The client's outcome: fails at once for a grammar that it found too costly to follow.
    std::optional<Outcome> find(const std::string& key, const std::string& client) {
      const auto found = known_.find(key);
      if (found == known_.end()) return std::nullopt;
      entries_.splice(entries_.begin(), entries_, found->second);
      Entry& entry = entries_.front();
      if (!entry.outcome) return entry.outcome;
      if (entry.failures.size() >= kMostClients)
        std::erase_if(entry.failures, [](const auto& each) { return each.second.use_count() == 1 && !*each.second; });
      grammar::GrammarFailure& failed = entry.failures[client];
      if (failed == nullptr) failed = std::make_shared<std::atomic<bool>>(false);
      if (*failed) return too_costly();
      return grammar::note_failure(*entry.outcome, failed);
    }

    void add(const std::string& key, const std::string& client, const Outcome& outcome, const GrammarLimits& limits) {
      if (known_.contains(key)) return;
      entries_.push_front({key, client, outcome, {}});
      known_[entries_.front().key] = entries_.begin();
      num_bytes_ += entries_.front().num_bytes();
      while (!entries_.empty() &&
             (entries_.size() > limits.max_cached_grammars || num_bytes_ > limits.max_cached_bytes))
        drop_of_heaviest(entries_.size() > limits.max_cached_grammars);
    }

    // Drops the least recently used grammar that no request holds, among those compiled for `client` if it is given;
    // false if there is none.
    bool drop_unused(const std::string* client) {
      for (auto entry = entries_.end(); entry != entries_.begin();) {
        --entry;
        if (entry->outcome->use_count() > 1 || (client != nullptr && entry->client != *client)) continue;
        drop(entry);
        return true;
      }
      return false;
    }

   private:
    struct Entry {
      std::string key;
      std::string client;
      Outcome outcome;
      std::map<std::string, grammar::GrammarFailure> failures;  // by client

      // Bytes besides the tables; a refusal's message repeats names of the schema.
      std::size_t num_bytes() const {
        return key.size() + (outcome ? 0 : outcome.error().message.size() + outcome.error().param.size());
      }
    };

    // Drops the oldest entry of the client with the most entries, or with the most text.
    void drop_of_heaviest(bool by_count) {
      std::unordered_map<std::string_view, std::size_t> weights;
      for (const Entry& entry : entries_)
        weights[entry.client] += by_count ? 1 : entry.num_bytes();
      const auto heaviest =
          std::ranges::max_element(weights, {}, [](const auto& client) { return client.second; })->first;
      auto entry = std::prev(entries_.end());
      while (entry->client != heaviest)
        --entry;
      drop(entry);
    }

    void drop(std::list<Entry>::iterator entry) {
      num_bytes_ -= entry->num_bytes();
      known_.erase(entry->key);
      entries_.erase(entry);
    }

    std::list<Entry> entries_;  // most recently used first
    std::unordered_map<std::string_view, std::list<Entry>::iterator> known_;
    std::size_t num_bytes_ = 0;
  };

  grammar::Lexicon lexicon;
  const std::shared_ptr<grammar::PreparedMemory> prepared;  // under the lexicon's runtime_mutex()
  const std::shared_ptr<Memory> memory;
  std::mutex mutex;
  Recent grammars;
  Recent refusals;  // kept apart, so that they do not evict grammars
};

GrammarCompiler::GrammarCompiler(std::shared_ptr<const TokenVocabulary> vocabulary, GrammarLimits limits)
    : vocabulary_(std::move(vocabulary)), limits_(limits), shared_(std::make_unique<Shared>(limits)) {
  // Almost every grammar has plain strings: their masks are prepared before the first
  // request.
  grammar::ByteLexer& plain =
      *shared_->lexicon.lexer(shared_->lexicon.any_text(), grammar::ByteLexer::Encoding::kJsonString);
  grammar::prepare_profile(plain, plain.start(), nullptr, *vocabulary_);
}

GrammarCompiler::~GrammarCompiler() = default;

GrammarMemory GrammarCompiler::memory() const {
  const std::lock_guard lock(*shared_->lexicon.runtime_mutex());
  return {shared_->memory->num_bytes(), shared_->prepared->num_bytes()};
}

// Charges more memory to the grammar, and drops unused cached grammars for it if need be.
Result<void> GrammarCompiler::extend(Lease& lease, std::size_t num_bytes) const {
  while (true) {
    const Memory::Full full = shared_->memory->take(lease.client, num_bytes);
    if (full == Memory::Full::kNo) break;
    const bool of_client = full == Memory::Full::kClient;
    const std::lock_guard lock(shared_->mutex);
    if (shared_->grammars.drop_unused(of_client ? &lease.client : nullptr)) continue;
    return tl::make_unexpected(Error{of_client ? ErrorKind::kRateLimited : ErrorKind::kUnavailable,
                                     "The grammars of requests under way take all the memory that there is for them. "
                                     "Please retry later.",
                                     of_client ? "rate_limit_exceeded" : "server_overloaded",
                                     {},
                                     kRetryAfter});
  }
  lease.num_bytes += num_bytes;
  return {};
}

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile(const GrammarSpec& spec, const WorkLimit& limit) const
    try {
  const std::string key = key_of(spec);
  {
    const std::lock_guard lock(shared_->mutex);
    for (Shared::Recent* recent : {&shared_->grammars, &shared_->refusals}) {
      if (auto known = recent->find(key, limit.client())) return *std::move(known);
    }
  }
  const auto lease = std::make_shared<Lease>(shared_->memory, limit.client());
  if (auto room = extend(*lease, kLeastBytes); !room) return tl::make_unexpected(std::move(room.error()));
  Shared::Outcome outcome;
  try {
    grammar::Budget budget(limits_, limit);
    auto program = std::make_shared<grammar::Program>();
    program->mutex = shared_->lexicon.runtime_mutex();
    const std::size_t max_spaces = std::min<std::size_t>(limits_.max_spaces, grammar::kMaxSpaces);
    program->max_spaces = static_cast<std::uint16_t>(spec.compact ? 0 : max_spaces);
    program->prepared = shared_->prepared;
    grammar::build_program(spec, shared_->lexicon, *vocabulary_, budget, *program);
    grammar::check_price(program, budget);
    if (auto room = extend(*lease, more_bytes(*program)); !room) return tl::make_unexpected(std::move(room.error()));
    lease->grammar = grammar::make_grammar(std::move(program), vocabulary_);
    outcome = std::shared_ptr<const Grammar>(lease, lease->grammar.get());
  } catch (const grammar::Interrupted&) {
    return interrupted();
  } catch (const grammar::Refusal& refusal) {
    outcome =
        invalid(refusal.pointer.empty() ? refusal.what() : refusal.pointer + ": " + refusal.what(), refusal.pointer);
  }
  const std::lock_guard lock(shared_->mutex);
  Shared::Recent& recent = outcome ? shared_->grammars : shared_->refusals;
  recent.add(key, limit.client(), outcome, limits_);
  return recent.find(key, limit.client()).value_or(std::move(outcome));
} catch (const std::bad_alloc&) {
  return failure(ErrorKind::kNoMemory, "The grammar needs more memory than there is.", "out_of_memory");
}

}  // namespace quire
