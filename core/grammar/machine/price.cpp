#include "core/grammar/compile_steps.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>

#include "core/grammar/machine/machine.h"

namespace quire::grammar {

namespace {

constexpr std::uint64_t kMostPerByte = 8'000;  // steps; a mask reads thousands of bytes
constexpr std::size_t kBytesPerToken = 4;      // threads are merged after as many bytes, as they are after a token
constexpr std::size_t kMostTried = 24;         // bytes compared at each place of the text

class Trial {
 public:
  Trial(const std::shared_ptr<const Program>& program, Budget& budget)
      : program_(*program), budget_(budget), machine_(program) {}

  void run() try {
    begin();
    for (std::size_t length = 0; length < budget_.limits().max_trial_bytes && !threads_.empty(); ++length) {
      const std::uint64_t cost = read(dearest(length));
      if (cost > kMostPerByte) throw Exhausted();
      if (length % kBytesPerToken != kBytesPerToken - 1) continue;
      take_steps([&] { machine_.merge(threads_); });
    }
  } catch (const Exhausted&) {
    throw Refusal("the rule \"" + busiest_rule() +
                  "\" is too ambiguous: the same text can be read in too many ways. Let its alternatives begin "
                  "differently, and write repetition as x+ or x*");
  }

 private:
  void begin() {
    const std::lock_guard lock(*program_.mutex);
    threads_ = machine_.start();
  }

  // A byte of each character class of the rules, each class first in turn.
  std::vector<std::uint8_t> candidates(std::size_t length) {
    const std::lock_guard lock(*program_.mutex);
    ByteSet first;
    for (const Thread& thread : threads_)
      machine_.first_bytes(thread, first);
    const Alphabet& alphabet = program_.rules->dfa().alphabet;
    std::map<std::uint32_t, std::uint8_t> by_class;
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
      const bool is_ascii = byte < 128;
      if (!first.has(static_cast<std::uint8_t>(byte))) continue;
      by_class.try_emplace(is_ascii ? alphabet.class_of(byte) : kNoIndex, static_cast<std::uint8_t>(byte));
    }
    std::vector<std::uint8_t> bytes;
    for (const auto& [each, byte] : by_class)
      bytes.push_back(byte);
    if (!bytes.empty())
      std::rotate(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length % bytes.size()), bytes.end());
    bytes.resize(std::min(bytes.size(), kMostTried));
    return bytes;
  }

  // The byte after which the number of threads is largest.
  std::uint8_t dearest(std::size_t length) {
    std::uint8_t best = 0;
    std::size_t most = 0;
    for (const std::uint8_t byte : candidates(length)) {
      const Stack::Mark mark = machine_.stack().mark();
      next_.clear();
      take_steps([&] { machine_.step(threads_, byte, next_); });
      machine_.stack().release(mark);
      if (next_.size() <= most) continue;
      most = next_.size();
      best = byte;
    }
    return best;
  }

  std::uint64_t read(std::uint8_t byte) {
    next_.clear();
    const std::uint64_t cost = take_steps([&] { machine_.step(threads_, byte, next_); });
    threads_.swap(next_);
    return cost;
  }

  template <class Work>
  std::uint64_t take_steps(const Work& work) {
    const std::uint64_t before = machine_.allowance().left();
    {
      const std::lock_guard lock(*program_.mutex);
      work();
    }
    const std::uint64_t cost = before - machine_.allowance().left();
    machine_.allowance().renew(cost);
    budget_.spend(1 + static_cast<std::size_t>(cost));
    return cost;
  }

  // The rule on whose frames most threads stand.
  std::string busiest_rule() {
    std::map<std::uint32_t, std::size_t> counts;
    for (const Thread& thread :
         std::max(threads_, next_, [](const auto&a, const auto&b) { return a.size() < b.size(); })) {
      const Frame& frame = machine_.stack().frames[thread.frame];
      if (frame.kind == FrameKind::kShared) ++counts[frame.shape];
    }
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    const std::size_t rule = most == counts.end() ? 0 : most->first;
    return rule < program_.rule_names.size() ? program_.rule_names[rule] : "root";
  }

  const Program& program_;
  Budget& budget_;
  Machine machine_;
  Threads threads_;
  Threads next_;
};

}  // namespace

void check_price(const std::shared_ptr<const Program>& program, Budget& budget) {
  // Rules without calls are a plain automaton, and values of JSON that begin at the same place are shared.
  if (program->rules == nullptr || program->rules->dfa().calls.empty()) return;
  Trial(program, budget).run();
}

}  // namespace quire::grammar
