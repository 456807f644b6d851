#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/text/tools/output_parser.h"

namespace {

quire::ParsedOutput parse(const quire::ToolFormat& format, std::string_view text, std::size_t piece, bool eager) {
  quire::OutputParserOptions options;
  options.eager = eager;
  quire::OutputParser parser(format, {{"f", {{"a", {"integer"}, true}, {"b", {"string"}, false}}}}, options);
  quire::ParsedOutput output;
  for (std::size_t i = 0; i < text.size(); i += piece)
    output.apply(parser.push(text.substr(i, piece)));
  output.apply(parser.finish());
  return output;
}

bool same(const quire::ParsedOutput& a, const quire::ParsedOutput& b) {
  if (a.content != b.content || a.reasoning != b.reasoning || a.tool_calls.size() != b.tool_calls.size()) return false;
  for (std::size_t i = 0; i < a.tool_calls.size(); ++i) {
    if (a.tool_calls[i].name != b.tool_calls[i].name || a.tool_calls[i].arguments != b.tool_calls[i].arguments)
      return false;
  }
  return true;
}

}  // namespace

// The first line names the format ("!" before it: not eager), the rest is a model's output: the message does not depend
// on how it is cut. An unknown name chooses a format by its first byte.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t line_end = input.find('\n');
  if (line_end == std::string_view::npos || line_end == 0) return 0;
  const bool eager = input[0] != '!';
  const std::string_view name = input.substr(eager ? 0 : 1, line_end - (eager ? 0 : 1));
  const quire::ToolFormat* format = quire::find_tool_format(name);
  const auto names = quire::tool_format_names();
  if (format == nullptr) format = quire::find_tool_format(names[data[0] % names.size()]);
  const std::string_view text = input.substr(line_end + 1);
  if (!same(parse(*format, text, text.size() + 1, eager), parse(*format, text, 1, eager))) std::abort();
  return 0;
}
