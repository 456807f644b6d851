// LineEditor: lines typed at a terminal, edited and kept in a history by libedit; plain lines if standard input is not
// a terminal. One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace quire::cli {

class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  bool is_terminal() const { return terminal_ != nullptr; }
  // Reads a line, without its end; nothing at the end of the input (Ctrl-D). Ctrl-C clears the line. `continued`: the
  // line continues a text, and its prompt shows that.
  std::optional<std::string> read_line(bool continued = false);

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace quire::cli
