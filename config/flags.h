// ConfigFlags: the command line's side of the configuration: --config, a flag for each key, --check-config,
// --print-config. One thread at a time.
#pragma once

#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
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

  // After parsing: the defaults, overridden by the file, overridden by the flags. Throws StartupError; an unknown flag
  // is one too, with the nearest that there is.
  Config resolve() const;
  bool check_only() const { return check_only_; }
  bool print_only() const { return print_only_; }

 private:
  struct Flag {
    const ConfigKey* key;
    std::vector<std::string> values;
    CLI::Option* option = nullptr;
  };

  CLI::App& command_;
  std::string file_;
  bool check_only_ = false;
  bool print_only_ = false;
  std::deque<Flag> flags_;  // the command keeps the addresses of their values
};

}  // namespace quire
