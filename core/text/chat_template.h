// ChatTemplate: a model's Jinja chat template, parsed once, rendered per request. Immutable after construction; any thread.
// Invariant: text that came from the client is marked untrusted through every filter, so that it can never forge a control token.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/text/tokenizer.h"

namespace quire {

struct RenderLimits {
  std::size_t max_output_bytes = std::size_t{16} << 20;
  std::size_t max_depth = 200;
  std::size_t max_steps = 20'000'000;  // evaluated nodes
};

class ChatTemplate {
 public:
  static Result<ChatTemplate> parse(std::string_view source);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // Renders with the given variables (messages, tools, add_generation_prompt, bos_token, ..., as transformers passes them).
  // `context` members named in kTrustedVariables are the server's own; everything else came from the client.
  Result<std::vector<TextPiece>> render(const nlohmann::ordered_json& context, const RenderLimits& limits = {}) const;

  std::string_view source() const;

 private:
  class Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Used where a model's file has no template: ChatML.
extern const std::string_view kDefaultChatTemplate;

}  // namespace quire
