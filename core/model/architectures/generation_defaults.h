// The bounds of sampling parameters, of a request's and of the defaults that a model's file brings. Any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "core/model/architectures/model_config.h"

namespace quire {

struct SamplingRange {
  double low = 0.0;
  double high = 1.0;
};
inline constexpr SamplingRange kTemperatureRange{0.0, 100.0};
inline constexpr SamplingRange kProbabilityRange{0.0, 1.0};  // top_p, min_p and their likes
inline constexpr SamplingRange kTopKRange{-1.0, std::numeric_limits<std::int32_t>::max()};
inline constexpr SamplingRange kRepetitionRange{1e-6, 100.0};

// The defaults themselves. Throws StartupError, one line that begins with `where` and names the number that cannot be.
GenerationDefaults checked_defaults(const GenerationDefaults& defaults, const std::string& where);

}  // namespace quire
