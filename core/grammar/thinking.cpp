#include "core/grammar/thinking.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

namespace {

void set_bit(std::span<std::uint32_t> mask, TokenId token) {
  mask[static_cast<std::size_t>(token.value) / 32] |= 1U << (static_cast<std::uint32_t>(token.value) % 32);
}

void clear_bit(std::span<std::uint32_t> mask, TokenId token) {
  mask[static_cast<std::size_t>(token.value) / 32] &= ~(1U << (static_cast<std::uint32_t>(token.value) % 32));
}

// Shared by all generations of a request.
struct Rules {
  std::shared_ptr<const Tokenizer> tokenizer;
  ThinkingSection section;
  std::shared_ptr<const Grammar> rest;
  std::vector<TokenId> end_tokens;  // tokens of the forced end
  // overrun[k]: tokens that begin with the end marker without its first k bytes and continue after it. overrun[0]: also
  // tokens with the whole marker further inside.
  std::vector<std::vector<TokenId>> overrun;
};

// Text after the marker in the same token matters only if another grammar follows.
void find_overruns(Rules& rules) {
  const std::string_view end = rules.section.end;
  rules.overrun.resize(end.size());
  for (std::int32_t id = 0; id < rules.tokenizer->vocab_size(); ++id) {
    const std::string_view bytes = rules.tokenizer->token_bytes(TokenId{id});
    const std::size_t at = bytes.find(end);
    if (at != std::string_view::npos && at + end.size() < bytes.size()) rules.overrun[0].push_back(TokenId{id});
    for (std::size_t k = 1; k < end.size(); ++k) {
      const std::string_view left = end.substr(k);
      if (bytes.size() > left.size() && bytes.starts_with(left)) rules.overrun[k].push_back(TokenId{id});
    }
  }
}

class ThinkingState final : public GrammarState {
 public:
  explicit ThinkingState(std::shared_ptr<const Rules> rules)
      : rules_(std::move(rules)), rest_(rules_->rest == nullptr ? nullptr : rules_->rest->start()) {
    phase_ = rules_->section.is_open ? Phase::kInside : Phase::kBefore;
  }

  void assign(const GrammarState& other) override {
    const auto& from = static_cast<const ThinkingState&>(other);
    if (rest_ != nullptr) rest_->assign(*from.rest_);
    phase_ = from.phase_;
    seen_ = from.seen_;
    num_tokens_ = from.num_tokens_;
    num_end_tokens_ = from.num_end_tokens_;
  }

  void fill_mask(std::span<std::uint32_t> mask) override {
    if (phase_ != Phase::kInside && rest_ != nullptr) return rest_->fill_mask(mask);
    std::fill(mask.begin(), mask.end(), ~0U);
    if (phase_ != Phase::kInside) return;
    if (must_end()) {
      std::fill(mask.begin(), mask.end(), 0U);
      set_bit(mask, rules_->end_tokens[num_end_tokens_]);
    } else if (rest_ != nullptr) {
      for (const TokenId token : rules_->tokenizer->end_of_generation())
        if (!rules_->section.may_end_text) clear_bit(mask, token);
      for (std::size_t k = 0; k < rules_->overrun.size(); ++k) {
        if (!seen_.ends_with(std::string_view(rules_->section.end).substr(0, k))) continue;
        for (const TokenId token : rules_->overrun[k])
          clear_bit(mask, token);
      }
    }
  }

  bool accept(TokenId token) override {
    if (phase_ == Phase::kInside) return accept_inside(token);
    if (rest_ != nullptr && !rest_->accept(token)) return false;
    if (phase_ == Phase::kBefore) look_for_begin(rules_->tokenizer->token_bytes(token));
    return true;
  }

  bool finished() const override { return phase_ != Phase::kInside && rest_ != nullptr && rest_->finished(); }

  bool exhausted() const override { return rest_ != nullptr && rest_->exhausted(); }

  std::span<const TokenId> forced_tokens() override {
    if (phase_ == Phase::kInside)
      return must_end() ? std::span(rules_->end_tokens).subspan(num_end_tokens_) : std::span<const TokenId>();
    return rest_ == nullptr ? std::span<const TokenId>() : rest_->forced_tokens();
  }

 private:
  enum class Phase { kBefore, kInside, kAfter };

  bool must_end() const { return rules_->section.max_tokens && num_tokens_ >= *rules_->section.max_tokens; }

  void look_for_begin(std::string_view bytes) {
    const std::string& begin = rules_->section.begin;
    seen_ += bytes;
    seen_.erase(0, std::min(seen_.find_first_not_of(" \t\r\n"), seen_.size()));
    if (seen_.size() < begin.size() ? !begin.starts_with(seen_) : !seen_.starts_with(begin)) {
      phase_ = Phase::kAfter;
    } else if (seen_.size() >= begin.size()) {
      phase_ = Phase::kInside;
      seen_.erase(0, begin.size());
    }
  }

  bool accept_inside(TokenId token) {
    const std::string& end = rules_->section.end;
    if (must_end()) {
      if (token != rules_->end_tokens[num_end_tokens_]) return false;
      if (++num_end_tokens_ == rules_->end_tokens.size()) phase_ = Phase::kAfter;
      return true;
    }
    const auto ends = rules_->tokenizer->end_of_generation();
    const bool ends_text = std::find(ends.begin(), ends.end(), token) != ends.end();
    if (ends_text) return rest_ == nullptr || rules_->section.may_end_text;
    const std::size_t num_seen = seen_.size();
    seen_ += rules_->tokenizer->token_bytes(token);
    const std::size_t at = seen_.find(end);
    if (at != std::string::npos) {
      const bool goes_on = at + end.size() < seen_.size();
      seen_.resize(num_seen);
      if (rest_ != nullptr && goes_on) return false;
      phase_ = Phase::kAfter;
      return true;
    }
    ++num_tokens_;
    if (seen_.size() >= end.size()) seen_.erase(0, seen_.size() - end.size() + 1);
    return true;
  }

  const std::shared_ptr<const Rules> rules_;
  const std::unique_ptr<GrammarState> rest_;  // null: free
  Phase phase_;
  std::string seen_;  // before: the text so far; inside: its longest end that could begin the end marker
  std::int32_t num_tokens_ = 0;
  std::size_t num_end_tokens_ = 0;  // tokens sent of the forced end
};

class ThinkingGrammar final : public Grammar {
 public:
  explicit ThinkingGrammar(std::shared_ptr<const Rules> rules) : rules_(std::move(rules)) {}
  std::unique_ptr<GrammarState> start() const override { return std::make_unique<ThinkingState>(rules_); }

 private:
  std::shared_ptr<const Rules> rules_;
};

}  // namespace

std::shared_ptr<const Grammar> allow_thinking(std::shared_ptr<const Tokenizer> tokenizer,
                                              const ThinkingSection& section, std::shared_ptr<const Grammar> rest) {
  auto rules = std::make_shared<Rules>();
  rules->tokenizer = std::move(tokenizer);
  rules->section = section;
  rules->rest = std::move(rest);
  rules->end_tokens = rules->tokenizer->encode(section.end, false, true);
  if (rules->rest != nullptr) find_overruns(*rules);
  return std::make_shared<ThinkingGrammar>(std::move(rules));
}

}  // namespace quire
