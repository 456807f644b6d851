#include "server/api/conversation/prepared_chat.h"

#include <algorithm>
#include <vector>

#include "core/grammar/thinking.h"
#include "core/text/chat_template.h"
#include "server/api/conversation/media_prompt.h"
#include "server/api/fields/generation.h"
#include "server/api/generation/prompt_fit.h"

namespace quire {

namespace {

// Enough of a prompt to see whether it leaves a reasoning section open.
constexpr std::size_t kPromptEnd = 512;

ChatReading reading_of(const ServedModel& model, const ToolFields& tools, bool reasons, std::string prompt_end) {
  ChatReading reading;
  reading.short_ids = model.template_capabilities.nine_letter_ids;
  if (!tools.offered() && !reasons) return reading;
  reading.format = &call_format(model, tools);
  if (tools.offered()) reading.tools = read_tool_specs(tools.tools);
  reading.options.parse_tools = tools.offered();
  reading.options.parse_reasoning = reasons;
  reading.options.prompt_end = std::move(prompt_end);
  return reading;
}

bool asks_to_think(const ChatPromptFields& prompt) {
  const Json& kwargs = prompt.template_kwargs;
  if (kwargs.contains("enable_thinking")) return kwargs["enable_thinking"] == true;
  return prompt.thinking_budget.value_or(0) > 0;
}

std::string end_of(const std::vector<TextPiece>& pieces) {
  std::string end;
  for (const TextPiece& piece : pieces)
    end += piece.text;
  if (end.size() > kPromptEnd) end.erase(0, end.size() - kPromptEnd);
  return end;
}

bool leaves_reasoning_open(const ToolFormat& format, const std::string& prompt_end) {
  OutputParserOptions options;
  options.prompt_end = prompt_end;
  return OutputParser(format, {}, std::move(options)).in_reasoning();
}

bool closes_reasoning(const ToolFormat& format, std::string_view prompt_end) {
  prompt_end = prompt_end.substr(0, prompt_end.find_last_not_of(" \t\r\n") + 1);
  return prompt_end.ends_with(format.think_end);
}

// Sets how the answer's text is read, and its grammar if a reasoning section precedes the constrained text or has a
// budget. `free_text`: the grammar allows any beginning. If the prompt does not mention reasoning and the model should
// think, the section is opened in the prompt: with a constraint the model could not begin one.
void place_reasoning(const ServedModel& model, const ChatPromptFields& prompt, const ToolFields& tools, bool free_text,
                     std::vector<TextPiece>& pieces, PreparedChat& prepared) {
  const ToolFormat& format = model.tool_format;
  std::string end = end_of(pieces);
  bool reasons = writes_reasoning(model);
  bool open = reasons && leaves_reasoning_open(format, end);
  const bool marked = !format.think_begin.empty() && !format.think_end.empty();
  if (reasons && !free_text && !open && marked && asks_to_think(prompt) && !closes_reasoning(format, end)) {
    pieces.push_back({std::string(format.think_begin) + "\n", true});
    end = end_of(pieces);
    open = true;
  }
  reasons = reasons && (free_text || open);
  prepared.reading = reading_of(model, tools, reasons, std::move(end));
  // A grammar of calls that may begin leaves all other text free, reasoning included.
  const bool lazy = free_text && !tools.constrained;
  const bool follows = prepared.grammar != nullptr && open && !lazy;
  if (!reasons || !marked || (!follows && !prompt.thinking_budget)) return;
  const ThinkingSection section{std::string(format.think_begin), std::string(format.think_end), open,
                                prompt.thinking_budget, lazy};
  prepared.grammar = allow_thinking(model.tokenizer, section, std::move(prepared.grammar));
}

}  // namespace

bool writes_reasoning(const ServedModel& model) {
  const std::string_view source = model.chat_template->source();
  const ToolFormat& format = model.tool_format;
  return format.starts_in_reasoning || source.find(format.think_begin) != std::string_view::npos ||
         source.find(format.think_end) != std::string_view::npos;
}

std::optional<PreparedChat> prepare_chat(FieldReader& reader, const ServedModel& model, GenerationFields& fields,
                                         ChatPromptFields prompt, const ToolFields& tools,
                                         std::shared_ptr<const TextConstraint> grammar) {
  const std::string param = prompt.param;
  prompt.is_bounded = !fields.truncate_prompt_tokens.has_value();
  auto prepared = encode_conversation(reader, model, std::move(prompt), tools, std::move(grammar));
  if (!prepared || !fit_chat(reader, model, fields, param, *prepared)) return std::nullopt;
  return prepared;
}

std::optional<PreparedChat> encode_conversation(FieldReader& reader, const ServedModel& model, ChatPromptFields prompt,
                                                const ToolFields& tools,
                                                std::shared_ptr<const TextConstraint> grammar) {
  PreparedChat prepared;
  if (prompt.media && !prompt.media->read_all(reader, prompt.messages)) return std::nullopt;
  const bool demanded = grammar != nullptr;
  prepared.grammar = tool_constraint(reader, model, tools, grammar.get());
  if (demanded && prepared.grammar == nullptr) prepared.grammar = grammar->grammar;
  if (reader.error()) return std::nullopt;
  const bool free_text = prepared.grammar == nullptr || (!demanded && tools.choice == ToolFields::Choice::kAuto);
  // A constrained answer needs no reasoning, unless the request asks for it.
  if (!free_text && !asks_to_think(prompt)) prompt.template_kwargs["enable_thinking"] = false;
  if (tools.offered()) prompt.tools = tools.tools;

  auto pieces = render_chat(reader, model, prompt);
  if (!pieces) return std::nullopt;
  place_reasoning(model, prompt, tools, free_text, *pieces, prepared);
  auto encoded = encode_rendered(*pieces, prompt, model);
  if (!encoded) {
    reader.fail(encoded.error().param, encoded.error().message, encoded.error().code);
    return std::nullopt;
  }
  prepared.prompt = std::move(encoded->tokens);
  prepared.media = std::move(encoded->media);
  return prepared;
}

bool fit_chat(FieldReader& reader, const ServedModel& model, GenerationFields& fields, const std::string& param,
              PreparedChat& chat) {
  const std::size_t num_tokens = chat.prompt.size();
  auto fitted = fit_prompt(std::move(chat.prompt), fields, model, param);
  if (!fitted) {
    reader.fail(fitted.error().param, fitted.error().message, fitted.error().code);
    return false;
  }
  if (!chat.media.empty() && fitted->tokens.size() < num_tokens) {
    reader.fail(fields::generation::kTruncatePromptTokens,
                "A prompt with images is not cut: leave out turns of the conversation");
  } else if (!chat.media.empty() && fields.sampling.num_prompt_logprobs) {
    reader.refuse(fields::generation::kPromptLogprobs, "the rows of images have no log probabilities");
  }
  if (reader.error()) return false;
  chat.prompt = std::move(fitted->tokens);
  chat.max_tokens = fitted->max_tokens;
  // Calls and reasoning are marked by tokens that a plain text would not show.
  if (chat.reading.format != nullptr && !fields.sampling.ignore_eos) fields.skip_special_tokens = false;
  return true;
}

void leave_out_oldest(FieldReader& reader, const ServedModel& model, const GenerationFields& fields,
                      ChatPromptFields& prompt, const ToolFields& tools,
                      const std::shared_ptr<const TextConstraint>& grammar) {
  std::vector<std::size_t> turns;
  for (std::size_t i = 0; i < prompt.messages.size(); ++i) {
    if (prompt.messages[i]["role"] == "user") turns.push_back(i);
  }
  if (turns.empty()) return;
  const std::int64_t room = model.max_model_len - fields.max_tokens.value_or(1);
  const auto from_turn = [&](std::size_t turn) {
    ChatPromptFields kept = prompt;
    kept.messages.erase(kept.messages.begin() + static_cast<std::ptrdiff_t>(turns.front()),
                        kept.messages.begin() + static_cast<std::ptrdiff_t>(turn));
    kept.is_bounded = true;
    return kept;
  };
  const Json no_fields = Json::object();
  const auto is_too_long = [&](std::size_t turn) {
    FieldReader attempt(no_fields);
    attempt.set_limit(reader.limit());
    const auto encoded = encode_conversation(attempt, model, from_turn(turn), tools, grammar);
    if (encoded) return static_cast<std::int64_t>(encoded->prompt.size()) > room;
    if (attempt.error()->code == "context_length_exceeded") return true;
    take_error(reader, attempt);
    return false;
  };
  const auto first = std::partition_point(turns.begin(), turns.end() - 1, is_too_long);
  prompt = from_turn(*first);
}

}  // namespace quire
