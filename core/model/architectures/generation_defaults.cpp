#include "core/model/architectures/generation_defaults.h"

#include <fmt/core.h>

#include "core/base/result.h"

namespace quire {

GenerationDefaults checked_defaults(const GenerationDefaults& defaults, const std::string& where) {
  const auto check = [&where](const char* name, const auto& value, const SamplingRange& range) {
    if (!value || (*value >= range.low && *value <= range.high)) return;
    throw StartupError(fmt::format("{}: its default of '{}' is {}, not between {} and {}: correct the file", where,
                                   name, *value, range.low, range.high));
  };
  check("temperature", defaults.temperature, kTemperatureRange);
  check("top_p", defaults.top_p, kProbabilityRange);
  check("top_k", defaults.top_k, kTopKRange);
  check("min_p", defaults.min_p, kProbabilityRange);
  check("repetition penalty", defaults.repetition_penalty, kRepetitionRange);
  return defaults;
}

}  // namespace quire
