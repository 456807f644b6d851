// ChosenServer: the server that a command of the terminal talks to: one at a URL, or `quire serve` for this command
// alone, with its model loaded. A started one ends with its owner. One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/cli/run/chat_client.h"
#include "server/cli/run/local_server.h"

namespace CLI {
class App;
}  // namespace CLI

namespace quire::cli {

struct ServerChoice {
  std::string model;          // file or directory of a server to start
  std::string hf;             // a hub's repository in place of `model`
  std::string url;            // a running server's
  std::string model_name;     // the running server's name for it; empty: its first
  bool needs_length = false;  // the context's length of a named model is asked for too
  std::string api_key;
  ClientTrust trust;
  std::vector<std::string> serve;  // flags of the started server
};

// Adds the flags that choose a server. `choice` must live as long as the command.
void add_server_choice(CLI::App& command, ServerChoice& choice);

class ChosenServer {
 public:
  // Waits until the model answers; a download and a load show their progress. `command` and `model_words` are an
  // example of the command line, for messages. Throws StartupError.
  ChosenServer(ServerChoice choice, const std::string& command, const std::string& model_words);

  // The path /v1 and a slash at the end are cut off.
  const std::string& url() const { return url_; }
  // Empty: none is needed.
  const std::string& api_key() const { return choice_.api_key; }
  const ListedModel& model() const { return model_; }
  const ChatClient& client() const { return *client_; }

 private:
  void start();
  void connect();
  void await_model();

  ServerChoice choice_;
  std::unique_ptr<LocalServer> started_;
  std::string url_;
  std::optional<ChatClient> client_;
  ListedModel model_;
};

}  // namespace quire::cli
