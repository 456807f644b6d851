#include "server/api/completions/completions.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "server/api/common/json.h"
#include "server/api/fields/completions.h"
#include "server/api/fields/generation.h"
#include "server/api/generation/constraints.h"
#include "server/api/generation/generation_fields.h"
#include "server/api/generation/generation_operation.h"
#include "server/api/generation/logprobs.h"
#include "server/api/generation/prompt_fit.h"
#include "server/api/generation/prompt_list.h"

namespace quire {

namespace {

struct CompletionFields {
  bool echo = false;
  std::optional<std::int32_t> logprobs;
  bool prompt_logprobs = false;   // vLLM's field asked for them, not echo
  std::int32_t num_returned = 1;  // n; best_of choices are generated
};

class CompletionOperation final : public GenerationOperation {
 public:
  CompletionOperation(std::shared_ptr<const ServedModel> model, GenerationFields fields, ResponseHeader header,
                      CompletionFields completion, std::vector<Prompt> prompts)
      : GenerationOperation(std::move(model), std::move(fields), std::move(header)),
        completion_(completion),
        prompts_(std::move(prompts)),
        prompt_logprobs_(prompts_.size()),
        places_(prompts_.size() * static_cast<std::size_t>(this->fields().num_choices),
                TextPlaces(*this->model().tokenizer, DetokenizerOptions{this->fields().skip_special_tokens, false})),
        opened_(places_.size(), false) {
    prefix_ = chunk_prefix("text_completion");
  }

  void begin(std::string&) override {}

 protected:
  void on_prompt_logprobs(std::size_t index, std::vector<std::optional<TokenLogprob>> logprobs) override {
    prompt_logprobs_[index] = std::move(logprobs);
  }

  void on_delta(std::size_t index, const Delta& delta, std::string& out) override {
    if (!fields().stream) return;
    const bool first = !opened_[index];
    opened_[index] = true;
    // A chunk without text is sent only where it opens or ends the choice, or where tokens themselves are wanted.
    const bool wants_tokens = fields().return_token_ids || completion_.logprobs;
    if (delta.text.empty() && !delta.last && !(first && completion_.echo) && !(wants_tokens && !delta.tokens.empty()))
      return;
    append_chunk(index, first, delta, out);
  }

  void on_progress(std::size_t index, const Json& progress, std::string& out) override {
    out += prefix_ + std::to_string(index) + R"(,"text":"","logprobs":null,"finish_reason":null}],"prompt_progress":)" +
           dump_json(progress);
    append_chunk_end(index, out);
  }

  // Appends the next choice.
  bool append_part(std::string& out) override {
    const auto num_returned = static_cast<std::size_t>(completion_.num_returned);
    if (num_written_ == 0) {
      Json head = envelope();
      head.erase("choices");
      out += dump_opened(head) + ",\"choices\":[";
    } else {
      out += ',';
    }
    const std::size_t index = best_choices(num_written_ / num_returned)[num_written_ % num_returned];
    append_choice(index, num_written_, out);
    if (++num_written_ < prompts_.size() * num_returned) return true;
    out += "]" + dump_members(with_transfer(Json{{"usage", usage_json(usage())}})) + "}";
    return false;
  }

  Json usage_chunk() override {
    Json chunk = envelope();
    chunk["usage"] = usage_json(usage());
    return chunk;
  }

 private:
  Json envelope() const {
    return Json{{"id", header().id},
                {"object", "text_completion"},
                {"created", header().created},
                {"model", header().model},
                {"system_fingerprint", "quire-" QUIRE_VERSION},
                {"choices", Json::array()}};
  }

  void append_chunk(std::size_t index, bool first, const Delta& delta, std::string& out) {
    const Choice& state = choices()[index];
    std::string text = first && completion_.echo ? prompt_of(index).text : std::string();
    text += delta.text;
    out += prefix_ + std::to_string(index) + ",\"text\":";
    append_json_string(out, text);
    out += ",\"logprobs\":";
    out += completion_.logprobs ? logprobs(index, first, delta.tokens, delta.logprobs) : "null";
    out += ",\"finish_reason\":";
    out += delta.last ? dump_json(finish_reason(state)) : "null";
    out += ",\"stop_reason\":";
    out += delta.last ? dump_json(stop_reason(state)) : "null";
    if (fields().return_token_ids) {
      out += ",\"prompt_token_ids\":" + (first ? dump_json(token_ids_json(prompt_of(index).tokens)) : "null");
      out += ",\"token_ids\":";
      out += dump_json(delta.last ? returned_ids(delta.tokens, state) : token_ids_json(delta.tokens));
    }
    out += "}]";
    append_chunk_end(index, out);
  }

