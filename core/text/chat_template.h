// ChatTemplate: a model's Jinja chat template, parsed once, rendered per request. Immutable after construction; any
// thread. Invariant: text that came from the client is marked untrusted through every filter, so that it can never
// forge a control token. Renders exactly like Python's Jinja2 3.1 in transformers' setting (immutable sandbox,
// trim_blocks, lstrip_blocks, loop controls, tojson, raise_exception, strftime_now, generation blocks).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json/json_fwd.h"
#include "core/base/result.h"
#include "core/base/work_limit.h"
#include "core/text/tokenizer.h"

namespace quire {

struct RenderLimits {
  std::size_t max_output_bytes = std::size_t{16} << 20;
  std::size_t max_depth = 200;         // macro calls and recursive loops
  std::size_t max_steps = 20'000'000;  // evaluated nodes
  WorkLimit work = {};
};

struct TemplateOptions {
  bool trim_blocks = true;    // the line end after a block goes
  bool lstrip_blocks = true;  // so does white space between a line's begin and a block
  // append(), extend(), insert() and pop() change lists, and `set message.x` a message, which transformers refuses.
  bool changes_values = false;
};

class ChatTemplate {
 public:
  static constexpr std::size_t kMaxSourceBytes = std::size_t{1} << 20;

  static Result<ChatTemplate> parse(std::string_view source, const TemplateOptions& options = {});
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // Renders with the given variables (messages, tools, add_generation_prompt, bos_token, ..., as transformers passes
  // them). Trusted in `context` are the variables that is_trusted_variable() names, which come from the server, and a
  // message's role and a part's type if they are words that the API defines. Everything else came from the client. If
  // limits.work was reached, the error's code is WorkLimit::kCode. now: local time that strftime_now reads; the
  // machine's clock if absent.
  Result<std::vector<TextPiece>> render(const Json& context, const RenderLimits& limits = {},
                                        std::optional<std::chrono::sys_seconds> now = std::nullopt) const;

  std::string_view source() const;

 private:
  class Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Variables whose strings may hold control tokens: a server refuses them in a request's chat_template_kwargs.
bool is_trusted_variable(std::string_view name);

// Used if a model's file has no template: ChatML.
extern const std::string_view kDefaultChatTemplate;

}  // namespace quire
