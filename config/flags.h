// ConfigFlags: the command line's side of the configuration: the model, --config, a flag for each key, --api-key,
// --speculative-config, --check-config, --print-config. One thread at a time.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/foreign_flags.h"
#include "config/keys.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quire {

class ConfigFlags {
 public:
  // Adds the flags to a command, which must outlive this.
  explicit ConfigFlags(CLI::App& command);

  // Before parsing: the command line in Quire's own flags, and a note for each ignored flag of another server. Throws
  // StartupError, which names every flag that must be replaced, with its replacement.
  static OwnWords translated(std::span<const std::string> words);

  // After parsing: the defaults, overridden by the file, by the environment (QUIRE_SERVER_PORT), by the flags. Throws
  // StartupError, which names all unknown flags, each with the most similar known one.
  Config resolve() const;
  bool check_only() const { return check_only_; }
  bool print_only() const { return print_only_; }

 private:
  struct Flag {
    const ConfigKey* key;
    std::vector<std::string> values;
    CLI::Option* option = nullptr;
  };

  void add_key_flags();
  void set_environment(Config& config) const;
  void set_speculation(Config& config) const;

  CLI::App& command_;
  std::string model_;
  std::string file_;
  std::vector<std::string> api_keys_;
  std::string speculative_config_;
  CLI::Option* speculative_option_ = nullptr;
  bool check_only_ = false;
  bool print_only_ = false;
  std::deque<Flag> flags_;  // the command keeps the addresses of their values
};

}  // namespace quire