  const Prompt& prompt_of(std::size_t index) const {
    return prompts_[index / static_cast<std::size_t>(fields().num_choices)];
  }

  // The best `num_returned` of a prompt's choices by mean log probability; in their order of generation if all are
  // returned.
  std::vector<std::size_t> best_choices(std::size_t prompt) const {
    const auto count = static_cast<std::size_t>(fields().num_choices);
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), prompt * count);
    const auto wanted = static_cast<std::size_t>(completion_.num_returned);
    if (wanted == count) return order;
    std::vector<double> means;
    for (const std::size_t index : order) {
      const auto& list = choices()[index].logprobs;
      const double sum = std::accumulate(list.begin(), list.end(), 0.0,
                                         [](double total, const TokenLogprob& each) { return total + each.logprob; });
      means.push_back(list.empty() ? 0.0 : sum / static_cast<double>(list.size()));
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return means[a - prompt * count] > means[b - prompt * count];
    });
    order.resize(wanted);
    return order;
  }

  void append_choice(std::size_t index, std::size_t number, std::string& out) {
    const Choice& state = choices()[index];
    std::string text = completion_.echo ? prompt_of(index).text : std::string();
    text += state.text;
    out += dump_opened({{"index", number}, {"text", std::move(text)}}) + ",\"logprobs\":";
    out += completion_.logprobs ? logprobs(index, true, state.tokens, state.logprobs) : "null";
    Json choice;
    choice["finish_reason"] = finish_reason(state);
    choice["stop_reason"] = stop_reason(state);
    if (fields().return_token_ids) {
      choice["prompt_token_ids"] = token_ids_json(prompt_of(index).tokens);
      choice["token_ids"] = returned_ids(state.tokens, state);
    }
    if (completion_.prompt_logprobs) {
      const std::size_t prompt = index / static_cast<std::size_t>(fields().num_choices);
      choice["prompt_logprobs"] = prompt_logprobs_json(*model().tokenizer, prompt_logprobs_[prompt]);
    }
    out += dump_members(choice) + "}";
  }

  std::string logprobs(std::size_t index, bool first, std::span<const TokenId> tokens,
                       std::span<const TokenLogprob> values) {
    CompletionLogprobs list;
    const auto top = static_cast<std::size_t>(*completion_.logprobs);
    const std::size_t prompt = index / static_cast<std::size_t>(fields().num_choices);
    if (first && completion_.echo) {
      const auto& known = prompt_logprobs_[prompt];
      TextPlaces places(*model().tokenizer, DetokenizerOptions{true, true});
      for (std::size_t i = 0; i < prompts_[prompt].tokens.size(); ++i) {
        const TokenLogprob* value = i < known.size() && known[i] ? &*known[i] : nullptr;
        const TokenId token = prompts_[prompt].tokens[i];
        list.add(*model().tokenizer, token, value, top, fields().tokens_as_ids, places.next(token));
      }
      places_[index].begin_behind(prompts_[prompt].text);
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const TokenLogprob* value = i < values.size() ? &values[i] : nullptr;
      list.add(*model().tokenizer, tokens[i], value, top, fields().tokens_as_ids, places_[index].next(tokens[i]));
    }
    return list.text();
  }

  CompletionFields completion_;
  std::string prefix_;
  std::vector<Prompt> prompts_;
  std::vector<std::vector<std::optional<TokenLogprob>>> prompt_logprobs_;
  std::vector<TextPlaces> places_;  // by choice
  std::vector<bool> opened_;
  std::size_t num_written_ = 0;  // choices of a whole response
};

CompletionFields read_completion_fields(FieldReader& reader, GenerationFields& fields, const ServedModel& model) {
  CompletionFields completion;
  completion.echo = reader.boolean(fields::completions::kEcho, false);
  completion.prompt_logprobs = fields.sampling.num_prompt_logprobs.has_value();
  if (const auto count = reader.integer(fields::completions::kLogprobs)) {
    completion.logprobs = static_cast<std::int32_t>(*count);
    fields.sampling.num_logprobs = completion.logprobs;
    if (completion.echo && !fields.sampling.num_prompt_logprobs)
      fields.sampling.num_prompt_logprobs = completion.logprobs;
  }
  fields.prompt_only = completion.echo && fields.max_tokens == 0;
  if (fields.max_tokens == 0 && !completion.echo)
    reader.fail(fields::generation::kMaxTokens, "'max_tokens' must be at least 1 without 'echo'");
  if (!fields.to_context_end) fields.max_tokens = std::max(1, fields.max_tokens.value_or(16));
  completion.num_returned = fields.num_choices;
  if (const auto best_of = reader.integer(fields::completions::kBestOf, model.max_num_choices);
      best_of && *best_of != 0) {
    if (*best_of < fields.num_choices)
      reader.fail(fields::completions::kBestOf, "'best_of' must not be smaller than 'n'");
    if (fields.stream && *best_of != fields.num_choices)
      reader.fail(fields::completions::kBestOf, "'best_of' larger than 'n' cannot be streamed");
    if (*best_of != fields.num_choices && !fields.sampling.num_logprobs) fields.sampling.num_logprobs = 0;
    fields.num_choices = static_cast<std::int32_t>(*best_of);
  }
  reader.refuse_from(fields::kNativeFields);
  reader.string(fields::generation::kUser);
  return completion;
}

