// OutputParser: splits a model's text, as it is generated, into content, reasoning and tool calls. One thread at a
// time. Invariants: it never fails, whatever the text; the joined deltas do not depend on how the text was cut into
// pieces; a partial marker is held back until it is complete or ruled out. Cost: linear in the text (calls in progress
// are reread as they grow, in ever larger steps).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json/json.h"
#include "core/text/tools/tool_format.h"

namespace quire {

struct ToolCallDelta {
  std::size_t index = 0;  // index of the call within the message
  std::string id;    // sent once, with the name if the format has it there; the server makes one if the model does not
  std::string name;  // in a call's first delta only
  std::string arguments;  // the next piece of the arguments' JSON text
};

// Order within a delta: reasoning, content, calls. Output in another order is split into several deltas.
struct OutputDelta {
  std::string content;
  std::string reasoning;
  std::vector<ToolCallDelta> tool_calls;
  bool empty() const { return content.empty() && reasoning.empty() && tool_calls.empty(); }
};

// The tool's parameters and their JSON types, as far as its schema tells.
struct ToolParameter {
  std::string name;
  std::vector<std::string> types;  // empty: the schema does not say
  bool required = false;
  std::vector<ToolParameter> members = {};  // members of an object, a few levels deep
  std::vector<ToolParameter> items = {};    // items of an array; none if the schema does not say
};
struct ToolSpec {
  std::string name;
  std::vector<ToolParameter> parameters;
};
// Reads the `tools` array of a request; skips malformed entries (the request's own validation reports them).
std::vector<ToolSpec> read_tool_specs(const Json& tools);

struct OutputParserOptions {
  bool parse_tools = true;      // false: calls stay in the content (no tools, or tool_choice "none")
  bool parse_reasoning = true;  // false: reasoning and its tags stay in the content
  // The rendered prompt, or its end: an open think tag in it means that the output begins inside the reasoning.
  std::string prompt_end;
  // true: calls are streamed as they are written, and one that is cut off or malformed stays a call (as llama-server
  // does). false: calls come when they are complete; where one is malformed the text is content instead (as vLLM does).
  bool eager = true;
  // Not eager: nothing is mended or left out: a call that is cut off is content, text behind calls too.
  bool exact = false;
  bool json_content = false;  // the content is to be JSON: a Markdown fence around it is dropped
};

class OutputParser {
 public:
  OutputParser(const ToolFormat& format, std::vector<ToolSpec> tools, OutputParserOptions options);
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;

  std::vector<OutputDelta> push(std::string_view text);
  std::vector<OutputDelta> finish();  // the output is complete; push() may not follow
  bool in_reasoning() const;          // next text is reasoning: counts its tokens

  class State;

 private:
  std::unique_ptr<State> state_;
};

// A whole output at once.
struct ParsedToolCall {
  std::string id;
  std::string name;
  std::string arguments;
};
struct ParsedOutput {
  std::string content;
  std::string reasoning;
  std::vector<ParsedToolCall> tool_calls;
  void apply(const OutputDelta& delta);
  void apply(const std::vector<OutputDelta>& deltas);
};

}  // namespace quire
