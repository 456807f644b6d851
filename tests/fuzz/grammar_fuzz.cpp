#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/grammar/compiler.h"
#include "kernels/check.h"

namespace {

using namespace quire;

constexpr int kMaxSteps = 24;

const GrammarCompiler& fuzz_compiler() {
  static const GrammarCompiler kCompiler = [] {
    GrammarLimits limits;
    limits.max_steps = 200'000;
    limits.max_time = std::chrono::milliseconds(500);
    limits.max_cached_grammars = 1;
    return GrammarCompiler(std::make_shared<const TokenVocabulary>(TokenVocabulary::bytes_only()), limits);
  }();
  return kCompiler;
}

// Accepts any allowed token, chosen by `seed`: there is always one, it is accepted, and forbidden ones are not.
void walk(const Grammar& grammar, std::uint32_t seed) {
  const TokenVocabulary& vocabulary = fuzz_compiler().vocabulary();
  const auto state = grammar.start();
  std::vector<std::uint32_t> mask(vocabulary.num_mask_words());
  for (int step = 0; step < kMaxSteps; ++step) {
    state->fill_mask(mask);
    std::vector<TokenId> allowed;
    bool refused_checked = false;
    for (std::size_t id = 0; id < vocabulary.size(); ++id) {
      const TokenId token{static_cast<std::int32_t>(id)};
      if ((mask[id / 32] >> (id % 32) & 1U) != 0) {
        allowed.push_back(token);
      } else if (!refused_checked && !vocabulary.is_end(token)) {
        QUIRE_CHECK(!state->accept(token), "what the mask forbids is not accepted");
        refused_checked = true;
      }
    }
    QUIRE_CHECK(!allowed.empty(), "a text that was allowed so far can go on or end");
    seed = seed * 1664525U + 1013904223U;
    const TokenId chosen = allowed[(seed >> 8) % allowed.size()];
    if (vocabulary.is_end(chosen)) return;
    QUIRE_CHECK(state->accept(chosen), "what the mask allows is accepted");
  }
}

}  // namespace

// The first byte chooses the kind, the rest is a schema, an expression, a grammar or (by lines) choices: it is refused
// with a reason, or always allows some token.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  GrammarSpec spec;
  spec.text = text;
  switch (data[0]) {
    case 's': spec.kind = GrammarSpec::Kind::kJsonSchema; break;
    case 'r': spec.kind = GrammarSpec::Kind::kRegex; break;
    case 'e': spec.kind = GrammarSpec::Kind::kEbnf; break;
    case 'g': spec.kind = GrammarSpec::Kind::kGbnf; break;
    default: spec.kind = GrammarSpec::Kind::kChoice;
  }
  if (spec.kind == GrammarSpec::Kind::kChoice) {
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      spec.choices.emplace_back(text.substr(at, end - at));
      at = end + 1;
    }
  }
  const auto grammar = fuzz_compiler().compile(spec);
  if (!grammar) {
    QUIRE_CHECK(!grammar.error().message.empty(), "a refusal says why");
    return 0;
  }
  for (std::uint32_t seed = 0; seed < 4; ++seed)
    walk(**grammar, seed);
  return 0;
}
