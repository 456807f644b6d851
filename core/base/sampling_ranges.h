// The ranges of sampling parameters, in a request and in the defaults of a model's file, and these defaults. Values;
// any thread.
#pragma once

#include <cstdint>
#include <optional>

namespace quire {

struct SamplingRange {
  double low = 0.0;
  double high = 0.0;
};
inline constexpr SamplingRange kTemperatureRange{0.0, 100.0};
inline constexpr SamplingRange kProbabilityRange{0.0, 1.0};  // top_p, min_p and the like
inline constexpr SamplingRange kTopKRange{-1.0, 2147483647.0};
inline constexpr SamplingRange kRepetitionPenaltyRange{1e-6, 100.0};

// Recommendations of generation_config.json or the GGUF's metadata; absent: OpenAI's neutral defaults.
struct GenerationDefaults {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<std::int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
};

}  // namespace quire
