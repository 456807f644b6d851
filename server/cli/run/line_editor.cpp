#include "server/cli/run/line_editor.h"

#include <histedit.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>

namespace quire::cli {

namespace {

constexpr int kMostLines = 1000;

// $XDG_STATE_HOME/quire_history, or ~/.local/state/quire_history; empty if there is no home folder.
std::filesystem::path history_file() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (state == nullptr && home == nullptr) return {};
  const std::filesystem::path folder = state != nullptr ? state : std::filesystem::path(home) / ".local/state";
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  return folder / "quire_history";
}

unsigned char clear_line(EditLine* editor, int) {
  const LineInfo* line = el_line(editor);
  el_cursor(editor, static_cast<int>(line->lastchar - line->cursor));
  el_deletestr(editor, static_cast<int>(line->lastchar - line->buffer));
  return CC_REDISPLAY;
}

}  // namespace

struct LineEditor::Terminal {
  EditLine* editor = nullptr;
  History* history = nullptr;
  HistEvent event{};
  std::filesystem::path file = history_file();
  bool continued = false;
};

LineEditor::LineEditor() {
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0) return;
  std::setlocale(LC_CTYPE, "");
  terminal_ = std::make_unique<Terminal>();
  Terminal& terminal = *terminal_;
  terminal.history = history_init();
  history(terminal.history, &terminal.event, H_SETSIZE, kMostLines);
  history(terminal.history, &terminal.event, H_SETUNIQUE, 1);
  if (!terminal.file.empty()) history(terminal.history, &terminal.event, H_LOAD, terminal.file.c_str());
  terminal.editor = el_init("quire", stdin, stdout, stderr);
  EditLine* editor = terminal.editor;
  el_set(editor, EL_CLIENTDATA, &terminal);
  el_set(
      editor, EL_PROMPT, +[](EditLine* of) -> const char* {
        void* data = nullptr;
        el_get(of, EL_CLIENTDATA, &data);
        return static_cast<Terminal*>(data)->continued ? ". " : "> ";
      });
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_HIST, history, terminal.history);
  el_set(editor, EL_SETTY, "-d", "-isig", nullptr);  // Ctrl-C is an ordinary key while a line is typed
  el_set(editor, EL_ADDFN, "quire-clear-line", "clear the line", clear_line);
  el_set(editor, EL_BIND, "^C", "quire-clear-line", nullptr);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
}

LineEditor::~LineEditor() {
  if (!terminal_) return;
  if (!terminal_->file.empty()) {
    history(terminal_->history, &terminal_->event, H_SAVE, terminal_->file.c_str());
    std::error_code ignored;
    std::filesystem::permissions(terminal_->file,
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_write, ignored);
  }
  el_end(terminal_->editor);
  history_end(terminal_->history);
}

std::optional<std::string> LineEditor::read_line(bool continued) {
  std::string line;
  if (!terminal_) return std::getline(std::cin, line) ? std::optional(line) : std::nullopt;
  std::signal(SIGINT, SIG_IGN);  // Ctrl-C between an answer's end and the next line has no effect
  terminal_->continued = continued;
  int count = 0;
  const char* typed = el_gets(terminal_->editor, &count);
  if (typed == nullptr || count <= 0) return std::nullopt;
  line.assign(typed, static_cast<std::size_t>(count));
  if (line.ends_with('\n')) line.pop_back();
  if (line.find_first_not_of(' ') != std::string::npos)
    history(terminal_->history, &terminal_->event, H_ENTER, line.c_str());
  return line;
}

}  // namespace quire::cli
