// `quire run`: a chat in the terminal, with a model of its own or with a server.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/message_text.h"
#include "server/cli/commands.h"
#include "server/cli/run/chat_client.h"
#include "server/cli/run/chosen_server.h"
#include "server/cli/run/conversation.h"
#include "server/cli/run/line_editor.h"

namespace quire::cli {

namespace {

struct RunArguments {
  ServerChoice server;
  std::vector<std::string> question;
  std::vector<std::string> settings;  // NAME=VALUE
  std::string system;
};

// Prints an answer; reasoning is dimmed if stdout is a terminal.
class AnswerPrinter {
 public:
  void operator()(const ChatPiece& piece) {
    if (is_terminal_ && piece.is_reasoning != is_dim_) fmt::print("{}", piece.is_reasoning ? "\033[2m" : "\033[0m\n");
    is_dim_ = piece.is_reasoning;
    if (!piece.is_reasoning || is_terminal_) fmt::print("{}", piece.text);
    std::fflush(stdout);
  }

  void finish(const Result<ChatAnswer>& answer) {
    fmt::print("{}\n", is_terminal_ && is_dim_ ? "\033[0m" : "");
    std::fflush(stdout);
    is_dim_ = false;
    if (!answer) fmt::print(stderr, "quire run: {}\n", answer.error().message);
    if (answer && answer->finish_reason == "stopped") fmt::print(stderr, "(stopped)\n");
    if (answer && answer->finish_reason == "length")
      fmt::print(stderr, "(cut: max_tokens or the context is exhausted)\n");
  }

 private:
  const bool is_terminal_ = ::isatty(STDOUT_FILENO) != 0;
  bool is_dim_ = false;
};

class TerminalChat {
 public:
  TerminalChat(const ChatClient& client, std::string model, Conversation& conversation)
      : client_(client), model_(std::move(model)), conversation_(conversation) {}

  // Returns false if there was no answer.
  bool ask(const std::string& question) {
    AnswerPrinter printer;
    const auto answer =
        client_.ask(conversation_.body(model_, question), [&printer](const ChatPiece& piece) { printer(piece); });
    printer.finish(answer);
    if (answer && !answer->text.empty()) conversation_.add(question, answer->text);
    return answer.has_value();
  }

  void loop() {
    LineEditor editor;
    if (editor.is_terminal()) fmt::print("{}. /help lists commands; Ctrl-C stops an answer, Ctrl-D ends\n", model_);
    while (const auto line = read_text(editor)) {
      if (line->starts_with('/')) {
        if (!command(*line)) return;
      } else if (line->find_first_not_of(" \n") != std::string::npos) {
        ask(*line);
      }
    }
    if (editor.is_terminal()) fmt::print("\n");
  }

 private:
  // Reads a line, or the lines between two """.
  static std::optional<std::string> read_text(LineEditor& editor) {
    constexpr std::string_view kQuotes = "\"\"\"";
    auto line = editor.read_line();
    if (!line || !line->starts_with(kQuotes)) return line;
    std::string text = line->substr(kQuotes.size());
    while (!text.ends_with(kQuotes)) {
      line = editor.read_line(true);
      if (!line) return line;
      text += "\n" + *line;
    }
    return text.substr(0, text.size() - kQuotes.size());
  }

  // Returns false if the chat ends.
  bool command(const std::string& line) {
    const std::size_t space = std::min(line.find(' '), line.size());
    const std::string name = line.substr(0, space);
    const std::string rest = line.substr(std::min(space + 1, line.size()));
    if (name == "/bye" || name == "/exit" || name == "/quit") return false;
    if (name == "/help" || name == "/?") {
      fmt::print("{}", Conversation::help());
    } else if (name == "/clear") {
      conversation_.clear();
    } else if (name == "/retry") {
      const std::string question = conversation_.take_back();
      if (question.empty()) fmt::print("there is no question yet\n");
      if (!question.empty()) ask(question);
    } else if (name == "/image") {
      const auto attached = conversation_.attach(rest);
      if (!attached) fmt::print("{}\n", attached.error().message);
      if (attached) fmt::print("{} image(s) before the next question\n", conversation_.num_attached());
    } else if (name == "/set") {
      set(rest);
    } else {
      const auto likely = likely_name(name, {"/set", "/image", "/retry", "/clear", "/help", "/bye"});
      fmt::print("unknown command '{}'; {}\n", name,
                 likely ? fmt::format("did you mean '{}'?", *likely) : std::string("/help lists all"));
    }
    std::fflush(stdout);
    return true;
  }

  void set(const std::string& rest) {
    if (rest.empty()) return fmt::print("{}", conversation_.settings());
    const std::size_t space = std::min(rest.find(' '), rest.size());
    const auto done = conversation_.set(rest.substr(0, space), rest.substr(std::min(space + 1, rest.size())));
    if (!done) fmt::print("{}\n", done.error().message);
  }

  const ChatClient& client_;
  const std::string model_;
  Conversation& conversation_;
};

Conversation begun(const RunArguments& arguments) {
  Conversation conversation;
  if (!arguments.system.empty()) (void)conversation.set("system", arguments.system);
  for (const std::string& setting : arguments.settings) {
    const std::size_t equals = std::min(setting.find('='), setting.size());
    const auto done = conversation.set(setting.substr(0, equals), setting.substr(std::min(equals + 1, setting.size())));
    if (!done) throw StartupError("--set: " + done.error().message);
  }
  return conversation;
}

void run(RunArguments arguments) {
  Conversation conversation = begun(arguments);
  // All words are the question if --url or --hf is given.
  ServerChoice& choice = arguments.server;
  const bool is_text = !choice.url.empty() || !choice.hf.empty();
  if (is_text && !choice.model.empty()) arguments.question.insert(arguments.question.begin(), choice.model);
  const ChosenServer server(choice, "quire run", "MODEL");
  TerminalChat chat(server.client(), server.model().name, conversation);
  if (arguments.question.empty()) return chat.loop();
  std::string question;
  for (const std::string& word : arguments.question)
    question += (question.empty() ? "" : " ") + word;
  if (!chat.ask(question)) throw CLI::RuntimeError(1);
}

}  // namespace

void add_run(CLI::App& app) {
  const auto arguments = std::make_shared<RunArguments>();
  CLI::App* command = app.add_subcommand("run", "Chat with a model in the terminal");
  command
      ->add_option("MODEL", arguments->server.model,
                   "GGUF file or Hugging Face directory; left out with --hf and --url")
      ->type_name("");
  command->add_option("QUESTION", arguments->question, "Answer this and exit; without it, a conversation")
      ->type_name("");
  add_server_choice(*command, arguments->server);
  command->add_option("--system", arguments->system, "The system message")->type_name("TEXT");
  command->add_option("--set", arguments->settings, "A setting, as /set: --set temperature=0; repeat it for more")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command->callback([arguments] { run(*arguments); });
}

}  // namespace quire::cli
