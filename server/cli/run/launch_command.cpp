// `quire launch`: starts a coding agent with the variables and flags that make it use a model of Quire.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/cli/commands.h"
#include "server/cli/run/chosen_server.h"

namespace quire::cli {

namespace {

using nlohmann::json;

// The prompts that agents begin with take some 12,000 tokens.
constexpr std::int64_t kUsualContext = 16'384;
constexpr int kNotFound = 127;

// Variables and first arguments of an agent's process.
struct AgentSetting {
  std::vector<std::pair<std::string, std::string>> variables;
  std::vector<std::string> arguments;
};

// Agents insist on some key.
std::string key_of(const ChosenServer& server) {
  return server.api_key().empty() ? "none" : server.api_key();
}

AgentSetting claude_setting(const ChosenServer& server) {
  const std::string& model = server.model().name;
  return {.variables = {{"ANTHROPIC_BASE_URL", server.url()},
                        {"ANTHROPIC_AUTH_TOKEN", key_of(server)},
                        {"ANTHROPIC_MODEL", model},
                        {"ANTHROPIC_SMALL_FAST_MODEL", model},
                        {"ANTHROPIC_DEFAULT_OPUS_MODEL", model},
                        {"ANTHROPIC_DEFAULT_SONNET_MODEL", model},
                        {"ANTHROPIC_DEFAULT_HAIKU_MODEL", model},
                        {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"}},
          .arguments = {}};
}

// Its settings are TOML; a JSON string is a TOML string too.
AgentSetting codex_setting(const ChosenServer& server) {
  AgentSetting setting{.variables = {{"QUIRE_API_KEY", key_of(server)}}, .arguments = {}};
  const auto set = [&setting](const std::string& key, const json& value) {
    setting.arguments.insert(setting.arguments.end(), {"-c", key + "=" + value.dump()});
  };
  set("model_provider", "quire");
  set("model_providers.quire.name", "Quire");
  set("model_providers.quire.base_url", server.url() + "/v1");
  set("model_providers.quire.wire_api", "responses");
  set("model_providers.quire.env_key", "QUIRE_API_KEY");
  set("model", server.model().name);
  if (server.model().max_model_len > 0) set("model_context_window", server.model().max_model_len);
  return setting;
}

AgentSetting opencode_setting(const ChosenServer& server) {
  const ListedModel& model = server.model();
  json description = {{"name", model.name}};
  if (model.max_model_len > 0)
    description["limit"] = {{"context", model.max_model_len}, {"output", model.max_model_len / 4}};
  const json options = {{"baseURL", server.url() + "/v1"}, {"apiKey", key_of(server)}};
  const json provider = {{"npm", "@ai-sdk/openai-compatible"},
                         {"name", "Quire"},
                         {"options", options},
                         {"models", {{model.name, description}}}};
  const std::string name = "quire/" + model.name;
  const json config = {{"model", name}, {"small_model", name}, {"provider", {{"quire", provider}}}};
  return {.variables = {{"OPENCODE_CONFIG_CONTENT", config.dump()}}, .arguments = {}};
}

AgentSetting qwen_setting(const ChosenServer& server) {
  return {.variables = {{"OPENAI_API_KEY", key_of(server)},
                        {"OPENAI_BASE_URL", server.url() + "/v1"},
                        {"OPENAI_MODEL", server.model().name}},
          .arguments = {"--auth-type", "openai"}};
}

struct Agent {
  std::string_view name;  // its program's too
  std::string_view package;
  AgentSetting (*setting)(const ChosenServer&);
};

constexpr std::array kAgents = std::to_array<Agent>({
    {"claude", "@anthropic-ai/claude-code", claude_setting},
    {"codex", "@openai/codex", codex_setting},
    {"opencode", "opencode-ai", opencode_setting},
    {"qwen", "@qwen-code/qwen-code", qwen_setting},
});

[[noreturn]] void become(const Agent& agent, const AgentSetting& setting, const std::vector<std::string>& arguments) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  for (const auto& [name, value] : setting.variables)
    ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<std::string> words = {std::string(agent.name)};
  words.insert(words.end(), setting.arguments.begin(), setting.arguments.end());
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words)
    pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execvp(words[0].c_str(), pointers.data());
  fmt::print(stderr, "quire launch: cannot start {}: {}; install it by: npm install -g {}\n", agent.name,
             std::strerror(errno), agent.package);
  ::_exit(kNotFound);
}

// Ignores the terminal's Ctrl-C, which is meant for the agent, while this object lives.
class InterruptsIgnored {
 public:
  InterruptsIgnored() : interrupt_(::signal(SIGINT, SIG_IGN)), quit_(::signal(SIGQUIT, SIG_IGN)) {}
  ~InterruptsIgnored() { restore(); }
  InterruptsIgnored(const InterruptsIgnored&) = delete;
  InterruptsIgnored& operator=(const InterruptsIgnored&) = delete;

  void restore() const {
    ::signal(SIGINT, interrupt_);
    ::signal(SIGQUIT, quit_);
  }

 private:
  void (*interrupt_)(int);
  void (*quit_)(int);
};

// Runs the agent in the terminal. Returns its exit code, or 128 and the signal that ended it, as a shell does.
int run_agent(const Agent& agent, const AgentSetting& setting, const std::vector<std::string>& arguments) {
  const InterruptsIgnored ignored;
  const pid_t process = ::fork();
  if (process < 0) throw StartupError(fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (process == 0) {
    ignored.restore();
    become(agent, setting, arguments);
  }
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

struct LaunchArguments {
  std::string agent;
  ServerChoice server;
  std::vector<std::string> rest;
};

void launch(const LaunchArguments& arguments) {
  const auto agent = std::ranges::find(kAgents, std::string_view(arguments.agent), &Agent::name);
  const ChosenServer server(arguments.server, "quire launch " + arguments.agent, "--model PATH");
  const std::int64_t length = server.model().max_model_len;
  if (length > 0 && length < kUsualContext) {
    fmt::print(
        stderr,
        "quire launch: the model's context of {} tokens is short: the first prompts of agents take some 12,000\n",
        length);
  }
  const int code = run_agent(*agent, agent->setting(server), arguments.rest);
  if (code != 0) throw CLI::RuntimeError(code);
}

}  // namespace

void add_launch(CLI::App& app) {
  const auto arguments = std::make_shared<LaunchArguments>();
  CLI::App* command = app.add_subcommand("launch", "Start a coding agent on a model of Quire");
  std::vector<std::string> names;
  for (const Agent& agent : kAgents)
    names.emplace_back(agent.name);
  command->add_option("AGENT", arguments->agent, "The agent: " + fmt::format("{}", fmt::join(names, ", ")))
      ->required()
      ->check(CLI::IsMember(names))
      ->type_name("");
  command->add_option("--model,-m", arguments->server.model, "GGUF file or Hugging Face directory; a server is started")
      ->type_name("PATH");
  arguments->server.needs_length = true;
  add_server_choice(*command, arguments->server);
  command->add_option("ARGUMENTS", arguments->rest, "What the agent is given, after --")->type_name("");
  command->footer("quire launch claude --hf OWNER/NAME -- -p \"Explain this folder\"");
  command->callback([arguments] { launch(*arguments); });
}

}  // namespace quire::cli
