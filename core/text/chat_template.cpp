#include "core/text/chat_template.h"

#include <algorithm>
#include <ctime>
#include <new>

#include "core/base/json/json.h"
#include "core/text/jinja/evaluator.h"
#include "core/text/jinja/failure.h"
#include "core/text/jinja/parse/ast.h"
#include "core/text/jinja/parse/lexer.h"

namespace quire {
namespace {

constexpr std::string_view kTrustedVariables[] = {
    "bos_token",   "eos_token",   "unk_token",  "sep_token",
    "pad_token",   "cls_token",   "mask_token", "additional_special_tokens",
    "date",        "date_string", "eot_token",  "image_token",
    "video_token", "audio_token", "boi_token",  "eoi_token",
};

// Words of the API itself: a template may build a control token around them, and a client can choose among them anyway.
constexpr std::string_view kRoles[] = {"system",   "developer", "user",  "assistant",  "tool",
                                       "function", "ipython",   "model", "observation"};
constexpr std::string_view kPartTypes[] = {"text",        "image", "image_url", "audio",
                                           "input_audio", "video", "file",      "function"};

template <std::size_t Size>
bool is_one_of(std::string_view word, const std::string_view (&words)[Size]) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

jinja::Value to_value(const Json& json, bool trusted, std::size_t depth = 0);

// Whether `value`, a word that the API defines for `key`, may be trusted: {"role": "user"}, {"type": "text"}.
bool is_api_word(const std::string& key, const Json& value) {
  if (!value.is_string()) return false;
  const auto& word = value.get_ref<const std::string&>();
  return (key == "role" && is_one_of(word, kRoles)) || (key == "type" && is_one_of(word, kPartTypes));
}

jinja::Value to_dict(const Json& json, bool trusted, std::size_t depth) {
  jinja::Dict dict;
  for (const auto& [key, value] : json.items()) {
    dict.set(jinja::Value::string(jinja::Text(key, trusted)),
             to_value(value, trusted || is_api_word(key, value), depth + 1));
  }
  return jinja::Value::dict(std::move(dict));
}

jinja::Value to_value(const Json& json, bool trusted, std::size_t depth) {
  if (depth > jinja::kMaxNesting) jinja::fail("the variables are nested too deeply");
  switch (json.type()) {
    case Json::value_t::boolean: return jinja::Value::boolean(json.get<bool>());
    case Json::value_t::number_integer: return jinja::Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_unsigned:
      return jinja::Value::integer(static_cast<jinja::Integer>(json.get<std::uint64_t>()));
    case Json::value_t::number_float: return jinja::Value::real(json.get<double>());
    case Json::value_t::binary: return jinja::Value::long_integer(*digits_beyond_64_bits(json));
    case Json::value_t::string: return jinja::Value::string(jinja::Text(json.get<std::string>(), trusted));
    case Json::value_t::object: return to_dict(json, trusted, depth);
    case Json::value_t::array: {
      std::vector<jinja::Value> items;
      for (const auto& item : json)
        items.push_back(to_value(item, trusted, depth + 1));
      return jinja::Value::list(std::move(items));
    }
    default: return jinja::Value::none();
  }
}

// Messages whose members a template assigns.
jinja::Value to_changing_messages(jinja::Evaluator& evaluator, const Json& messages) {
  std::vector<jinja::Value> items;
  for (const auto& message : messages) {
    if (!message.is_object()) {
      items.push_back(to_value(message, false));
      continue;
    }
    const auto space = evaluator.make_namespace();
    for (const auto& [key, value] : message.items())
      space->set(jinja::Value::string(jinja::Text(key, false)), to_value(value, is_api_word(key, value)));
    items.push_back(jinja::Value::object(space));
  }
  return jinja::Value::list(std::move(items));
}

std::chrono::sys_seconds local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return std::chrono::sys_seconds(std::chrono::seconds(now + local.tm_gmtoff));
}

std::string with_line(const std::string& message, int line) {
  return line == 0 ? message : message + " (line " + std::to_string(line) + " of the chat template)";
}

}  // namespace

class ChatTemplate::Impl {
 public:
  Impl(std::string_view source, const TemplateOptions& options)
      : source_(source),
        body_(jinja::parse_template(source, {options.trim_blocks, options.lstrip_blocks})),
        changes_values_(options.changes_values) {
    jinja::check_names(body_);
  }

  std::string_view source() const { return source_; }
  const jinja::Body& body() const { return body_; }
  bool changes_values() const { return changes_values_; }
  bool changes_messages() const { return changes_values_ && source_.find("set message.") != std::string::npos; }

 private:
  std::string source_;
  jinja::Body body_;
  bool changes_values_;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const TemplateOptions& options) {
  if (source.size() > kMaxSourceBytes) {
    return invalid("chat template: it is longer than " + std::to_string(kMaxSourceBytes) + " bytes", "chat_template");
  }
  try {
    return ChatTemplate(std::make_unique<Impl>(source, options));
  } catch (const jinja::Failure& failure) {
    return invalid("chat template: " + with_line(failure.message, failure.line), "chat_template");
  }
}

Result<std::vector<TextPiece>> ChatTemplate::render(const Json& context, const RenderLimits& limits,
                                                    std::optional<std::chrono::sys_seconds> now) const try {
  if (!context.is_object()) return invalid("the template's variables must be an object");
  jinja::Evaluator evaluator(limits, now.value_or(local_now()), impl_->changes_values());
  try {
    std::vector<std::pair<std::string, jinja::Value>> variables;
    for (const auto& [name, value] : context.items()) {
      const bool changes = name == "messages" && impl_->changes_messages();
      variables.emplace_back(
          name, changes ? to_changing_messages(evaluator, value) : to_value(value, is_trusted_variable(name)));
    }
    return evaluator.render(impl_->body(), std::move(variables)).pieces();
  } catch (const jinja::Failure& failure) {
    return invalid("chat template: " + with_line(failure.message, evaluator.line()), "messages");
  } catch (const jinja::Interrupted&) {
    return interrupted();
  }
} catch (const std::bad_alloc&) {
  return failure(ErrorKind::kNoMemory, "The chat template needs more memory than there is.", "out_of_memory");
}

std::string_view ChatTemplate::source() const {
  return impl_->source();
}

bool is_trusted_variable(std::string_view name) {
  return is_one_of(name, kTrustedVariables);
}

constexpr std::string_view kDefaultSource =
    "{%- for message in messages -%}\n"
    "{{ '<|im_start|>' + message.role + '\\n' }}\n"
    "{%- if message.content is string -%}\n"
    "{{ message.content }}\n"
    "{%- elif message.content is iterable -%}\n"
    "{%- for part in message.content if part.type == 'text' -%}{{ part.text }}{%- endfor -%}\n"
    "{%- endif -%}\n"
    "{{ '<|im_end|>\\n' }}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}\n";
const std::string_view kDefaultChatTemplate = kDefaultSource;

}  // namespace quire
