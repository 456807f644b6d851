// `quire run`: a chat in the terminal, with a model of its own or with a server.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/nearest_name.h"
#include "server/cli/commands.h"
#include "server/cli/progress_line.h"
#include "server/cli/pull_progress.h"
#include "server/cli/run/chat_client.h"
#include "server/cli/run/conversation.h"
#include "server/cli/run/line_editor.h"
#include "server/cli/run/local_server.h"
#include "server/modules/modules.h"

namespace quire::cli {

namespace {

constexpr std::chrono::milliseconds kServerPatience{10'000};
constexpr std::chrono::milliseconds kLoadTick{1'000};

struct RunArguments {
  std::string model;
  std::string hf;  // a hub's repository in place of `model`
  std::vector<std::string> question;
  std::string url;
  std::string model_name;
  std::string api_key;
  ClientTrust trust;
  std::vector<std::string> settings;  // NAME=VALUE
  std::string system;
  std::vector<std::string> serve;  // flags of the started server
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

// Returns the model's name once the started server has loaded it.
std::string wait_for(const ChatClient& client, LocalServer& server, const std::string& path) {
  for (int seconds = 0;; ++seconds) {
    const auto model = client.first_model(kLoadTick);
    if (model) {
      if (seconds > 0) show_progress_line(fmt::format("loaded {} in {} s", path, seconds), true);
      return *model;
    }
    const std::string failure = server.failure();
    if (!failure.empty()) throw StartupError(failure.substr(failure.starts_with("quire: ") ? 7 : 0));
    show_progress_line(fmt::format("loading {}: {} s", path, seconds + 1), false);
  }
}

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

// Given --url or --hf, all words are the question. A model of a hub is downloaded here, where its progress shows.
void settle_model(RunArguments& arguments) {
  if (!arguments.url.empty() && !arguments.hf.empty()) throw StartupError("--hf and --url exclude each other");
  const bool is_text = !arguments.url.empty() || !arguments.hf.empty();
  if (is_text && !arguments.model.empty()) arguments.question.insert(arguments.question.begin(), arguments.model);
  if constexpr (is_built(Module::kHub)) {
    if (!arguments.hf.empty()) arguments.model = pull_with_progress(arguments.hf).path.string();
  } else {
    if (!arguments.hf.empty()) throw StartupError("--hf " + left_out(Module::kHub));
  }
  if (arguments.url.empty() && arguments.model.empty()) {
    throw StartupError(
        "no model: quire run MODEL, quire run --hf OWNER/NAME to download one, or quire run --url http://HOST:PORT for "
        "a "
        "server that runs");
  }
}

void run(RunArguments arguments) {
  Conversation conversation = begun(arguments);
  settle_model(arguments);
  std::unique_ptr<LocalServer> server;
  std::string url = arguments.url;
  if (url.empty()) {
    std::vector<std::string> words = {"--model", arguments.model};
    if (!arguments.hf.empty()) words.insert(words.end(), {"--alias", arguments.hf});
    words.insert(words.end(), arguments.serve.begin(), arguments.serve.end());
    server = std::make_unique<LocalServer>(words);
    url = fmt::format("http://127.0.0.1:{}", server->port());
    arguments.api_key = server->api_key();
  }
  auto parsed = parse_http_url(url.find("://") == std::string::npos ? "http://" + url : url);
  if (!parsed) throw StartupError(fmt::format("'{}' must be http[s]://HOST[:PORT]", url));
  while (parsed->path.ends_with('/'))
    parsed->path.pop_back();
  if (parsed->path.ends_with("/v1")) parsed->path.resize(parsed->path.size() - 3);
  const ChatClient client(*std::move(parsed), arguments.trust, arguments.api_key);
  std::string model = arguments.model_name;
  if (server) {
    model = wait_for(client, *server, arguments.model);
  } else if (model.empty()) {
    const auto first = client.first_model(kServerPatience);
    if (!first) throw StartupError(fmt::format("no answer from {}: {}", url, first.error().message));
    model = *first;
  }
  TerminalChat chat(client, model, conversation);
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
  command->add_option("MODEL", arguments->model, "GGUF file or Hugging Face directory; left out with --hf and --url")
      ->type_name("");
  command->add_option("QUESTION", arguments->question, "Answer this and exit; without it, a conversation")
      ->type_name("");
  command
      ->add_option("--hf,--hf-repo", arguments->hf,
                   "A repository of Hugging Face's hub, downloaded where it is not yet")
      ->type_name("OWNER/NAME[:QUANT]");
  command->add_option("--url", arguments->url, "A server with OpenAI's API instead of a model of one's own")
      ->type_name("URL");
  command->add_option("--model-name", arguments->model_name, "With --url: the model; default: the first that is listed")
      ->type_name("NAME");
  command->add_option("--api-key", arguments->api_key, "With --url: sent as a bearer token")
      ->type_name("KEY")
      ->envname("QUIRE_API_KEY");
  command->add_option("--ca", arguments->trust.ca, "With https: PEM file of the authorities to trust")
      ->type_name("FILE");
  command->add_flag("--insecure", arguments->trust.any, "With https: accept any certificate");
  command->add_option("--system", arguments->system, "The system message")->type_name("TEXT");
  command->add_option("--set", arguments->settings, "A setting, as /set: --set temperature=0; repeat it for more")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  const auto forward = [&](const char* flags, const char* name, const char* help) {
    command
        ->add_option_function<std::string>(
            flags,
            [arguments, name](const std::string& value) {
              arguments->serve.insert(arguments->serve.end(), {name, value});
            },
            help)
        ->type_name("");
  };
  forward("-c,--ctx-size,--max-model-len", "--max-model-len", "The longest context in tokens; default: the model's");
  forward("-t,--threads", "--threads", "Compute threads; default: one for each physical core");
  forward("--isa", "--isa", "Instruction set of the kernels; default: the best");
  forward("--kv-cache-memory", "--kv-cache-memory", "Memory of the KV cache, such as 1GiB");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace quire::cli
