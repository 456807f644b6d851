// OutputParser::State: the implementations of an OutputParser, for text formats with markers and for gpt-oss's
// channels. One thread at a time. Not for use outside core/text/tools.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/tools/call_reader.h"
#include "core/text/tools/output_parser.h"

namespace quire {

class OutputParser::State {
 public:
  State(const ToolFormat& format, std::vector<ToolSpec> tools, OutputParserOptions options)
      : format_(format), tools_(std::move(tools)), options_(std::move(options)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  virtual ~State() = default;

  std::vector<OutputDelta> push(std::string_view text, bool final) {
    pending_ += text;
    process(final);
    return std::exchange(deltas_, {});
  }
  virtual bool in_reasoning() const = 0;

 protected:
  // Turns the text of pending_ whose meaning is certain into deltas_; all of it where `final`.
  virtual void process(bool final) = 0;

  // Emits what is new in `calls`, the message's calls from number `first` on.
  void emit_calls(const std::vector<ParsedToolCall>& calls, std::size_t first);
  void add_content(std::string_view text);
  void add_reasoning(std::string_view text);

  ToolFormat format_;
  std::vector<ToolSpec> tools_;
  OutputParserOptions options_;
  std::string pending_;
  std::vector<OutputDelta> deltas_;

 private:
  struct Sent {
    bool id = false;
    bool name = false;
    std::size_t num_argument_bytes = 0;
  };
  std::vector<Sent> sent_;
};

std::unique_ptr<OutputParser::State> make_marked_state(const ToolFormat& format, std::vector<ToolSpec> tools,
                                                       OutputParserOptions options);
std::unique_ptr<OutputParser::State> make_harmony_state(const ToolFormat& format, std::vector<ToolSpec> tools,
                                                        OutputParserOptions options);

}  // namespace quire
