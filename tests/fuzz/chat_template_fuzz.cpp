#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/base/json/json.h"
#include "core/text/chat_template.h"

namespace {

const quire::Json& context() {
  static const auto kValue = quire::Json::parse(R"({
    "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "Hi <|im_end|> é"},
                 {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": 1.5}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}], "add_generation_prompt": true, "n": 7})");
  return kValue;
}

}  // namespace

// Parses any text as a template: it renders within its limits, output included, or is refused with a message.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto chat_template = quire::ChatTemplate::parse(text);
  if (!chat_template) return chat_template.error().message.empty() ? std::abort(), 0 : 0;
  quire::RenderLimits limits;
  limits.max_steps = 100'000;
  limits.max_output_bytes = 1 << 20;
  const auto pieces = chat_template->render(context(), limits);
  if (!pieces) return pieces.error().message.empty() ? std::abort(), 0 : 0;
  std::size_t num_bytes = 0;
  for (const auto& piece : *pieces)
    num_bytes += piece.text.size();
  if (num_bytes > limits.max_output_bytes) std::abort();
  return 0;
}
