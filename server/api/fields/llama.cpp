#include "server/api/fields/llama.h"

#include "server/api/fields/generation.h"

namespace quire::fields {

namespace {

constexpr Field kLlamaRows[] = {
    llama::kPrompt,
    generation::kNPredict,
    llama::kNProbs,
    llama::kReturnTokens,
    llama::kTimingsPerToken,
    llama::kResponseFields,
    row_of(kPenaltyRows, "repeat_last_n"),
    {"cache_prompt", boolean(), "false", "nothing in the answer depends on it", Support::kAccepted},
    generation::kIdSlot,
    {"n_keep", integer(-1, kMostInt32), "4", "the context is never shifted", Support::kAccepted},
    generation::kNIndent,
    generation::kTMaxPredictMs,
    generation::kPostSamplingProbs,
    generation::kReturnProgress,
    generation::kMultimodalData,
    generation::kNoTransfer,
};

constexpr Field kInfillRows[] = {
    llama::kInputPrefix,
    llama::kInputSuffix,
    llama::kInputExtra,
    {"prompt", text(), R"("x")", "added to input_prefix; for models that fill in the middle", Support::kConditional},
};

}  // namespace

const FieldTable kLlamaFields{"llama-server's completion", "", "/completion", kLlamaRows};
const FieldTable kInfillFields{"llama-server's infill", "", "/infill", kInfillRows};

}  // namespace quire::fields