// Replaces the prompts' tokens by those that ask the model to fill the text before `suffix`.
void put_before(FieldReader& reader, const ServedModel& model, const std::string& suffix, GenerationFields& fields,
                std::vector<Prompt>& prompts) {
  reader.refuse_unless(fields::completions::kEcho, false, "a text with a suffix does not begin with its prompt");
  const Json* given = reader.find(fields::completions::kPrompt);
  const Json texts = given != nullptr && given->is_array() ? *given : Json::array({given != nullptr ? *given : Json()});
  for (std::size_t i = 0; i < prompts.size() && !reader.error(); ++i) {
    if (i >= texts.size() || !texts[i].is_string())
      return reader.fail(fields::completions::kPrompt, "'prompt' must be a text, or texts, where there is a 'suffix'",
                         "invalid_type");
    FimText text;
    text.before = texts[i].get<std::string>();
    text.after = suffix;
    auto tokens = infill_prompt(model, text, fields);
    if (!tokens) return reader.refuse(fields::completions::kSuffix, "this model has no tokens to fill in the middle");
    prompts[i].tokens = *std::move(tokens);
  }
}

}  // namespace

Result<std::unique_ptr<Operation>> parse_completion(ModelCall& asked, const Call& call) {
  auto& [body, reader, model] = asked;
  GenerationFields fields = read_generation_fields(reader, *model);
  const CompletionFields completion = read_completion_fields(reader, fields, *model);
  std::vector<Prompt> prompts = read_prompts(reader, fields::completions::kPrompt, *model);
  if (const std::string suffix = reader.string(fields::completions::kSuffix).value_or(""); !suffix.empty())
    put_before(reader, *model, suffix, fields, prompts);
  auto grammar = read_constraint(reader, *model);
  fields.transfer = read_prefix_transfer(reader);
  if (fields.transfer.publishes && prompts.size() > 1)
    reader.fail(fields::generation::kKvTransferParams,
                "'kv_transfer_params.do_remote_decode' takes one prompt at a time");
  if (reader.error()) return tl::make_unexpected(*reader.error());

  std::vector<std::int32_t> max_tokens;
  std::int64_t num_tokens = 0;
  for (Prompt& prompt : prompts) {
    const std::size_t before = prompt.tokens.size();
    auto fitted = fit_prompt(std::move(prompt.tokens), fields, *model, "prompt");
    if (!fitted) return tl::make_unexpected(fitted.error());
    prompt.tokens = std::move(fitted->tokens);
    if (completion.echo && prompt.tokens.size() != before) prompt.text = decoded(*model->tokenizer, prompt.tokens);
    max_tokens.push_back(fitted->max_tokens);
    num_tokens += static_cast<std::int64_t>(prompt.tokens.size());
  }
  const auto bounded =
      check_prompt_logprobs(num_tokens, fields, completion.prompt_logprobs ? "prompt_logprobs" : "logprobs");
  if (!bounded) return tl::make_unexpected(bounded.error());
  auto origin = take_origin(call, *model, prompts.size(), fields);
  if (!origin) return tl::make_unexpected(origin.error());
  ResponseHeader header{response_id("cmpl-", fields), call.created, model->name};
  auto operation =
      std::make_unique<CompletionOperation>(model, std::move(fields), std::move(header), completion, prompts);
  if (*origin) operation->set_origin(**std::move(origin));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    operation->add_prompt(std::move(prompts[i].tokens), max_tokens[i], grammar == nullptr ? nullptr : grammar->grammar,
                          call, false);
  }
  return operation;
}

Result<std::unique_ptr<Operation>> render_completion(ModelCall& asked, const Call& call) {
  return rendered(parse_completion(asked, call), call, true);
}

}  // namespace quire
