#include "server/api/chat.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "server/api/chat_operation.h"
#include "server/api/constraints.h"

namespace quire {

namespace {

// Enough of a prompt to see whether it leaves a reasoning section open.
constexpr std::size_t kPromptEnd = 512;

void refuse_chat_fields(FieldReader& reader) {
  reader.refuse("audio", "this model writes text only");
  reader.refuse_unless("modalities", Json::array({"text"}), "this model writes text only");
  reader.refuse("prediction", "predicted outputs are not served");
  reader.refuse("web_search_options", "the server has no web search");
  reader.refuse("moderation", "the server has no moderation model");
  reader.refuse_unless("store", false, "chat completions are not stored");
  reader.refuse_unless("verbosity", "medium", "the model has no such control");
  reader.refuse("prompt_cache_retention", "cached prompts live as long as there is room");
  reader.refuse("prompt_cache_options", "cached prompts live as long as there is room");
  reader.refuse_unless("echo", false, "a chat's prompt is not shown");
  reader.word("service_tier", {"auto", "default"});
  for (const char* hint : {"user", "safety_identifier", "prompt_cache_key"})
    reader.string(hint);
}

ChatFields read_chat_fields(FieldReader& reader, GenerationFields& fields) {
  ChatFields chat;
  chat.logprobs = reader.boolean("logprobs", false);
  const auto top = reader.integer("top_logprobs", 0, kMaxLogprobs);
  if (top && *top > 0 && !chat.logprobs) reader.fail("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  if (chat.logprobs) {
    chat.top_logprobs = static_cast<std::size_t>(top.value_or(0));
    fields.sampling.num_logprobs = static_cast<std::int32_t>(chat.top_logprobs);
  }
  if (const auto count = reader.integer("max_completion_tokens", 1, std::numeric_limits<std::int32_t>::max())) {
    fields.max_tokens = static_cast<std::int32_t>(*count);
  }
  if (fields.max_tokens == 0) reader.fail("max_tokens", "'max_tokens' must be at least 1");
  if (const auto best_of = reader.integer("best_of", 1, 128); best_of && *best_of != fields.num_choices) {
    reader.refuse("best_of", "chat completions return all of their choices");
  }
  chat.include_reasoning = reader.boolean("include_reasoning", true);
  chat.metadata = read_metadata(reader);
  return chat;
}

void read_thinking_budget(FieldReader& reader, GenerationFields& fields, const ServedModel& model) {
  for (const char* name : {"thinking_token_budget", "thinking_budget"}) {
    const auto budget = reader.integer(name, 0, std::numeric_limits<std::int32_t>::max());
    if (budget) limit_thinking(fields, model, static_cast<std::int32_t>(*budget));
  }
}

bool writes_reasoning(const ServedModel& model) {
  const std::string_view source = model.chat_template->source();
  const ToolFormat& format = model.tool_format;
  return format.starts_in_reasoning || source.find(format.think_begin) != std::string_view::npos ||
         source.find(format.think_end) != std::string_view::npos;
}

ChatReading reading_of(const ServedModel& model, const ToolFields& tools, bool free_text, std::string prompt_end) {
  ChatReading reading;
  // A text that is constrained from its first byte has no reasoning in it.
  const bool reasoning = free_text && writes_reasoning(model);
  if (!tools.offered() && !reasoning) return reading;
  reading.format = &call_format(model, tools);
  if (tools.offered()) reading.tools = read_tool_specs(tools.tools);
  reading.options.parse_tools = tools.offered();
  reading.options.parse_reasoning = reasoning;
  reading.options.prompt_end = std::move(prompt_end);
  return reading;
}

}  // namespace

void limit_thinking(GenerationFields& fields, const ServedModel& model, std::int32_t num_tokens) {
  fields.sampling.thinking_budget =
      SamplingParams::ThinkingBudget{num_tokens, model.tokenizer->encode(model.tool_format.think_end, false, true)};
}

std::optional<PreparedChat> encode_conversation(FieldReader& reader, const ServedModel& model, ChatPromptFields prompt,
                                                const ToolFields& tools, std::shared_ptr<const Grammar> grammar) {
  PreparedChat prepared;
  const bool demanded = grammar != nullptr;
  if (demanded && tools.constrained) {
    reader.fail("tools", "constrained tool calls and a constrained text exclude each other", "unsupported_parameter");
  }
  prepared.grammar = demanded ? std::move(grammar) : tool_constraint(reader, model, tools);
  if (reader.error()) return std::nullopt;
  const bool free_text = prepared.grammar == nullptr || (!demanded && tools.choice == ToolFields::Choice::kAuto);
  if (!free_text && !prompt.template_kwargs.contains("enable_thinking"))
    prompt.template_kwargs["enable_thinking"] = false;
  if (tools.offered()) prompt.tools = tools.tools;
  explain_tools(tools, model, prompt.messages);

  const auto pieces = render_chat(model, prompt);
  if (!pieces) {
    reader.fail(pieces.error().param, pieces.error().message, pieces.error().code);
    return std::nullopt;
  }
  std::string end;
  for (const TextPiece& piece : *pieces)
    end += piece.text;
  if (end.size() > kPromptEnd) end.erase(0, end.size() - kPromptEnd);
  prepared.reading = reading_of(model, tools, free_text, std::move(end));
  prepared.prompt = encode_chat(model, prompt, *pieces);
  return prepared;
}

std::optional<PreparedChat> prepare_chat(FieldReader& reader, const ServedModel& model, GenerationFields& fields,
                                         ChatPromptFields prompt, const ToolFields& tools,
                                         std::shared_ptr<const Grammar> grammar) {
  const std::string param = prompt.param;
  auto prepared = encode_conversation(reader, model, std::move(prompt), tools, std::move(grammar));
  if (!prepared) return std::nullopt;
  // Calls and reasoning are marked by tokens that a plain text would not show.
  if (prepared->reading.format != nullptr && !fields.sampling.ignore_eos) fields.skip_special_tokens = false;
  prepared->prompt = truncate_prompt(std::move(prepared->prompt), fields, model);
  const auto limit =
      resolve_max_tokens(static_cast<std::int64_t>(prepared->prompt.size()), fields.max_tokens, model, param);
  if (!limit) {
    reader.fail(limit.error().param, limit.error().message, limit.error().code);
    return std::nullopt;
  }
  prepared->max_tokens = *limit;
  return prepared;
}

Result<std::unique_ptr<Operation>> parse_chat(const ModelTable& models, const Call& call) {
  const auto body = parse_object(call.body);
  if (!body) return tl::make_unexpected(body.error());
  FieldReader reader(*body);
  const auto model = models.select(reader);
  if (!model) return tl::make_unexpected(model.error());
  GenerationFields fields = read_generation_fields(reader, **model);
  ChatFields chat = read_chat_fields(reader, fields);
  ChatPromptFields prompt = read_chat_prompt_fields(reader);
  const ToolFields tools = read_tool_fields(reader);
  chat.calls_as_functions = tools.as_functions;
  refuse_chat_fields(reader);
  read_thinking_budget(reader, fields, **model);
  auto grammar = read_constraint(reader, **model);
  if (reader.error()) return tl::make_unexpected(*reader.error());

  auto prepared = prepare_chat(reader, **model, fields, std::move(prompt), tools, std::move(grammar));
  if (!prepared) return tl::make_unexpected(*reader.error());
  ResponseHeader header{make_id("chatcmpl-"), call.created, (*model)->name};
  auto operation = std::make_unique<ChatOperation>(*model, std::move(fields), std::move(header), std::move(chat),
                                                   std::move(prepared->reading));
  operation->add_prompt(std::move(prepared->prompt), prepared->max_tokens, std::move(prepared->grammar), call, false);
  return operation;
}

}  // namespace quire
