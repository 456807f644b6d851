#include "server/cli/run/chosen_server.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <utility>

#include "core/base/result.h"
#include "server/cli/downloads.h"
#include "server/client/http_url.h"
#include "server/hub/pull.h"
#include "server/modules/modules.h"

namespace quire::cli {

namespace {

constexpr std::chrono::milliseconds kServerPatience{10'000};
constexpr std::chrono::milliseconds kLoadTick{1'000};

void forward(CLI::App& command, ServerChoice& choice, const char* flags, const char* name, const char* help) {
  command
      .add_option_function<std::string>(
          flags,
          [&choice, name](const std::string& value) {
            choice.serve.insert(choice.serve.end(), {name, value});
          },
          help)
      ->type_name("");
}

}  // namespace

void add_server_choice(CLI::App& command, ServerChoice& choice) {
  command.add_option("--hf,--hf-repo", choice.hf, "A repository of Hugging Face's hub, downloaded where it is not yet")
      ->type_name("OWNER/NAME[:QUANT]");
  command.add_option("--url", choice.url, "A server with OpenAI's API instead of a model of one's own")
      ->type_name("URL");
  command.add_option("--model-name", choice.model_name, "With --url: the model; default: the first that is listed")
      ->type_name("NAME");
  command.add_option("--api-key", choice.api_key, "With --url: sent as a bearer token")
      ->type_name("KEY")
      ->envname("QUIRE_API_KEY");
  command.add_option("--ca", choice.trust.ca, "With https: PEM file of the authorities to trust")->type_name("FILE");
  command.add_flag("--insecure", choice.trust.any, "With https: accept any certificate");
  forward(command, choice, "-c,--ctx-size,--max-model-len", "--max-model-len",
          "The longest context in tokens; default: the model's");
  forward(command, choice, "-t,--threads", "--threads", "Compute threads; default: one for each physical core");
  forward(command, choice, "--isa", "--isa", "Instruction set of the kernels; default: the best");
  forward(command, choice, "--kv-cache-memory", "--kv-cache-memory", "Memory of the KV cache, such as 1GiB");
}

ChosenServer::ChosenServer(ServerChoice choice, const std::string& command, const std::string& model_words)
    : choice_(std::move(choice)) {
  if (!choice_.url.empty() && !choice_.hf.empty()) throw StartupError("--hf and --url exclude each other");
  // A model of a hub is downloaded here, where its progress shows.
  if constexpr (is_built(Module::kHub)) {
    if (!choice_.hf.empty()) choice_.model = pull_with_progress(choice_.hf).path.string();
  } else {
    if (!choice_.hf.empty()) throw StartupError("--hf " + left_out(Module::kHub));
  }
  if (choice_.url.empty() && choice_.model.empty()) {
    throw StartupError(fmt::format(
        "no model: {0} {1}, {0} --hf OWNER/NAME to download one, or {0} --url http://HOST:PORT for a server "
        "that runs",
        command, model_words));
  }
  if (choice_.url.empty()) start();
  connect();
  await_model();
}

void ChosenServer::start() {
  std::vector<std::string> words = {"--model", choice_.model};
  if (!choice_.hf.empty()) words.insert(words.end(), {"--alias", choice_.hf});
  words.insert(words.end(), choice_.serve.begin(), choice_.serve.end());
  started_ = std::make_unique<LocalServer>(words);
  choice_.url = fmt::format("http://127.0.0.1:{}", started_->port());
  choice_.api_key = started_->api_key();
}

void ChosenServer::connect() {
  const std::string& given = choice_.url;
  url_ = given.find("://") == std::string::npos ? "http://" + given : given;
  while (url_.ends_with('/'))
    url_.pop_back();
  if (url_.ends_with("/v1")) url_.resize(url_.size() - 3);
  auto parsed = parse_http_url(url_);
  if (!parsed) throw StartupError(fmt::format("'{}' must be http[s]://HOST[:PORT]", given));
  client_.emplace(*std::move(parsed), choice_.trust, choice_.api_key);
}

void ChosenServer::await_model() {
  if (!started_ && !choice_.model_name.empty() && !choice_.needs_length) {
    model_.name = choice_.model_name;
    return;
  }
  for (int seconds = 0;; ++seconds) {
    const auto model = client_->first_model(started_ ? kLoadTick : kServerPatience);
    if (model) {
      if (started_ && seconds > 0) show_progress_line(fmt::format("loaded {} in {} s", choice_.model, seconds), true);
      model_ = *model;
      break;
    }
    // A server that was named need not list its models.
    if (!started_ && !choice_.model_name.empty()) break;
    if (!started_) throw StartupError(fmt::format("no answer from {}: {}", choice_.url, model.error().message));
    const std::string failure = started_->failure();
    if (!failure.empty()) throw StartupError(failure.substr(failure.starts_with("quire: ") ? 7 : 0));
    show_progress_line(fmt::format("loading {}: {} s", choice_.model, seconds + 1), false);
  }
  if (started_ || choice_.model_name.empty() || choice_.model_name == model_.name) return;
  model_ = {.name = choice_.model_name};
}

}  // namespace quire::cli
