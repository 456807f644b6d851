// ScriptedExecutor: an Executor whose tokens come from a script: computing, caching and scheduling are the model's, the
// text is not. One thread at a time. Invariant: a scripted token is allowed by the request's grammar; if the grammar
// allows none of the script's tokens, the model's own stands.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/executor/executor.h"
#include "core/text/tokenizer.h"

namespace quire::test {

// Answer to a prompt whose last mark of the script is `after`.
struct ScriptLine {
  std::string after;
  std::string say;
};

class ScriptedExecutor final : public Executor {
 public:
  ScriptedExecutor(std::unique_ptr<Executor> device, std::shared_ptr<const Tokenizer> tokenizer,
                   std::vector<ScriptLine> script)
      : device_(std::move(device)), tokenizer_(std::move(tokenizer)), script_(std::move(script)), ticket_(*this) {}

  std::int64_t depth() const override { return 1; }
  Ticket& submit(const StepPlan& plan, const StepArrays& arrays) override {
    ticket_.device = &device_->submit(plan, arrays);
    ticket_.says.clear();
    return ticket_;
  }
  std::unique_ptr<Buffer> upload(std::span<const float> values) override { return device_->upload(values); }
  const Model& model() const override { return device_->model(); }
  KvStorage& storage() override { return device_->storage(); }
  KvStorage* window_storage() override { return device_->window_storage(); }
  StateStorage* states() override { return device_->states(); }
  std::string name() const override { return device_->name(); }

 private:
  struct ScriptTicket final : Ticket {
    explicit ScriptTicket(const ScriptedExecutor& owner) : executor(owner) {}
    void draw(const DrawBatch& batch) override {
      for (const DrawRow& row : batch.draws)
        says.push_back(executor.next(row));
      device->draw(batch);
    }
    StepOutput& wait() override {
      StepOutput& output = device->wait();
      for (std::size_t i = 0; i < says.size() && i < output.tokens.size(); ++i) {
        if (says[i] && output.tokens[i].token) output.tokens[i].token = says[i];
      }
      return output;
    }

    const ScriptedExecutor& executor;
    Ticket* device = nullptr;
    std::vector<std::optional<TokenId>> says;  // scripted token of each draw, if any
  };

  std::string text_of(std::span<const TokenId> tokens) const {
    std::string text;
    for (const TokenId token : tokens)
      text += tokenizer_->token_bytes(token);
    return text;
  }

  static bool allows(std::span<const std::uint32_t> mask, TokenId token) {
    const auto id = static_cast<std::size_t>(token.value);
    return mask.empty() || (mask[id / 32] >> (id % 32) & 1U) != 0;
  }

  std::optional<TokenId> next(const DrawRow& row) const {
    const auto num_prompt = static_cast<std::size_t>(row.num_prompt_tokens);
    const std::string prompt = text_of(row.tokens.first(num_prompt));
    const std::string said = text_of(row.tokens.subspan(num_prompt));
    const ScriptLine* line = nullptr;
    std::size_t last = 0;
    for (const ScriptLine& each : script_) {
      const std::size_t at = prompt.rfind(each.after);
      if (at == std::string::npos || (line != nullptr && at < last)) continue;
      line = &each;
      last = at;
    }
    const std::string_view all = line != nullptr ? std::string_view(line->say) : "ok";
    if (!all.starts_with(said) || all.size() == said.size()) return tokenizer_->end_of_generation().front();
    const std::string_view rest = all.substr(said.size());
    const TokenId first = tokenizer_->encode(rest, false, true).front();
    if (allows(row.mask, first) && rest.starts_with(tokenizer_->token_bytes(first))) return first;
    std::optional<TokenId> longest;
    for (std::int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
      const std::string_view bytes = tokenizer_->token_bytes(TokenId{id});
      const bool longer = !longest || bytes.size() > tokenizer_->token_bytes(*longest).size();
      if (!bytes.empty() && rest.starts_with(bytes) && allows(row.mask, TokenId{id}) && longer) longest = TokenId{id};
    }
    return longest;
  }

  std::unique_ptr<Executor> device_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<ScriptLine> script_;
  ScriptTicket ticket_;
};

}  // namespace quire::test
