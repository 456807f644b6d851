// The ranges of sampling parameters, in a request and in the defaults of a model's file. Immutable facts; any thread.
#pragma once

namespace quire {

struct SamplingRange {
  double low = 0.0;
  double high = 0.0;
};
inline constexpr SamplingRange kTemperatureRange{0.0, 100.0};
inline constexpr SamplingRange kProbabilityRange{0.0, 1.0};  // top_p, min_p and the like
inline constexpr SamplingRange kTopKRange{-1.0, 2147483647.0};
inline constexpr SamplingRange kRepetitionPenaltyRange{1e-6, 100.0};

}  // namespace quire
