// PeftConfig: the settings of a PEFT adapter_config.json. Immutable after construction; any thread. Source: LoraConfig
// of PEFT. Invariant: a setting that changes results is applied or refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/text/tokenizer/regex.h"

namespace quire {

class PeftConfig {
 public:
  // Reads the file in the directory. Throws StartupError, one line. Unknown settings are refused, or with
  // ignore_unknown_keys logged as warnings.
  PeftConfig(const std::filesystem::path& directory, bool ignore_unknown_keys);

  // The factor of a change of this module ("model.layers.0.self_attn.q_proj"). Throws StartupError if its matrices have
  // another rank than the file states.
  double scale(const std::string& module, std::int64_t rank) const;

 private:
  // Values of modules whose names end with a pattern; the first match counts.
  using Patterns = std::vector<std::pair<Regex, double>>;
  static Patterns read_patterns(const class JsonObject& config, const char* key);
  static double value_for(const Patterns& patterns, const std::string& module, double otherwise);

  std::string where_;
  double rank_ = 0.0;  // 0: the matrices' rank
  double alpha_ = 8.0;
  bool by_root_ = false;
  Patterns ranks_;
  Patterns alphas_;
};

}  // namespace quire
